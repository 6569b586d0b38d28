"""`geoswarm draw`: a picture of fences, ways and alerts."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.collections import LineCollection
from typer.testing import CliRunner

import geoswarm as gs
from geoswarm.errors import InputError, SettingsError
from geoswarm.model import ALERT_KINDS
from geoswarm.service import map_picture
from geoswarm.service.cli import app
from geoswarm.service.map_picture import MARKS, Drawn, draw, gather, sentence
from geoswarm.store.storage import Storage

HALF, FENCES = {"x": 0.5, "y": 0.5}, (0.0, 0.0, 1.0, 1.0)


def run_through(folder: Path, *, keeps: bool = True, objects: int = 2, **contract: Any) -> Storage:
    """Two fences, and objects that walk through one of them."""
    tuning = gs.Tuning(matches="alerts", window=gs.WindowSettings(keep="1 hour") if keeps else None)
    walk = np.linspace(-1, 2, 7)
    moved = [
        {"event_id": 10 * name + k, "ts": np.datetime64(k, "s"), "x": x, "y": 0.5, "object_id": f"van {name}"}
        for name in range(objects)
        for k, x in enumerate(walk)
    ]
    with gs.LocalEngine(gs.Contract(executors=2, **contract), tuning, checkpoint=str(folder / "state")) as engine:
        engine.subscribe(1, FENCES, on="enter", payload={"name": "Yard"})
        if not contract:
            engine.subscribe(2, geometry="CIRCLE(20 20 , 5000)", on="exit")
        sink = gs.sinks.Parquet(str(folder / "alerts"))
        engine.start(events=gs.local.from_tables(pa.Table.from_pylist(moved)), sink=sink, available_now=True).wait()
    return Storage(str(folder / "state"))


def moves(**columns: Any) -> pa.Table:
    """Events, or alerts, a second apart."""
    table = pa.table(columns)
    return table.append_column("ts", pa.array(np.arange(len(table)).astype("datetime64[s]")))


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
    (enters,) = (each for each in axes.collections if each.get_label() == "enters (2)")
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


def test_a_rectangle_may_lie_at_the_edge_of_the_world(tmp_path: Path) -> None:
    storage = run_through(tmp_path)
    assert sentence(gather(storage, None, (-10.0, 35.0, 40.0, 70.0), None)).endswith("0 events of 0 objects")
    assert sentence(gather(storage, None, (-180.0, -89.0, 1.0, 90.0), None)).endswith("14 events of 2 objects")


def test_more_events_than_fit_are_the_newest_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, box = run_through(tmp_path), (-0.6, 0.0, 0.1, 1.0)
    monkeypatch.setattr(map_picture, "EVENTS_MAX", 14)
    assert sentence(gather(storage, None, None, None)).endswith("14 events of 2 objects")
    monkeypatch.setattr(map_picture, "EVENTS_MAX", 5)
    drawn = gather(storage, None, None, None)
    assert drawn.events is not None
    assert drawn.events["x"].to_pylist() == [2.0, 2.0, 1.5, 1.5, 1.0]
    assert sentence(drawn).endswith("5 events of 2 objects (no older ones are drawn)")
    drawn = gather(storage, None, box, None)
    assert drawn.events is not None
    assert sorted(drawn.events["x"].to_pylist()) == [-0.5, -0.5, 0.0, 0.0, 0.5, 0.5], "what is inside is whole"
    assert sentence(drawn).endswith("6 events of 2 objects (no older ones around the rectangle are drawn)")
    monkeypatch.setattr(map_picture, "EVENTS_MAX", 3)
    assert sentence(gather(storage, None, box, None)).endswith("5 events of 2 objects (no older ones are drawn)")


def test_bounds_in_metres_are_drawn_as_they_are(tmp_path: Path) -> None:
    storage = run_through(tmp_path, bounds=(-2e7, -2e7, 2e7, 2e7))
    assert not gather(storage, None, None, None).in_degrees
    place = moves(x=[5_000_000.0, 5_001_000.0], y=[6_000_000.0, 6_000_700.0], object_id=["a", "a"])
    (axes,) = draw(Drawn([], place, None, in_degrees=False)).axes
    assert axes.get_aspect() == 1
    assert [text.get_text() for text in axes.texts] == ["200 m"]
    left, right = np.asarray(axes.lines[0].get_xdata(), float)
    assert np.isclose(right - left, 200)
    (axes,) = draw(Drawn([], place.slice(1), None, in_degrees=False)).axes
    assert np.ptp(axes.get_xlim()) == 20, "round a single place"


def test_as_many_ways_as_there_are_objects_are_drawn_at_once() -> None:
    count = 3_000
    names = [f"van {k}" for k in range(count)]
    x, y = np.tile(np.arange(float(count)), 2), np.repeat([0.0, 1.0], count)
    events = moves(x=x, y=y, object_id=names * 2)
    (axes,) = draw(Drawn([], events.take(pa.array(np.arange(2 * count)[::-1])), None)).axes
    assert len(axes.lines) == 1, "the scale"
    lines, dots = axes.collections
    assert isinstance(lines, LineCollection)
    assert len(np.asarray(dots.get_offsets())) == 2 * count
    ways = [np.asarray(way).tolist() for way in lines.get_segments()]
    assert len(ways) == len(lines.get_colors()) == count
    assert len(np.unique(lines.get_colors(), axis=0)) == len(map_picture.WAYS)
    assert all(x == x_later and (y, y_later) == (0, 1) for (x, y), (x_later, y_later) in ways), "by time"


def test_names_are_shown_as_they_are() -> None:
    place = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
    fence = {"id": 1, "geometry": place, "properties": {"payload": json.dumps({"name": "$^$"})}}
    drawn = Drawn([fence], moves(x=[0.0, 1.0], y=[0.0, 1.0], object_id=["$_^$", "_van"]), None)
    figure = draw(drawn)
    figure.savefig(io.BytesIO())
    assert "$^$" in {text.get_text() for text in figure.axes[0].texts}
    assert [text.get_text().strip("\u200b") for text in figure.legends[0].get_texts()] == ["$_^$", "_van"]


def test_ends_of_subscriptions_have_no_place(tmp_path: Path) -> None:
    storage, lines = run_through(tmp_path, keeps=False), tmp_path / "ends.jsonl"
    end = {"sub_id": 1, "transition": "ended", "ended_reason": "expired"}
    lines.write_text("\n".join(json.dumps(row) for row in (end, {**end, "x": None, "y": None})))
    drawn = gather(storage, lines, None, None)
    assert sentence(drawn).endswith(", 2 alerts (2 without a place)")
    assert labels(drawn) == []
    assert len(gather(storage, lines, FENCES, None).alerts or ()) == 0
    lines.write_text("\n".join(json.dumps(row) for row in (end, {"x": 0, "y": 1, "transition": "ended"})))
    drawn = gather(storage, lines, None, None)
    assert sentence(drawn).endswith(", 2 alerts (1 without a place)")
    assert labels(drawn) == ["falls silent (1)"]


def test_a_legend_is_no_wider_than_the_picture() -> None:
    alerts = moves(x=np.arange(7.0), y=np.zeros(7), transition=list(ALERT_KINDS))
    names = [f"769843fd-82b5-4d87-9595-5fc9eb5e05a{k}" for k in range(7)]
    events = moves(x=np.arange(7.0), y=np.zeros(7), object_id=names)
    figure = draw(Drawn([], events, alerts))
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 14
    figure.draw_without_rendering()
    places = [text.get_window_extent() for text in legend.get_texts()]
    assert min(place.xmin for place in places) > 0
    assert max(place.xmax for place in places) <= figure.bbox.width


def test_every_kind_of_alert_has_a_mark_of_its_own() -> None:
    assert set(MARKS) == set(ALERT_KINDS)
    assert len({marker for marker, *_ in MARKS.values()}) == len(MARKS)


def test_many_objects_have_no_names(tmp_path: Path) -> None:
    drawn = gather(run_through(tmp_path, objects=9), tmp_path / "alerts", None, None)
    assert labels(drawn) == ["enters (9)"]


def test_alerts_may_be_lines_of_json_and_nothing_kept(tmp_path: Path) -> None:
    storage = run_through(tmp_path, keeps=False)
    lines = tmp_path / "alerts.jsonl"
    lines.write_text(json.dumps({**HALF, "transition": "cross"}) + "\n" + json.dumps({**HALF, "transition": "ended"}))
    drawn = gather(storage, lines, None, None)
    assert 'none are kept: set [window] keep = "1 hour"' in sentence(drawn)
    assert labels(drawn) == ["passes through (1)", "falls silent (1)"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--out", "map.gif"], "is no picture: name it with .png, .pdf, .svg"),
        (["--out", "gone/map.png"], "there is no folder"),
        (["--out", "map.png", "--rectangle", "1,2,3"], "is not xmin,ymin,xmax,ymax"),
        (["--out", "map.png", "--rectangle", "2,48,2,49"], "widen it"),
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
