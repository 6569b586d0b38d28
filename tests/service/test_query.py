"""`geoswarm query`, `nearest` and `objects`: kept events and objects as a person or a program reads them."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import geoswarm as gs
import worlds
from geoswarm.run.questions import Of
from geoswarm.service.cli import app
from geoswarm.service.cli.settings_file import read_settings
from geoswarm.service.past import as_csv, as_geojson

NEAR = "--rectangle=-90,-45,90,45"
runner = CliRunner()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """With two batches of 200 events under two plans."""
    folder, rng = str(tmp_path_factory.mktemp("kept") / "state"), np.random.default_rng(1)
    tables = [worlds.with_texts(rng, worlds.events(rng, 200, first_id=1000 * k)) for k in range(2)]
    tables = [table.append_column("object_id", pa.array(np.arange(200) % 50)) for table in tables]
    tuning = gs.Tuning(strategy="per-batch", window=gs.WindowSettings(keep="1 hour"), keeps_objects=True)
    with gs.LocalEngine(gs.Contract(columns=20, rows=20, executors=3), tuning, checkpoint=folder) as engine:
        engine.start(events=tables, sink=gs.sinks.Noop(), available_now=True).wait()
    return folder


def test_a_table_shows_the_newest(checkpoint: str) -> None:
    shown = runner.invoke(app, ["query", checkpoint, NEAR, "--columns", "event_id,text"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.stderr
    assert "20 events, the newest first" in shown.stdout
    want = gs.Past(checkpoint).query((-90, -45, 90, 45)).events["event_id"].to_pylist()
    assert str(want[0]) in shown.stdout


def test_status_and_explain_say_what_is_kept(checkpoint: str) -> None:
    kept = json.loads(runner.invoke(app, ["status", checkpoint, "--json"]).stdout)["kept"]
    assert (kept["batches"], kept["events"], kept["cut"], kept["merged_batches"]) == (2, 400, 0, 0)
    assert kept["oldest_us"] < kept["newest_us"]
    assert "kept events" in runner.invoke(app, ["status", checkpoint]).stdout
    lines = runner.invoke(app, ["explain", checkpoint], env={"COLUMNS": "300"}).stdout
    assert "kept: 400 events of 2 batches" in lines
    assert f"{kept['files']} files; 0 of the batches share a file; 0 batches went early" in lines


def test_every_format_has_the_same_events(checkpoint: str, tmp_path: Path) -> None:
    want = sorted(gs.Past(checkpoint).query((-90, -45, 90, 45)).events["event_id"].to_pylist())
    assert len(want) > 50
    for form in ("csv", "geojson", "parquet"):
        said = runner.invoke(app, ["query", checkpoint, NEAR, "--format", form, "--out", str(tmp_path / form)])
        assert said.stdout.split()[:2] == [str(len(want)), "events"], said.stderr
    assert sorted(csv.read_csv(tmp_path / "csv")["event_id"].to_pylist()) == want
    assert sorted(pq.read_table(tmp_path / "parquet")["event_id"].to_pylist()) == want
    features = json.loads((tmp_path / "geojson").read_text())["features"]
    assert sorted(feature["properties"]["event_id"] for feature in features) == want
    assert {feature["geometry"]["type"] for feature in features} == {"Point"}
    printed = runner.invoke(app, ["query", checkpoint, NEAR, "--format", "geojson"]).stdout
    assert json.loads(printed)["features"] == features


def test_columns_of_any_type_are_written_as_text(tmp_path: Path) -> None:
    columns = {
        "day": (pa.array([date(2026, 1, 31)]), "2026-01-31"),
        "price": (pa.array([Decimal("1.50")]), "1.50"),
        "level": (pa.array([float("nan")]), "NaN"),
        "tags": (pa.array([["a", None]]), ["a", None]),
        "place": (pa.array([{"floor": 3, "since": date(2026, 1, 1)}]), {"floor": 3, "since": "2026-01-01"}),
        "code": (pa.array([b"\xff\x00"], pa.large_binary()), "ff00"),
        "missing": (pa.nulls(1, pa.binary(2)), None),
    }
    events = pa.table({"x": [1.0], "y": [2.0]} | {name: held for name, (held, _) in columns.items()})
    (feature,) = json.loads(json.dumps(as_geojson(events), allow_nan=False))["features"]
    assert feature["properties"] == {name: shown for name, (_, shown) in columns.items()}
    said = as_csv(events.drop_columns(["x", "y"])).splitlines()[1]
    assert said == '2026-01-31,1.50,nan,"[""a"", null]","{""floor"": 3, ""since"": ""2026-01-01""}","ff00",'


def test_a_condition_on_columns_chooses_events(checkpoint: str) -> None:
    given = ["query", checkpoint, "--where", "event_id IN (3, 1007) OR event_id > 1197", "--format", "csv"]
    shown = runner.invoke(app, [*given, "--columns", "event_id"])
    assert shown.stdout.split() == ['"event_id"', "1199", "1198", "1007", "3"], shown.stderr


@pytest.mark.parametrize("of", ["events", "objects"])
def test_the_nearest_are_shown_in_every_format(checkpoint: str, tmp_path: Path, of: Of) -> None:
    want = gs.Past(checkpoint).nearest(12.5, -3.0, 5, of=of)
    name = "event_id" if of == "events" else "object_id"
    command = ["nearest", checkpoint, "--at=12.5,-3", "-k", "5", "--of", of]
    shown = runner.invoke(app, command, env={"COLUMNS": "200"})
    assert f"5 {of}, the nearest first" in shown.stdout, shown.stderr
    assert str(want["distance_m"][0])[:12] in shown.stdout
    features = json.loads(runner.invoke(app, [*command, "--format", "geojson"]).stdout)["features"]
    assert [feature["properties"][name] for feature in features] == want[name].to_pylist()
    runner.invoke(app, [*command, "--format", "parquet", "--out", str(tmp_path / "it")])
    assert pq.read_table(tmp_path / "it")[name].to_pylist() == want[name].to_pylist()
    fewer = runner.invoke(app, [*command, "--within", "0.5", "--format", "csv", "--columns", name]).stdout
    assert fewer.splitlines() == [f'"{name}","distance_m"']


def test_the_objects_of_a_region_are_shown(checkpoint: str) -> None:
    want = gs.Past(checkpoint).objects((-90, -45, 90, 45))
    assert 5 < len(want) < 40
    printed = runner.invoke(app, ["objects", checkpoint, NEAR, "--format", "csv"]).stdout.splitlines()
    assert printed[0] == '"object_id","ts","x","y"'
    assert [int(line.split(",")[0]) for line in printed[1:]] == want["object_id"].to_pylist()
    shown = runner.invoke(app, ["objects", checkpoint, "--geometry", "CIRCLE(0 0, 5)"], env={"COLUMNS": "200"})
    assert shown.stdout.startswith("0 objects")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nearest", "--at", "1"], "is not lon,lat: write two numbers"),
        (["nearest", "--at=181,0"], "x 181.0 is outside the world"),
        (["nearest", "--at=1,1", "--of", "people"], "the nearest are events or objects"),
        (["nearest", "--at=1,1", "--within", "-5"], "give metres above 0"),
        (["objects", "--rectangle=3,1,2,2"], "swap them"),
    ],
)
def test_places_that_cannot_be_asked_about_are_refused_with_a_remedy(
    checkpoint: str, given: list[str], said: str
) -> None:
    refused = runner.invoke(app, [given[0], checkpoint, *given[1:]])
    assert refused.exit_code == 2
    assert said in refused.stderr.replace("\n", " ")


def test_what_was_read_is_explained_with_the_chain_of_partitions(checkpoint: str) -> None:
    lines = runner.invoke(app, ["query", checkpoint, "--rectangle=10,10,11,11", "--explain"]).stdout.splitlines()
    assert lines[0].endswith("from 2 of 2 files, 2 of their 2 blocks")
    assert [line.split(":")[0] for line in lines[1:3]] == ["  batch 0", "  batch 1"]
    chain = [line for line in lines if line.startswith("plan ")]
    assert len({line.split(",")[0] for line in chain}) == 2, "a plan for every batch"
    assert all("executor" in line for line in chain)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--rectangle", "1,2,3"], "is not xmin,ymin,xmax,ymax"),
        (["--rectangle=3,1,2,2"], "swap them"),
        (["--geometry", "POLYGON((0 0"], "the query"),
        (["--keywords", "(river"], "the query"),
        (["--since", "yesterday"], 'write 2026-01-31T12:00, or how long ago, such as "15 min"'),
        (["--since", "2030-01-01", "--until", "2029-01-01"], "swap them"),
        (["--explain", "--format", "csv"], "shows no events: leave out --format and --out"),
        (["--format", "xml"], "use table, csv, geojson, json, parquet"),
        (["--format", "parquet"], "Parquet goes to a file"),
        (["--format", "table", "--out", "x"], "a table to the terminal"),
        (["--where", "txet = 'a'"], "at character 1 of the condition: there is no 'txet': did you mean 'text'?"),
        (["--columns", "speed"], "no column speed is kept: known are event_id, ts, x, y, text, object_id"),
        (["--format", "geojson", "--columns", "event_id"], "add x and y to --columns"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_remedy(checkpoint: str, given: list[str], said: str) -> None:
    refused = runner.invoke(app, ["query", checkpoint, *given])
    assert refused.exit_code == 2
    assert said in refused.stderr.replace("\n", " ")


def test_a_settings_file_keeps_events_by_its_section_window(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    text = """
[checkpoint]
path = "state"
[events]
kind = "files"
path = "events"
[sink]
kind = "noop"
[window]
keep = "90 min"
columns = ["text"]
"""
    file = tmp_path / "it.toml"
    file.write_text(text)
    window = read_settings(file).tuning.window
    assert window is not None
    assert (window.seconds, window.columns) == (5400.0, ("text",))
    file.write_text(text.replace("90 min", "soon"))
    said = runner.invoke(app, ["run", str(file)])
    assert said.exit_code == 2
    assert "line 10: [window] keep" in said.stderr.replace("\n", " ")
    assert 'write "1 hour"' in said.stderr.replace("\n", " ")


def test_without_kept_events_the_remedy_is_named(tmp_path: Path) -> None:
    with gs.LocalEngine(gs.Contract(columns=20, rows=20, executors=3), checkpoint=str(tmp_path)):
        pass
    said = runner.invoke(app, ["query", str(tmp_path)])
    assert "keeps no events: set [window] keep" in said.stderr.replace("\n", " ")
