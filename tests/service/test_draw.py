"""`geoswarm draw`: a picture of fences, ways and alerts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import geoswarm as gs
from geoswarm.errors import InputError, SettingsError
from geoswarm.service import map_picture
from geoswarm.service.cli import app
from geoswarm.service.map_picture import Drawn, draw, gather, sentence
from geoswarm.store.storage import Storage

HALF, FENCES = {"x": 0.5, "y": 0.5}, (0.0, 0.0, 1.0, 1.0)


def run_through(folder: Path, *, keeps: bool = True, objects: int = 2) -> Storage:
    """Two fences, and objects that walk through one of them."""
    tuning = gs.Tuning(matches="alerts", window=gs.WindowSettings(keep="1 hour") if keeps else None)
    walk = np.linspace(-1, 2, 7)
    moved = [
        {"event_id": 10 * name + k, "ts": np.datetime64(k, "s"), "x": x, "y": 0.5, "object_id": f"van {name}"}
        for name in range(objects)
        for k, x in enumerate(walk)
    ]
    with gs.LocalEngine(gs.Contract(executors=2), tuning, checkpoint=str(folder / "state")) as engine:
        engine.subscribe(1, FENCES, on="enter", payload={"name": "Yard"})
        engine.subscribe(2, geometry="CIRCLE(20 20 , 5000)", on="exit")
        sink = gs.sinks.Parquet(str(folder / "alerts"))
        engine.start(events=gs.local.from_tables(pa.Table.from_pylist(moved)), sink=sink, available_now=True).wait()
    return Storage(str(folder / "state"))


def labels(drawn: Drawn, **how: Any) -> list[str]:
    (axes,) = draw(drawn, **how).axes
    return [str(label) for label in axes.get_legend_handles_labels()[1]]


def test_fences_ways_and_alerts_are_in_the_picture(tmp_path: Path) -> None:
    drawn = gather(run_through(tmp_path), tmp_path / "alerts", None, None)
    assert sentence(drawn) == "2 subscriptions, 14 events of 2 objects, 2 alerts"
    (axes,) = draw(drawn).axes
    assert sorted(str(label) for label in axes.get_legend_handles_labels()[1]) == ["enters (2)", "van 0", "van 1"]
    assert len(axes.patches) == 2
    assert {text.get_text() for text in axes.texts} >= {"Yard", "2"}, "by its payload's name, else its id"
    (enters,) = axes.collections
    assert np.asarray(enters.get_offsets()).tolist() == [[0.0, 0.5], [0.0, 0.5]]
    (xmin, xmax), (ymin, ymax) = axes.get_xlim(), axes.get_ylim()
    assert xmin < -1 < 2 < xmax, "round the events"
    assert ymax < 20, "a fence far away makes nothing small"
    assert ymin < 0.5


def test_a_circle_is_as_large_as_its_metres() -> None:
    place = {"type": "Point", "coordinates": [10.0, 60.0]}
    shape = map_picture._shape({"geometry": place, "properties": {"radius_m": 111_195.0}})
    assert np.allclose(shape.bounds, (8, 59, 12, 61), atol=1e-3), "a degree of longitude is half as long at 60 degrees"


def test_a_rectangle_and_a_condition_choose_what_is_drawn(tmp_path: Path) -> None:
    storage = run_through(tmp_path)
    box = (10.0, 10.0, 30.0, 30.0)
    assert (
        sentence(gather(storage, tmp_path / "alerts", box, None)) == "1 subscriptions, 0 events of 0 objects, 0 alerts"
    )
    around = gather(storage, tmp_path / "alerts", (-0.1, 0.0, 0.1, 1.0), None)
    assert sentence(around).endswith("2 events of 2 objects, 2 alerts"), "no wider than the rectangle on either side"
    assert labels(gather(storage, None, None, "object_id = 'van 1'")) == ["van 1"]
    assert labels(gather(storage, tmp_path / "alerts", box, None), rectangle=box) == []


def test_many_objects_have_no_names(tmp_path: Path) -> None:
    drawn = gather(run_through(tmp_path, objects=9), tmp_path / "alerts", None, None)
    assert labels(drawn) == ["enters (9)"]


def test_alerts_may_be_lines_of_json_and_nothing_kept(tmp_path: Path) -> None:
    storage = run_through(tmp_path, keeps=False)
    lines = tmp_path / "alerts.jsonl"
    lines.write_text(json.dumps({**HALF, "transition": "cross"}) + "\n" + json.dumps({**HALF, "transition": "ended"}))
    drawn = gather(storage, lines, None, None)
    assert 'none are kept: set [window] keep = "1 hour"' in sentence(drawn)
    assert labels(drawn) == ["passes through (1)", "ended (1)"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--out", "map.gif"], "is no picture: name it with .png, .pdf, .svg"),
        (["--out", "gone/map.png"], "there is no folder"),
        (["--out", "map.png", "--rectangle", "1,2,3"], "is not xmin,ymin,xmax,ymax"),
        (["--out", "map.png", "--alerts", "gone"], "there is no gone to read alerts from"),
        (["--out", "map.png", "--alerts", "plain.jsonl"], 'no column transition: set [tuning] matches = "alerts"'),
        (["--out", "map.png", "--alerts", "bad.jsonl"], "cannot be read as JSON lines"),
        (["--out", "map.png", "--where", "speed >"], "at character 8 of the condition"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], why: str
) -> None:
    run_through(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("plain.jsonl").write_text(json.dumps(HALF))
    Path("bad.jsonl").write_text("{")
    done = CliRunner().invoke(app, ["draw", "state", *given])
    assert done.exit_code == 2
    assert why in " ".join(done.output.split())
    assert not Path("map.png").exists()


def test_where_needs_kept_events_and_an_empty_checkpoint_has_nothing_to_draw(tmp_path: Path) -> None:
    storage = run_through(tmp_path, keeps=False)
    with pytest.raises(SettingsError, match="none are kept"):
        gather(storage, None, None, "speed > 3")
    with pytest.raises(InputError, match="neither subscriptions nor events nor alerts"):
        draw(Drawn([], None, None))
