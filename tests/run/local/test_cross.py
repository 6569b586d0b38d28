"""Who passes through a region between two fixes crosses it, also when no fix is inside."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.errors import InputError
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.service.cli.run_view import status_table
from geoswarm.service.watch import status as checkpoint_status

WORLD = gs.Contract(columns=90, rows=45, executors=3)
BOX = (0.04, 0.04, 0.05, 0.05)
FORMS = [
    {"rectangle": BOX},
    {"geometry": "POLYGON((0.04 0.04, 0.05 0.04, 0.05 0.05, 0.04 0.05, 0.04 0.04))"},
    {"geometry": "CIRCLE(0.045 0.045, 600)"},
]


def told(
    folder: Path, places: list[tuple[float, float]], tuning: gs.Tuning | None = None, **said: Any
) -> list[tuple[int, Any]]:
    """The events, one a second in batches of two, that a subscription on cross is told of, and since when."""
    accuracy = said.pop("accuracy", [1.0] * len(places))
    events = pa.table(
        {
            "event_id": np.arange(len(places)),
            "ts": pa.array(range(len(places)), pa.timestamp("s", "UTC")),
            "x": [x for x, _ in places],
            "y": [y for _, y in places],
            "object_id": ["a"] * len(places),
            "accuracy_m": accuracy,
        }
    )
    matches = gs.sinks.Memory()
    asked = (tuning or gs.Tuning()).model_copy(update={"matches": "alerts"})
    with gs.LocalEngine(WORLD, asked, checkpoint=str(folder)) as engine:
        engine.subscribe(1, on="cross", **said)
        batches = [events.slice(k, 2) for k in range(0, len(events), 2)]
        engine.start(events=batches, sink=matches, available_now=True).wait()
    table = matches.table()
    assert set(table["transition"].to_pylist()) <= {"cross"}
    since = [int(at.timestamp()) for at in table["since"].to_pylist()]
    return list(zip(table["event_id"].to_pylist(), since, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_a_way_through_a_region_is_told_although_no_fix_is_inside(tmp_path: Path, form: dict[str, Any]) -> None:
    assert told(tmp_path / "through", [(0.01, 0.045), (0.08, 0.045), (0.08, 0.08)], **form) == [(1, 0)]
    assert told(tmp_path / "batches", [(0.0, 0.0), (0.01, 0.045), (0.08, 0.045)], **form) == [(2, 1)]
    assert told(tmp_path / "by", [(0.01, 0.03), (0.08, 0.03), (0.03, 0.08), (0.01, 0.01)], **form) == []


@pytest.mark.parametrize("form", FORMS)
def test_who_comes_in_crosses_and_who_is_in_or_goes_out_does_not(tmp_path: Path, form: dict[str, Any]) -> None:
    inside = (0.045, 0.045)
    assert told(tmp_path / "in", [(0.01, 0.01), inside, (0.046, 0.046), (0.08, 0.08), inside], **form) == [
        (1, 0),
        (4, 3),
    ]
    assert told(tmp_path / "first", [inside, (0.08, 0.08)], **form) == []


def test_a_way_that_touches_a_corner_crosses(tmp_path: Path) -> None:
    corner = [(0.03, 0.05), (0.05, 0.07), (0.05, 0.05), (0.06, 0.04)]
    assert told(tmp_path / "away", corner[:2], rectangle=BOX) == []
    assert told(tmp_path / "corner", [(0.04, 0.06), (0.06, 0.04)], rectangle=BOX) == [(1, 0)]
    assert told(tmp_path / "border", [(0.02, 0.04), (0.07, 0.04)], rectangle=BOX) == [(1, 0)]


def test_a_way_leads_over_the_antimeridian_where_that_is_nearer(tmp_path: Path) -> None:
    west, east = (-180.0, -1.0, -179.98, 1.0), (179.98, -1.0, 180.0, 1.0)
    over = [(179.96, 0.5), (-179.96, 0.5), (179.96, 0.5)]
    for name, box in (("west", west), ("east", east)):
        assert told(tmp_path / name, over, rectangle=box) == [(1, 0), (2, 1)]
    assert told(tmp_path / "round", over, rectangle=(-10.0, 0.0, 10.0, 1.0)) == []


def test_a_way_that_is_too_long_is_a_gap_and_counted(tmp_path: Path) -> None:
    places = [(0.01, 0.045), (0.08, 0.045), (0.02, 0.045), (0.044, 0.045)]
    assert told(tmp_path, places, gs.Tuning(cross_way_m_max=5000.0), rectangle=BOX) == [(3, 2)]
    names, values = status_table(checkpoint_status(str(tmp_path))).columns
    shown = dict(zip(names.cells, values.cells, strict=True))
    assert shown["gaps"] == "2 ways of objects longer than cross_way_m_max"


def test_a_vague_fix_has_no_part_in_a_way(tmp_path: Path) -> None:
    places = [(0.01, 0.045), (0.045, 0.08), (0.08, 0.045), (0.01, 0.045)]
    tuning = gs.Tuning(accuracy_max_m=30.0)
    vague = [1.0, 99.0, 1.0, 99.0]
    assert told(tmp_path / "vague", places, tuning, rectangle=BOX, accuracy=vague) == [(2, 0)]
    assert told(tmp_path / "sure", places, tuning, rectangle=BOX) == [(3, 2)]


def test_a_pause_leaves_out_further_crossings(tmp_path: Path) -> None:
    there_and_back = [(0.01, 0.045), (0.08, 0.045)] * 3
    assert told(tmp_path / "all", there_and_back, rectangle=BOX) == [(n, n - 1) for n in range(1, 6)]
    assert told(tmp_path / "some", there_and_back, rectangle=BOX, cooldown="3 s") == [(1, 0), (4, 3)]


def test_the_fix_at_the_end_of_a_way_must_have_what_is_asked_for(tmp_path: Path) -> None:
    """Wherever it is, and whatever the fix at the beginning has."""
    times = pa.array(range(5), pa.timestamp("s", "UTC"))
    x = [0.01, 0.08, 0.01, 0.08, 0.01]
    events = pa.table(
        {"event_id": range(5), "ts": times, "x": x, "y": [0.045] * 5, "object_id": ["a"] * 5}
        | {"speed": [90.0, 90.0, 10.0, None, 90.0], "text": ["flood", "dry", "Flood!", None, "flood"]}
    )
    asked: list[dict[str, Any]] = [
        {"where": "speed > 80"},
        {"objects": ["a"]},
        {"objects": ["b"]},
        {"keywords": "flood"},
        {"keywords": "flood AND NOT dry", "where": "speed > 80", "objects": ["a"]},
        {"where": "altitude > 3"},
    ]
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        for number, said in enumerate(asked):
            engine.subscribe(number, BOX, on="cross", **said)
        engine.start(events=[events.slice(0, 2), events.slice(2)], sink=sink, available_now=True).wait()
    told = pairs_of([sink.table()])
    by_sub = [sorted(event for event, sub in told if sub == number) for number in range(len(asked))]
    assert by_sub == [[1, 4], [1, 2, 3, 4], [], [2, 4], [4], []]


@pytest.mark.parametrize("seed", range(2))
def test_ways_of_who_asks_for_more_are_what_brute_force_finds(tmp_path: Path, seed: int) -> None:
    rng, oracle, want = np.random.default_rng(seed), Oracle(worlds.BOUNDS), list[tuple[int, int]]()
    oracle.way_m_max = 1e7
    storm = worlds.with_shapes(rng, worlds.operations(rng, 250, ids=200, now_us=1, near=20.0, lasts_us=10**9))
    storm = storm.append_column("on", pa.array(["cross"] * len(storm)))
    storm = worlds.with_demands(rng, worlds.with_keywords(rng, storm, 0.4), 0.4)
    batches = [worlds.wandering_events(rng, 150, near=20, objects=12, first_id=1000 * k, at_us=k) for k in range(3)]
    batches = [worlds.with_facts(rng, worlds.with_texts(rng, batch)) for batch in batches]
    refused = oracle.operate(storm, 10)
    for batch in batches:
        want += oracle.deliver(batch, 10)
    sink, tuning = gs.sinks.Memory(), gs.Tuning(cross_way_m_max=1e7)
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path), clock=lambda: 1e-5) as engine:
        engine.start(events=batches, operations=[storm], sink=sink, available_now=True).wait()
        assert engine.status()["operations_refused"] == refused
    assert sorted(pairs_of([sink.table()])) == sorted(want)
    counts = [sum(sub in asked for _, sub in want) for asked in (oracle.words, oracle.wheres, oracle.objects)]
    assert min(counts) > 8


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"keywords": "flood"}, "is on cross with keywords 'flood' and without a place: every way begins in the world"),
        ({"rectangle": BOX, "predicate": "contains"}, "is on cross with predicate 'contains': a way only intersects"),
        ({"rectangle": BOX, "keywords": "flood AND"}, "character"),
        ({"rectangle": BOX, "where": "speed >"}, "character"),
        ({"rectangle": BOX, "objects": []}, "objects"),
        ({"rectangle": BOX, "confirm": "3 fixes"}, "which has no runs of fixes: leave confirm out"),
        ({"rectangle": BOX, "exit_buffer_m": 30.0}, "exit_buffer_m"),
        ({"rectangle": BOX, "since": "1 hour"}, "since"),
    ],
)
def test_what_does_not_go_with_cross_is_refused_with_why(tmp_path: Path, said: dict[str, Any], why: str) -> None:
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine, pytest.raises(InputError, match=why):
        engine.subscribe(1, on="cross", **said)
