"""Ids that are texts or UUIDs: every output has them as they were given, and everything else is as with integers."""

import json
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import geoswarm as gs
import worlds
from counted_world import rows_shown
from geoswarm.config import AggregateSettings, Contract, Tuning, WindowSettings
from geoswarm.core.keys import hashing
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import SchemaError, StateError
from geoswarm.flow.aggregates.counted import COUNTED, EVENT_TEXT
from geoswarm.flow.aggregates.full_windows import number_texts
from geoswarm.run.oracle.aggregates import AggregateOracle
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from worlds import BOUNDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLD = Contract(columns=60, rows=30, executors=3)
STEP, BATCHES, BATCH_US = 5.0, 6, 10_000_000


def uuid_of(number: int) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, str(number))


def texts_of(numbers: pa.Array, prefix: str = "") -> pa.Array:
    """Texts in no order of the numbers, some of them with letters of other scripts."""
    odd = {0: "", 1: "é", 2: "日本", 3: "\U0001f600"}
    made = [None if n is None else prefix + odd.get(n % 11, "") + str(uuid_of(n)) for n in numbers.to_pylist()]
    return pa.array(made, pa.string())


def batch(seed: int, number: int) -> pa.Table:
    """Objects on the borders of subscriptions, with times that are often the same, so that ids decide the order."""
    rng = np.random.default_rng((seed, number))
    made = worlds.border_walks(rng, 250, step=STEP, objects=10, first_id=1000 * number, at_us=number * BATCH_US)
    made = made.set_column(4, "object_id", texts_of(made["object_id"], "bus "))
    return made.set_column(0, "event_id", texts_of(made["event_id"]))


def storm(seed: int, number: int) -> pa.Table:
    rng = np.random.default_rng((seed, 1000 + number))
    asked = worlds.operations(rng, 40 if number else 60, ids=40, now_us=0, near=20.0, lasts_us=10**12)
    asked = worlds.with_alert_rules(rng, worlds.with_on(rng, worlds.with_borders(asked, STEP)))
    users = pa.array([f"user {sub % 7}" for sub in asked["sub_id"].to_pylist()])
    at = asked.schema.get_field_index("user")
    return asked.append_column("user", users) if at < 0 else asked.set_column(at, "user", users)


@pytest.mark.parametrize("strategy", ["auto", "ps2-hybrid", "swarm"])
@pytest.mark.parametrize("seed", range(3))
def test_transitions_and_matches_are_those_of_brute_force(tmp_path: Path, seed: int, strategy: str) -> None:
    """Each batch by an engine of its own."""
    oracle, tuning, passed = Oracle(BOUNDS), Tuning(strategy=strategy, round_s=0.001, object_ttl_s=10**6), 0
    for number in range(BATCHES):
        events, sink = batch(seed, number), gs.sinks.Memory()
        clock = partial(float, number)
        with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path), clock=clock) as engine:
            source = [batch(seed, n) for n in range(number + 1)]
            asked = [storm(seed, n) for n in range(number + 1)]
            engine.start(events=source, operations=asked, sink=sink, available_now=True).wait()
        oracle.operate(storm(seed, number), number * 1_000_000)
        want = oracle.deliver(events, number * 1_000_000)
        (table,) = sink.batches.values()
        got = pairs_of([table])
        assert len(got) == len(set(got))
        assert set(got) == want
        assert table.schema.field("event_id").type == table.schema.field("object_id").type == pa.string()
        passed += len(want)
    assert passed > 100


@pytest.mark.parametrize("collide", [False, True])
def test_texts_that_share_a_hash_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collide: bool) -> None:
    """All 64-bit hashes are one of four."""
    if collide:
        real = hashing.text_ids
        for module in ("core.keys.hashing", "flow.aggregates.held_rows"):
            monkeypatch.setattr(f"geoswarm.{module}.text_ids", lambda places, text: real(places, text) % 4)
    oracle, sink = Oracle(BOUNDS), gs.sinks.Memory()
    asked, events = storm(9, 0), [batch(9, n) for n in range(4)]
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path), clock=lambda: 0.0) as engine:
        engine.start(events=events, operations=[asked], sink=sink, available_now=True).wait()
    oracle.operate(asked, 0)
    want = [oracle.deliver(each, 0) for each in events]
    assert [set(pairs_of([sink.batches[n]])) for n in range(4)] == want
    assert sum(map(len, want)) > 50


def test_windows_of_so_many_events_and_deliveries_are_those_of_brute_force(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rects = worlds.rectangles(rng, 40).tolist()
    counting: dict[str, Any] = {"aggregate": "sum(v)", "window": "count(3)"}
    asked = operation_table(
        [registration(i, tuple(rect), user=f"u{i % 3}", **(counting if i % 2 else {})) for i, rect in enumerate(rects)]
    )
    tables = []
    for number in range(4):
        plain = pa.table(worlds.events(rng, 120, first_id=1000 * number))
        times = pa.array(number * 1000 + rng.integers(0, 3, 120)).cast(plain["ts"].type)  # ids decide the order
        plain = plain.set_column(1, "ts", times).append_column("v", pa.array(rng.integers(0, 99, 120)))
        tables.append(plain.set_column(0, "event_id", texts_of(plain["event_id"])))
    answers, late = gs.sinks.Memory(), gs.sinks.Memory()
    tuning = Tuning(aggregates=AggregateSettings(lateness_s=10.0))
    delivery = gs.Stage(gs.operators.Delivery(2, digest_max=500), late, on="matches", tuning=gs.KeyTuning(interval_s=2))
    seconds = iter(range(1000))
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path), clock=lambda: float(next(seconds))) as engine:
        engine.start(
            events=tables, operations=[asked], sink=gs.sinks.Noop(), aggregates=answers, stages=[delivery],
            available_now=True,
        ).wait()  # fmt: skip
    oracle = Oracle(BOUNDS)
    oracle.operate(asked, 0)
    counted = AggregateOracle(oracle, 10_000_000, 60_000_000)
    want = [counted.run(table, 0, oracle.match(table, 0)) for table in tables]
    got = [answers.batches[n].drop_columns(["version"]).to_pylist() for n in sorted(answers.batches)]
    assert [rows_shown(rows) for rows in got] == [rows_shown(rows) for rows in want]
    assert sum(map(len, want)) > 50
    rows = late.table()
    assert rows.schema.field("event_id").type == pa.string()
    known = {i for table in tables for i in table["event_id"].to_pylist()}
    missed: list[Any] = rows["matches"].to_pylist()
    digests = [match["event_id"] for some in missed for match in some or ()]
    nows = [row["event_id"] for row in rows.to_pylist() if row["kind"] == "now"]
    assert set(nows) <= known
    assert set(digests) <= known
    assert len(digests) > 100


def test_numbers_of_texts_are_in_their_order_whoever_has_them() -> None:
    texts: list[list[str | None]] = [["b", None, "é"], ["a", "b"], ["\U0001f600", "日本"]]
    batches = [
        pa.RecordBatch.from_pylist([{"event_text": t, "event_id": 0 if t is None else 1} for t in some], COUNTED)
        for some in texts
    ]
    plain = batches[0].drop_columns([EVENT_TEXT.name])
    found = number_texts([*batches, plain])
    numbers = {
        row.get("event_text"): row["event_id"] for rows in found for row in rows.to_pylist() if row.get("event_text")
    }
    assert sorted(numbers, key=lambda t: numbers[t]) == sorted(numbers)
    assert len(set(numbers.values())) == 5
    assert sorted(row["event_id"] for rows in found for row in rows.to_pylist() if not row.get("event_text"))[:1] == [0]


def test_kept_events_are_found_with_texts_and_with_integers_from_before(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    before = pa.table(worlds.events(rng, 40))
    after = pa.table(worlds.events(rng, 40, first_id=100))
    after = after.set_column(0, "event_id", texts_of(after["event_id"]))
    tuning = Tuning(window=WindowSettings(keep="1 hour", marks_past=True))
    want = [*map(str, before["event_id"].to_pylist()), *after["event_id"].to_pylist()]
    for number, tables in enumerate(([before], [after.slice(0, 0), after])):
        with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path), clock=lambda: 0.0) as engine:
            if number:
                engine.subscribe(1, since="1 hour", geometry=None, rectangle=BOUNDS)
            sink = gs.sinks.Memory()
            engine.start(events=tables, sink=sink, available_now=True).wait()
            found = engine.query(BOUNDS)
            assert engine.nearest(0.0, 0.0, k=3)["event_id"].to_pylist()
    assert sorted(found["event_id"].to_pylist()) == sorted(want)
    given = sink.table()
    past = given.filter(given["past"])["event_id"].to_pylist()
    assert sorted(past) == sorted(map(str, before["event_id"].to_pylist()))


KINDS = ["parquet", "uuid", "json", "csv"]


def write(folder: Path, kind: str, numbers: range) -> list[str]:
    """Events of which each has its own place; returns their ids."""
    folder.mkdir(exist_ok=True)
    made = pa.table(worlds.events(np.random.default_rng(0), len(numbers)))
    ids = [str(uuid_of(n)) for n in numbers]
    made = made.set_column(0, "event_id", pa.array(ids))
    if kind == "uuid":
        made = made.set_column(0, "event_id", pa.array([uuid_of(n).bytes for n in numbers], pa.uuid()))
        made = made.append_column("object_id", made["event_id"])
    if kind in ("parquet", "uuid"):
        pq.write_table(made, folder / "0.parquet")
    elif kind == "csv":
        pacsv.write_csv(made, folder / "0.csv")
    else:
        rows = [row | {"ts": row["ts"].isoformat()} for row in made.to_pylist()]
        rows[3]["event_id"], ids[3] = 17, "17"  # not all of them are texts
        (folder / "0.json").write_text("\n".join(map(json.dumps, rows)))
    return ids


@pytest.mark.parametrize("kind", KINDS)
def test_texts_come_from_files_as_they_are(tmp_path: Path, kind: str) -> None:
    ids = write(tmp_path / "in", kind, range(50))
    given = None if kind in ("parquet", "uuid") else "text"
    source = gs.local.events_from_files(str(tmp_path / "in"), event_id=given)
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, BOUNDS)
        engine.start(events=source, sink=sink, available_now=True).wait()
    found = sink.table()
    assert sorted(found["event_id"].to_pylist()) == sorted(ids)
    if kind == "uuid":
        assert found["object_id"].equals(found["event_id"])


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
@pytest.mark.parametrize("whole", [True, False])
def test_texts_come_from_files_on_spark_as_they_are(
    spark: "SparkSession", tmp_path: Path, kind: str, whole: bool
) -> None:
    ids = write(tmp_path / "in", kind, range(50))
    given = None if kind == "parquet" else "text"
    source = gs.sources.events_from_files(spark, str(tmp_path / "in"), event_id=given)
    found: list[pa.Table] = []
    with gs.Engine(spark, WORLD, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, BOUNDS)
        engine.start(
            events=source if whole else source.select("*"),
            sink=lambda rows, _: found.append(rows.toArrow()),
            available_now=True,
        ).wait()
        assert not len(engine.dead_letters())
    table = pa.concat_tables(found)
    assert sorted(table["event_id"].to_pylist()) == sorted(ids)
    assert pc.count_distinct(table["event_id"]).as_py() == 50


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (pa.array([1.5]), "column event_id of events is double, wanted is an integer, a string or a UUID"),
        (pa.array([b"1"]), "column event_id of events is binary"),
        (pa.array([True]), "column event_id of events is bool"),
        (pa.array([[1]]), "column event_id of events is list"),
    ],
)
def test_an_id_of_another_type_is_refused_before_the_start(tmp_path: Path, column: Any, error: str) -> None:
    table = pa.table({"event_id": column, "ts": pa.array([0], pa.timestamp("us")), "x": [1.0], "y": [1.0]})
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine, pytest.raises(SchemaError, match=error):
        engine.start(events=table, sink=gs.sinks.Noop(), available_now=True)


def test_texts_that_are_integers_in_a_table_are_refused() -> None:
    table = pa.table(worlds.events(np.random.default_rng(0), 3))
    with pytest.raises(SchemaError, match="event_id is said to be text, and the table has it as int64"):
        gs.local.from_tables(table, event_id="text")


# -- the table of docs/running.md, "Ids that are texts"


def play(folder: Path, events: Any, on: str | None = None) -> tuple[list[Any], list[str]]:
    """The ids that match, and the reasons of dead letters."""
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, checkpoint=str(folder)) as engine:
        engine.subscribe(1, BOUNDS, on=on, replace=True)
        engine.start(events=events, sink=sink, available_now=True).wait()
        letters = engine.dead_letters()["reason"].to_pylist()
    return sink.table()["event_id"].to_pylist() if sink.batches else [], letters


@pytest.mark.parametrize(
    ("said", "given", "got", "reasons"),
    [
        ("text", ["A0", "a0"], ["A0", "a0"], []),
        ("text", ["{00000000-0000-0000-0000-00000000000A}"], ["{00000000-0000-0000-0000-00000000000A}"], []),
        ("text", [""], [""], []),
        ("text", [None, "a"], ["a"], ["null"]),
        ("text", [True, [1, 2], {"a": 1}, 7], ["true", "[1,2]", '{"a":1}', "7"], []),
        (None, [7, "7", 1.5, 1 << 63], [7], ["malformed"] * 3),
    ],
)
def test_an_odd_id_in_json_is_what_the_page_says(
    tmp_path: Path, said: str | None, given: list[Any], got: list[Any], reasons: list[str]
) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"event_id": each, "ts": 0, "x": 1.0, "y": 1.0} for each in given]
    (tmp_path / "in" / "0.json").write_text("\n".join(map(json.dumps, rows)))
    source = gs.local.events_from_files(str(tmp_path / "in"), event_id=said)
    found, letters = play(tmp_path / "state", source)
    assert sorted(found, key=str) == sorted(got, key=str)
    assert letters == reasons


def one(**columns: Any) -> pa.Table:
    return pa.table({"event_id": [1], "ts": pa.array([0], pa.timestamp("us")), "x": [1.0], "y": [1.0]} | columns)


def test_an_unsigned_id_beyond_63_bits_ends_the_stream(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"cannot have .*: cast the column, ids beyond 63 bits to strings"):
        play(tmp_path, one(event_id=pa.array([1 << 63], pa.uint64())))


def test_objects_that_were_integers_before_are_refused_while_they_are_held(tmp_path: Path) -> None:
    integers, texts = one(object_id=[7]), one(object_id=["7"])
    assert play(tmp_path, [integers], on="enter") == ([1], [])
    with pytest.raises(StateError, match="transitions has kept rows of other columns"):
        play(tmp_path, [texts, texts], on="enter")
