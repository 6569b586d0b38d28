"""An object goes out when it is far enough outside: of rectangles, polygons and circles, also over the antimeridian."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
from geoswarm.lab.workload.moves import DEGREE_M

WORLD = gs.Contract(columns=90, rows=45, executors=3)
METRE = 1 / DEGREE_M
"""In degrees of latitude."""


def told(folder: Path, places: list[tuple[float, float]], texts: list[str] | None = None, **said: Any) -> list[int]:
    """The events, one a second in batches of two, that a subscription is told of."""
    columns = {
        "event_id": np.arange(len(places)),
        "ts": pa.array(range(len(places)), pa.timestamp("s", "UTC")),
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "object_id": ["a"] * len(places),
    }
    events = pa.table(columns | ({"text": texts} if texts else {}))
    matches = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, checkpoint=str(folder)) as engine:
        engine.subscribe(1, **said)
        batches = [events.slice(k, 2) for k in range(0, len(events), 2)]
        engine.start(events=batches, sink=matches, available_now=True).wait()
    found: list[int] = matches.table()["event_id"].to_pylist()
    return found


@pytest.mark.parametrize(
    "region",
    [
        {"rectangle": (10.0, 50.0, 10.1, 50.1)},
        {"geometry": "POLYGON((10 50, 10.1 50, 10.1 50.1, 10 50.1, 10 50))"},
        {"geometry": f"CIRCLE(10.05 50.05, {0.05 * DEGREE_M})"},
    ],
)
def test_an_object_goes_out_when_it_is_further_than_the_buffer(tmp_path: Path, region: dict[str, Any]) -> None:
    outside = [(10.05, 50.1 + metres * METRE) for metres in (-5.0, 5.0, 29.9, -5.0, 29.9, 30.1, 29.9, 5.0, 30.1)]
    assert told(tmp_path / "exit", outside, on="exit", exit_buffer_m=30, **region) == [5]
    assert told(tmp_path / "none", outside, on="exit", **region) == [1, 4]
    assert told(tmp_path / "enter", outside, on="enter", exit_buffer_m=30, **region) == [0]


def test_metres_are_those_of_the_sphere(tmp_path: Path) -> None:
    """At 60 degrees north a degree of longitude has half the metres."""
    east = [(10.0, 60.05)] + [(10.1 + metres * METRE * 2, 60.05) for metres in (990.0, 1010.0)]
    assert told(tmp_path, east, rectangle=(9.9, 60.0, 10.1, 60.1), on="exit", exit_buffer_m=1000) == [2]


def test_the_other_side_of_the_antimeridian_is_near(tmp_path: Path) -> None:
    places = [(179.95, 0.0), (-179.999, 0.0), (-179.9, 0.0)]
    for name, region in (
        ("rectangle", {"rectangle": (179.9, -1.0, 180.0, 1.0)}),
        ("polygon", {"geometry": "POLYGON((179.9 -1, 180 -1, 180 1, 179.9 0.9, 179.9 -1))"}),
    ):
        assert told(tmp_path / name, places, on="exit", exit_buffer_m=1000, **region) == [2]


def test_confirm_counts_the_fixes_beyond_the_buffer(tmp_path: Path) -> None:
    places = [(0.5, 0.5)] * 2 + [(1.0 + metres * METRE, 0.5) for metres in (50.0, 20.0, 50.0, 50.0)]
    box = (0.0, 0.0, 1.0, 1.0)
    assert told(tmp_path, places, rectangle=box, on="exit", exit_buffer_m=30, confirm="2 fixes") == [5]


def test_a_stay_dwells_on_within_the_buffer(tmp_path: Path) -> None:
    places = [(0.5, 0.5)] + [(1.0 + 20.0 * METRE, 0.5)] * 4
    box = (0.0, 0.0, 1.0, 1.0)
    assert told(tmp_path / "near", places, rectangle=box, on="dwell(3)", exit_buffer_m=30) == [3]
    assert told(tmp_path / "none", places, rectangle=box, on="dwell(3)") == []


def test_words_are_no_reason_to_go_out_with_a_buffer(tmp_path: Path) -> None:
    places, texts = [(0.5, 0.5)] * 3 + [(1.1, 0.5)] * 2, ["busy", "free", "busy", "free", "free"]
    box = (0.0, 0.0, 1.0, 1.0)
    assert told(tmp_path / "buffer", places, texts, rectangle=box, keywords="busy", on="exit", exit_buffer_m=30) == [3]
    assert told(tmp_path / "none", places, texts, rectangle=box, keywords="busy", on="exit") == [1, 3]
