"""`geoswarm query`: kept events as a person or a program reads them."""

import json
from pathlib import Path

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import geoswarm as gs
import worlds
from geoswarm.service.cli import app
from geoswarm.service.cli.settings_file import read_settings

NEAR = "--rectangle=-90,-45,90,45"
runner = CliRunner()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """With two batches of 200 events under two plans."""
    folder, rng = str(tmp_path_factory.mktemp("kept") / "state"), np.random.default_rng(1)
    tables = [worlds.with_texts(rng, worlds.events(rng, 200, first_id=1000 * k)) for k in range(2)]
    tuning = gs.Tuning(strategy="per-batch", window=gs.WindowSettings(keep="1 hour"))
    with gs.LocalEngine(gs.Contract(columns=20, rows=20, executors=3), tuning, checkpoint=folder) as engine:
        engine.start(events=tables, sink=gs.sinks.Noop(), available_now=True).wait()
    return folder


def test_a_table_shows_the_newest(checkpoint: str) -> None:
    shown = runner.invoke(app, ["query", checkpoint, NEAR, "--columns", "event_id,text"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.stderr
    assert "20 events, the newest first" in shown.stdout
    want = gs.Past(checkpoint).query((-90, -45, 90, 45)).events["event_id"].to_pylist()
    assert str(want[0]) in shown.stdout


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
        (["--format", "xml"], "use table, csv, geojson, parquet"),
        (["--format", "parquet"], "Parquet goes to a file"),
        (["--format", "table", "--out", "x"], "a table to the terminal"),
        (["--columns", "speed"], "no column speed is kept: known are event_id, ts, x, y, text"),
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
