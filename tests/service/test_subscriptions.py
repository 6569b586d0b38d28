"""`geoswarm subscriptions` and `export`: what they show, and that all of it comes back by `load`."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import geoswarm as gs
from geoswarm.service.cli import app

CONTRACT = gs.Contract(columns=20, rows=20, executors=3)
runner = CliRunner()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every kind of region and every attribute, some of them together."""
    folder = str(tmp_path_factory.mktemp("collection") / "state")
    box = (2.2, 48.8, 2.5, 48.9)
    window = gs.WindowSettings(keep="1 hour", marks_past=True)
    with gs.LocalEngine(CONTRACT, gs.Tuning(window=window), checkpoint=folder) as engine:
        engine.subscribe(1, box, user="ana", payload={"route": 7, "name": "Straße"}, since="1 hour")
        engine.subscribe(2, geometry="POLYGON((2 48, 3 48, 3 49, 2 48))", predicate="within", user="ben")
        engine.subscribe(3, geometry="CIRCLE(2.25 48.5, 1500.5)", on="dwell(2.5)", payload='"a text"')
        engine.subscribe(4, geometry="CIRCLE(179.99 10.1, 5000)", predicate="contains", user="ana")
        engine.subscribe(
            5,
            geometry="MULTIPOLYGON(((2 48, 3 48, 3 49, 2 48)), ((5 5, 7 5, 7 7, 5 7, 5 5), (6 6, 6.5 6, 6 6.5, 6 6)))",
            keywords='flood AND (river OR "and")',
        )
        engine.subscribe(6, keywords="dam", payload="[1, 2.50]")
        engine.subscribe(7, box, predicate="covers", expires=datetime(2999, 1, 31, 12, 0, 0, 5, tzinfo=UTC))
        engine.subscribe(
            8, box, aggregate='top("my kind", 3)', window="sliding(1 h, 60 s)", group_by="v", when="count>3"
        )
        engine.subscribe(9, geometry="POLYGON((0 0, 1 0, 1 1, 0 1, 0 0))", on="exit", payload="null")
        engine.subscribe(10, geometry="POLYGON((179 0, -179 0, -179 1, 179 0.5, 179 0))")
        engine.subscribe((1 << 63) - 1, (-180.0, -90.0, 180.0, 90.0), on="enter")
        engine.subscribe(-5, (0.1, 0.2, 0.30000000000000004, 0.7))
        engine.subscribe(99, box)
        engine.cancel(99)
    return folder


@pytest.mark.parametrize("kind", ["parquet", "geojson"])
def test_what_is_exported_comes_back_by_load(checkpoint: str, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"all.{kind}"
    said = runner.invoke(app, ["export", checkpoint, "--out", str(file)])
    assert said.exit_code == 0, said.output
    assert said.stdout.split()[0] == "12"
    before = gs.Subscriptions(checkpoint).page()
    with gs.LocalEngine(CONTRACT, checkpoint=str(tmp_path / "back")) as engine:
        assert engine.load(str(file)).dead == 0
        after = engine.subscriptions()
        assert after.to_pylist() == before.to_pylist()
        assert after.equals(before)
        here = (2.3, 48.85, 2.4, 48.86)
        assert engine.subscriptions(here).equals(gs.Subscriptions(checkpoint).page(here))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(["back", file.name])
    again = tmp_path / f"again.{kind}"
    assert runner.invoke(app, ["export", str(tmp_path / "back"), "--out", str(again)]).exit_code == 0
    if kind == "geojson":
        assert again.read_bytes() == file.read_bytes()
        shown = {feature["id"]: feature for feature in json.loads(file.read_text())["features"]}
        assert shown[3]["geometry"] == {"type": "Point", "coordinates": [2.25, 48.5]}
        assert shown[3]["properties"]["radius_m"] == 1500.5
        assert shown[1]["properties"]["payload"] == '{"route":7,"name":"Straße"}'
        assert shown[-5]["properties"]["rectangle"] == [0.1, 0.2, 0.30000000000000004, 0.7]
    else:
        assert pq.read_table(again).equals(pq.read_table(file))


def test_a_payload_in_geojson_may_be_any_json(tmp_path: Path) -> None:
    place = {"type": "Point", "coordinates": [2.35, 48.86]}
    payloads = [{"route": 7}, [1, None], 7, True, '"text"', "text"]
    features = [
        {"type": "Feature", "id": n, "geometry": place, "properties": {"radius_m": 500, "payload": payload}}
        for n, payload in enumerate(payloads)
    ]
    features.append({"type": "Feature", "id": 70, "geometry": place, "properties": {}})
    file = tmp_path / "fences.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    with gs.LocalEngine(CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        assert engine.load(str(file)).dead == 2
        shown = engine.subscriptions()
        assert shown["payload"].to_pylist() == ['{"route":7}', "[1,null]", "7", "true", '"text"']
        assert set(shown["geometry"].to_pylist()) == {b"CIRCLE(2.35 48.86, 500.0)"}
        assert engine.dead_letters()["reason"].to_pylist() == ["no-area", "payload"]


def test_every_format_shows_the_same(checkpoint: str, tmp_path: Path) -> None:
    want = gs.Subscriptions(checkpoint).page(user="ana")["sub_id"].to_pylist()
    assert want == [1, 4]
    asked = ["subscriptions", checkpoint, "--user", "ana", "--format"]
    for form in ("csv", "geojson", "json", "parquet"):
        said = runner.invoke(app, [*asked, form, "--out", str(tmp_path / form)])
        assert said.stdout.split()[:2] == ["2", "subscriptions"], said.output
    assert csv.read_csv(tmp_path / "csv")["sub_id"].to_pylist() == want
    assert [row["sub_id"] for row in json.loads((tmp_path / "json").read_text())] == want
    assert [feature["id"] for feature in json.loads((tmp_path / "geojson").read_text())["features"]] == want
    assert pq.read_table(tmp_path / "parquet").equals(pa.table(gs.Subscriptions(checkpoint).page(user="ana")))
    for form in ("csv", "geojson", "json"):
        assert runner.invoke(app, [*asked, form]).stdout == (tmp_path / form).read_text()
    shown = runner.invoke(app, asked[:-1], env={"COLUMNS": "300"}).stdout
    assert "2 subscriptions, by ascending id" in shown
    assert "keywords" not in shown, "columns without a value are left out"


def test_options_choose_and_page(checkpoint: str) -> None:
    def ids(*options: str) -> list[int]:
        said = runner.invoke(app, ["subscriptions", checkpoint, "--format", "json", *options])
        assert said.exit_code == 0, said.output
        return [row["sub_id"] for row in json.loads(said.stdout)]

    assert ids("--id", "7", "--id", "2", "--id", "1000") == [2, 7]
    assert ids("--after", "4", "--limit", "2") == [5, 6]
    assert ids("--rectangle=2,48,3,49", "--predicate", "within") == [1, 2, 3, 7, 8]
    assert ids("--geometry", "CIRCLE(2.25 48.5, 10)", "--where", "on LIKE 'dwell%'") == [3]
    assert ids("--where", "payload IS NOT NULL AND expires IS NULL") == [1, 3, 6, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--where", "usr = 'ana'"], "there is no 'usr': did you mean 'user'"),
        (["--rectangle=3,48,2,49"], "swap them"),
        (["--rectangle=3,48,2"], "is not xmin,ymin,xmax,ymax"),
        (["--rectangle=2,48,3,49", "--geometry", "CIRCLE(2 48, 10)"], "leave one out"),
        (["--predicate", "within"], "needs a region"),
        (["--limit", "0"], "--limit"),
        (["--format", "xml"], "--format xml is unknown"),
        (["--format", "csv", "--id", "seven"], "--id"),
    ],
)
def test_bad_options_say_what_to_do(checkpoint: str, options: list[str], message: str) -> None:
    said = runner.invoke(app, ["subscriptions", checkpoint, *options], env={"COLUMNS": "300"})
    assert said.exit_code != 0
    assert message in said.output + str(said.exception)


def test_an_export_that_cannot_be_written_leaves_no_file(checkpoint: str, tmp_path: Path) -> None:
    for name, message in (("all.xml", "neither Parquet nor GeoJSON"), ("none/all.parquet", "there is no folder")):
        said = runner.invoke(app, ["export", checkpoint, "--out", str(tmp_path / name)])
        assert said.exit_code != 0
        assert message in said.output.replace("\n", " ") + str(said.exception)
    said = runner.invoke(app, ["export", str(tmp_path / "none"), "--out", str(tmp_path / "all.parquet")])
    assert said.exit_code != 0
    assert list(tmp_path.iterdir()) == []


def test_an_encrypted_checkpoint_is_read_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOSWARM_KEY", base64.b64encode(bytes(32)).decode())
    with gs.LocalEngine(CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, (0, 0, 1, 1), payload={"secret": "word"})
    file = tmp_path / "all.geojson"
    assert runner.invoke(app, ["export", str(tmp_path / "state"), "--out", str(file)]).exit_code == 0
    assert "secret" in file.read_text()
    assert not any(b"secret" in held.read_bytes() for held in (tmp_path / "state").rglob("*") if held.is_file())
    monkeypatch.delenv("GEOSWARM_KEY")
    said = runner.invoke(app, ["export", str(tmp_path / "state"), "--out", str(file)])
    assert said.exit_code != 0
