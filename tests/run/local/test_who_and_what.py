"""Who and what: subscriptions for some objects, and for conditions on columns, from `subscribe` to the matches."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoswarm as gs
from geoswarm.core.aggregates.columns import AggregateStream
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import InputError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import validate_operations
from geoswarm.model import TIMESTAMP
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from worlds import (
    BOUNDS,
    operations,
    wandering_events,
    with_areas,
    with_demands,
    with_facts,
    with_keywords,
    with_on,
    with_predicates,
    with_shapes,
    with_texts,
)

BOX = (0.0, 0.0, 10.0, 10.0)


def engine_at(folder: Path, **tuning: Any) -> gs.LocalEngine:
    contract = gs.Contract(bounds=BOUNDS, columns=40, rows=40, executors=3)
    return gs.LocalEngine(contract, gs.Tuning(matches="pairs", **tuning), checkpoint=str(folder / "state"))


def fleet(first_id: int = 0, **columns: Any) -> pa.Table:
    """Events at one place, with these columns."""
    n = len(next(iter(columns.values())))
    ids = np.arange(first_id, first_id + n)
    rows = {
        "event_id": ids,
        "ts": pa.array(ids * 1_000_000).cast(TIMESTAMP),
        "x": np.full(n, 5.0),
        "y": np.full(n, 5.0),
    }
    return pa.table(rows | columns)


def pairs(engine: gs.LocalEngine, *tables: pa.Table) -> set[tuple[int, int]]:
    engine.start(events=gs.local.from_tables(*tables), sink=(sink := gs.sinks.Memory()), available_now=True).wait()
    return {(row["event_id"], row["sub_id"]) for row in sink.table().to_pylist()}


def test_a_subscription_gets_the_events_of_its_objects_only(tmp_path: Path) -> None:
    with engine_at(tmp_path) as engine:
        engine.subscribe(1, BOX, objects=["van-7", "van-12"])
        engine.subscribe(2, BOX, objects=[7])
        engine.subscribe(3, BOX)
        engine.subscribe(4, BOX, objects=["van-7"], keywords="late AND NOT drill")
        engine.subscribe(5, geometry="POLYGON((0 0, 4 0, 0 4, 0 0))", objects=["van-7"])
        engine.subscribe(6, geometry="CIRCLE(5 5, 1000)", objects=["van-7"], where="speed > 80")
        names = ["van-7", "7", None, "van-12", "van-7"]
        said = ["late", "late", "late", None, "late drill"]
        came = fleet(object_id=names, text=said, speed=[81.0, 99.0, 99.0, 99.0, None])
        everybody = {(event, 3) for event in range(5)}
        assert pairs(engine, came) == everybody | {(0, 1), (3, 1), (4, 1), (1, 2), (0, 4), (0, 6)}


def test_integers_name_the_same_objects_as_their_digits(tmp_path: Path) -> None:
    with engine_at(tmp_path) as engine:
        engine.subscribe(1, BOX, objects=[7, -3])
        engine.subscribe(2, BOX, objects=["12"])
        engine.subscribe(3, BOX, where="object_id = 12 AND speed < 5")
        came = fleet(object_id=pa.array([7, -3, 12, None, 70], pa.int64()), speed=[1, 2, 3, 4, 5])
        assert pairs(engine, came) == {(0, 1), (1, 1), (2, 2), (2, 3)}


@pytest.mark.parametrize(
    ("where", "events"),
    [
        ("speed > 80 AND status IN ('free', 'idle') AND NOT battery < 20", {0}),
        ("status = 'free'", {0, 1}),
        ("NOT status = 'free'", {2}),
        ("battery = 20.0", {0}),
        ("battery IN (10, 20)", {0, 1}),
        ("speed = 90", {0}),
        ("urgent", {1}),
        ("seen >= '1970-01-01T00:00:20'", {2}),
        ("seen = '1970-01-01T00:00:10+00:00' AND status = 'free'", {1}),
        ("speed IS NULL OR status IS NULL", {3}),
        ("altitude > 3", set()),
        ("altitude > 3 OR speed > 0", set()),
        ("status > 3 OR speed > 0", set()),
        ("kind = 'tram'", {1}),
    ],
)
def test_a_condition_chooses_events_by_their_columns(tmp_path: Path, where: str, events: set[int]) -> None:
    came = fleet(
        speed=[90.0, 80.0, 70.5, None],
        status=["free", "free", "busy", None],
        battery=pa.array([20, 10, 30, None], pa.int8()),
        urgent=[False, True, None, None],
        seen=pa.array([0, 10, 20, None], pa.timestamp("s", "UTC")),
        kind=["bus", "tram", None, "bus"],
    )
    with engine_at(tmp_path) as engine:
        engine.subscribe(1, BOX, where=where)
        engine.subscribe(2, BOX)
        assert {event for event, sub in pairs(engine, came) if sub == 1} == events


def test_leaving_a_condition_is_leaving_the_region(tmp_path: Path) -> None:
    with engine_at(tmp_path) as engine:
        engine.subscribe(1, BOX, on="enter", where="status = 'free'")
        engine.subscribe(2, BOX, on="exit", where="status = 'free'", objects=[7])
        came = fleet(object_id=[7, 7, 7, 8, 8], status=["busy", "free", "busy", "free", None])
        assert pairs(engine, came) == {(1, 1), (2, 2), (3, 1)}


def test_a_column_that_the_events_lack_is_said_at_the_start_and_in_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine_at(tmp_path) as engine:
        engine.subscribe(9, BOX, where="altitude > 3 AND speed > 0")
        engine.subscribe(8, BOX, where="altitude < 3 OR text = 'flood'")
        engine.subscribe(7, BOX, keywords="flood")
        engine.subscribe(6, BOX, objects=["van-7"])
        engine.subscribe(5, BOX, where="speed > 0")
        with caplog.at_level(logging.WARNING):
            assert pairs(engine, fleet(speed=[1.0])) == {(0, 5)}
        lacking = {each["column"]: each for each in engine.status()["lacking"]}
        found = {name: (each["subscriptions"], each["sub_id"], each["asks"]) for name, each in lacking.items()}
        assert found == {
            "altitude": (2, 8, "a condition"),
            "text": (2, 7, "keywords or a condition"),
            "object_id": (1, 6, "objects"),
        }
        assert sum("no column" in record.message for record in caplog.records) == 3


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"where": "speed >"}, "at character 8 of the condition: the end stands where a number"),
        ({"where": "speed > 80 km"}, "at character 12 of the condition: km follows a complete test"),
        ({"where": "status = free'"}, "at character 14 of the condition: ' is never closed"),
        ({"where": "speed = NULL"}, "at character 9 of the condition: NULL is equal to nothing"),
        ({"where": ""}, "an empty condition"),
        ({"where": "a = 1 OR " * 500 + "b = 1"}, "limit 4096"),
        ({"where": "geometry IS NULL"}, "at character 1 of the condition: no condition sees a geometry"),
        ({"objects": []}, "an empty list"),
        ({"objects": "van-7"}, "at character 1: Expecting value: send a list"),
        ({"objects": {"id": 7}}, "send a list such as"),
        ({"objects": 7}, "send a list such as"),
        ({"objects": [7, 7.5]}, "number 2 of the list, 7.5, is no id"),
        ({"objects": list(range(1001))}, "1001 objects, limit 1000"),
        ({"objects": ["v" * 257]}, "has 257 bytes: an id has 1 to 256"),
        ({"keywords": "flood OR NOT drill"}, "at character 10: NOT has no word beside it"),
    ],
)
def test_what_cannot_be_used_is_refused_at_its_character(tmp_path: Path, said: dict[str, Any], why: str) -> None:
    with engine_at(tmp_path) as engine, pytest.raises(InputError, match=why):
        engine.subscribe(7, BOX, **said)


def test_a_running_stream_refuses_a_condition_that_does_not_fit_its_types() -> None:
    stream = AggregateStream(fleet(speed=[1.0], status=["free"]).schema, takes_aggregates=False)
    wheres = ["speed > 'fast'", "altitude > 'high'", "speed > 80"]
    rows = operation_table([registration(i, BOX, where=where) for i, where in enumerate(wheres)])
    dead = DeadLetters("operation", 0)
    grid = Grid(*BOUNDS, columns=4, rows=4)
    read = validate_operations(rows.combine_chunks().to_batches()[0], grid, 0, dead, None, stream)
    assert read.fit.tolist() == [False, True, True]
    assert "at character 9 of the condition: speed has numbers" in dead.table()["detail"][0].as_py()


def test_subscriptions_that_are_read_back_ask_for_the_same(tmp_path: Path) -> None:
    asked = [
        {"where": "speed>80 and not(status='free')", "objects": None},
        {"where": None, "objects": '["12", "van-7"]'},
    ]
    with engine_at(tmp_path / "one") as engine:
        engine.subscribe(1, BOX, where=asked[0]["where"])
        engine.subscribe(2, BOX, objects=["van-7", 12, "12"])
        page = engine.subscriptions(where="objects IS NOT NULL")
        assert page["objects"].to_pylist() == ['["12", "van-7"]']
        everything = engine.subscriptions()
        assert everything["where"].to_pylist() == ["speed > 80 AND NOT status = 'free'", None]
    pq.write_table(everything, tmp_path / "back.parquet")
    with engine_at(tmp_path / "two") as engine:
        assert engine.load(str(tmp_path / "back.parquet")).dead == 0
        assert engine.subscriptions().equals(everything)
        came = fleet(object_id=["12", "7"], speed=[81.0, 99.0], status=["busy", "free"])
        assert pairs(engine, came) == {(0, 1), (0, 2)}


def test_the_past_is_given_of_the_objects_and_by_the_condition(tmp_path: Path) -> None:
    window = gs.WindowSettings(keep="1 day", marks_past=True)
    with engine_at(tmp_path, window=window) as engine:
        first = fleet(object_id=[1, 2, 1], speed=[90.0, 90.0, 10.0])
        assert pairs(engine, first) == set()
        engine.subscribe(1, BOX, since="1970-01-01", where="speed > 80")
        engine.subscribe(2, BOX, since="1970-01-01", objects=[1])
        engine.subscribe(3, BOX, since="1970-01-01", objects=[1], where="speed > 80", keywords=None)
        later = fleet(10, object_id=[1], speed=[95.0])
        assert pairs(engine, first, later) == {(0, 1), (1, 1), (0, 2), (2, 2), (0, 3), (10, 1), (10, 2), (10, 3)}


def test_the_past_is_refused_where_the_columns_of_a_condition_are_not_kept(tmp_path: Path) -> None:
    window = gs.WindowSettings(keep="1 day", marks_past=True, columns=("speed",))
    with engine_at(tmp_path, window=window) as engine:
        engine.subscribe(1, BOX, since="1970-01-01", where="speed > 80")
        with pytest.raises(InputError, match="status is not kept"):
            engine.subscribe(2, BOX, since="1970-01-01", where="status = 'free'")
        with pytest.raises(InputError, match="object_id is not kept"):
            engine.subscribe(3, BOX, since="1970-01-01", objects=[7])


@pytest.mark.parametrize("seed", range(4))
def test_all_of_it_together_is_what_the_oracle_says(tmp_path: Path, seed: int) -> None:
    """Words with NOT, shapes, areas, objects, conditions and transitions, over segments that are merged."""
    rng, oracle, want = np.random.default_rng(seed), Oracle(BOUNDS), set[tuple[int, int]]()
    batches, storms = list[pa.Table](), list[pa.Table]()
    for b in range(4):
        moving = wandering_events(rng, 150, near=20, objects=12, first_id=1000 * b, at_us=16_000_000 * b)
        batches.append(with_facts(rng, with_areas(rng, with_texts(rng, moving), 0.3, near=20.0)))
        storm = with_shapes(rng, operations(rng, 90, ids=60, near=20, lasts_us=40_000_000))
        storms.append(with_demands(rng, with_on(rng, with_predicates(rng, with_keywords(rng, storm, 0.3))), 0.4))
        oracle.operate(storms[-1], 0)
        want |= oracle.deliver(batches[-1], 0)
    contract, tuning = gs.Contract(bounds=BOUNDS, columns=40, rows=40, executors=3), gs.Tuning(deltas_max=1)
    memory = gs.sinks.Memory()
    with gs.LocalEngine(contract, tuning, checkpoint=str(tmp_path / "state"), clock=lambda: 0.0) as engine:
        engine.start(events=batches, operations=storms, sink=memory, available_now=True).wait()
    assert sorted(pairs_of([memory.table()])) == sorted(want)
    assert len(want) > 100
