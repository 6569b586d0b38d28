"""The engine on a real Spark: what comes in through any source goes out once through any sink, or is a dead letter."""

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import InputError, SchemaError, SettingsError, StateError, StreamError
from geoswarm.run import sinks
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.run.spark import query, sources
from geoswarm.run.spark.engine import Engine
from worlds import BOUNDS, events, operations, write_files

CONTRACT = Contract(columns=100, rows=100, executors=4)


@pytest.fixture
def make_engine(spark: SparkSession, tmp_path: Path) -> Any:
    opened: list[Engine] = []

    def make(tuning: Tuning | None = None, clock: Callable[[], float] = lambda: 0.0) -> Engine:
        opened.append(Engine(spark, CONTRACT, tuning, checkpoint=str(tmp_path / "state"), clock=clock))
        return opened[-1]

    yield make
    for engine in opened:
        engine.close()


def parquet_stream(spark: SparkSession, folder: Path, tables: list[pa.Table]) -> DataFrame:
    write_files(folder, tables)
    return sources.events_from_files(spark, str(folder), files_per_batch=1)


def text_file(folder: Path, name: str, *lines: str) -> str:
    folder.mkdir()
    (folder / name).write_text("\n".join(lines) + "\n")
    return str(folder)


@pytest.mark.parametrize(("exchange", "form"), [("packed", "arrays"), ("rows", "pairs")])
def test_operations_take_effect_before_the_events_of_their_batch(
    spark: SparkSession, make_engine: Any, tmp_path: Path, exchange: str, form: str
) -> None:
    rng = np.random.default_rng(5)
    batches = [pa.table(events(rng, 300, first_id=1000 * b)) for b in range(3)]
    batches = [t.append_column("text", pa.array([f"n{i}" for i in t["event_id"].to_pylist()])) for t in batches]
    storms = [operations(rng, 80, ids=60) for _ in batches]
    engine = make_engine(Tuning.model_validate({"exchange": exchange, "matches": form}))
    stream = parquet_stream(spark, tmp_path / "events", batches)
    write_files(tmp_path / "operations", storms)
    changes = sources.operations_from_files(spark, str(tmp_path / "operations"), files_per_batch=1)
    sink = sinks.Memory()
    engine.start(events=stream, operations=changes, sink=sink, available_now=True).wait()
    oracle, want = Oracle(BOUNDS), []
    for storm, batch in zip(storms, batches, strict=True):
        oracle.operate(storm, 0)
        want += sorted(oracle.match(batch, 0))
    assert sorted(pairs_of([sink.table()])) == sorted(want)
    assert all(row["text"] == f"n{row['event_id']}" for row in sink.table().to_pylist())
    assert engine.status()["events"] == 900


def test_subscribing_and_cancelling_by_call_holds_from_the_next_batch_on(
    spark: SparkSession, make_engine: Any, tmp_path: Path
) -> None:
    engine, sink = make_engine(), sinks.Memory()
    engine.subscribe(1, BOUNDS, user="ana")
    engine.subscribe(2, (0.0, 0.0, 180.0, 90.0), expires=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    batch = pa.table(events(np.random.default_rng(0), 10))
    stream = parquet_stream(spark, tmp_path / "events", [batch])
    run = engine.start(events=stream, sink=sink)
    run.drain()
    engine.cancel(1)
    engine.subscribe(3, BOUNDS)
    pq.write_table(pa.table(events(np.random.default_rng(1), 10, first_id=100)), tmp_path / "events" / "later.parquet")
    run.drain()
    run.stop()
    assert {sub for _, sub in pairs_of([sink.batches[0]])} == {1, 2}
    assert {sub for _, sub in pairs_of([sink.batches[1]])} == {2, 3}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda e: e.subscribe(1, (5.0, 0.0, 1.0, 1.0)), "xmin 5.0 > xmax 1.0: swap them"),
        (lambda e: e.subscribe(1, (0.0, 0.0, 0.0, 1.0)), "widen"),
        (lambda e: e.subscribe("seven", (0.0, 0.0, 1.0, 1.0)), "ids are integers in this checkpoint"),
        (lambda e: e.subscribe(1, ("a", 0.0, 1.0, 1.0)), "wrong type"),
        (lambda e: e.subscribe(2**70, (0.0, 0.0, 1.0, 1.0)), "wrong type"),
    ],
)
def test_a_subscription_that_could_never_match_is_refused_at_once(make_engine: Any, call: Any, says: str) -> None:
    engine = make_engine()
    with pytest.raises(InputError, match=says):
        call(engine)
    assert engine.status()["subscriptions"] == 0


def test_json_lines_that_cannot_be_parsed_are_dead_letters_with_their_text(
    spark: SparkSession, make_engine: Any, tmp_path: Path
) -> None:
    good = {"event_id": 1, "ts": "2026-01-01T00:00:00Z", "x": 1.0, "y": 2.0, "speed": 3.5}
    lines = [
        json.dumps(good),
        '{"event_id": 2, "ts": "2026-01-01',
        json.dumps(good | {"event_id": "abc"}),
        json.dumps(good | {"event_id": 3, "x": None}),
        json.dumps(good | {"event_id": 4, "x": 181}),
        json.dumps(good | {"event_id": 5, "unknown": "column"}),
    ]
    engine, sink = make_engine(), sinks.Memory()
    engine.subscribe(9, BOUNDS)
    stream = sources.events_from_files(spark, text_file(tmp_path / "in", "a.jsonl", *lines), extra="speed double")
    engine.start(events=stream, sink=sink, available_now=True).wait()
    assert sorted(pairs_of([sink.table()])) == [(1, 9), (5, 9)]
    assert sink.table()["speed"].to_pylist() == [3.5, 3.5]
    letters = engine.dead_letters().to_pylist()
    assert {letter["reason"] for letter in letters} == {"malformed", "null", "out-of-bounds"}
    assert '{"event_id": 2, "ts": "2026-01-01' in {letter["row"] for letter in letters}
    status = engine.status()
    assert (status["events"], status["matched"], status["dead"]) == (2 + len(letters), 2, len(letters))
    assert len(letters) == 4


def test_csv_with_a_header_is_read(spark: SparkSession, make_engine: Any, tmp_path: Path) -> None:
    lines = ["y,event_id,ts,x,kind", "2.5,1,2026-01-01T00:00:00Z,100.5,car", "2.5,2,2026-01-01T00:00:00Z,east,car"]
    engine, sink = make_engine(), sinks.Memory()
    engine.subscribe(9, BOUNDS)
    stream = sources.events_from_files(spark, text_file(tmp_path / "in", "a.csv", *lines))
    engine.start(events=stream, sink=sink, available_now=True).wait()
    assert pairs_of([sink.table()]) == [(1, 9)]
    assert sink.table().select(["x", "y", "kind"]).to_pylist() == [{"x": 100.5, "y": 2.5, "kind": "car"}]
    assert [letter["reason"] for letter in engine.dead_letters().to_pylist()] == ["malformed"]


def test_json_operations_that_cannot_be_parsed_do_not_stop_the_others(
    spark: SparkSession, make_engine: Any, tmp_path: Path
) -> None:
    side = {"xmin": -1.0, "ymin": -1.0, "xmax": 1.0, "ymax": 1.0}
    lines = [json.dumps({"op": "register", "sub_id": 1} | side), "not json", json.dumps({"op": "cancel", "sub_id": 77})]
    changes = sources.operations_from_files(spark, text_file(tmp_path / "ops", "a.json", *lines))
    stream = parquet_stream(spark, tmp_path / "events", [pa.table(events(np.random.default_rng(0), 5))])
    engine = make_engine()
    engine.start(events=stream, operations=changes, sink=sinks.Memory(), available_now=True).wait()
    assert engine.status()["subscriptions"] == 1
    assert sorted(letter["reason"] for letter in engine.dead_letters().to_pylist()) == ["malformed", "unknown-id"]


def test_a_sink_that_looks_at_a_few_rows_only_loses_no_dead_letter(
    spark: SparkSession, make_engine: Any, tmp_path: Path
) -> None:
    batch = pa.table(events(np.random.default_rng(3), 400))
    spoiled = batch.set_column(
        2, "x", pa.array([None if i % 10 == 0 else x for i, x in enumerate(batch["x"].to_pylist())])
    )
    engine, seen = make_engine(), []
    engine.subscribe(1, BOUNDS)
    stream = parquet_stream(spark, tmp_path / "events", [spoiled])
    engine.start(
        events=stream, sink=lambda frame, batch_id: seen.append(frame.limit(3).collect()), available_now=True
    ).wait()
    assert len(seen[0]) == 3
    status = engine.status()
    assert (status["events"], status["dead"], status["matched"]) == (400, 40, 360)
    assert len(engine.dead_letters()) == 40


def test_parquet_holds_each_batch_once(spark: SparkSession, make_engine: Any, tmp_path: Path) -> None:
    engine, sink = make_engine(), sinks.Parquet(str(tmp_path / "out"))
    engine.subscribe(1, BOUNDS)
    tables = [pa.table(events(np.random.default_rng(b), 50, first_id=100 * b)) for b in range(2)]
    engine.start(events=parquet_stream(spark, tmp_path / "events", tables), sink=sink, available_now=True).wait()
    written = sink.read()
    assert sorted(pairs_of([written])) == [(100 * b + i, 1) for b in range(2) for i in range(50)]
    assert set(written["batch"].to_pylist()) == {0, 1}
    assert written.schema.names == ["event_id", "ts", "x", "y", "sub_ids", "version", "batch"]


def test_bulk_loading_counts_what_it_takes_and_what_it_refuses(make_engine: Any, tmp_path: Path) -> None:
    rows = {
        "sub_id": [1, 2, 3, 3],
        "user": ["a"] * 4,
        "xmin": [0.0, 5.0, 0.0, 0.0],
        "ymin": [0.0] * 4,
        "xmax": [1.0] * 4,
        "ymax": [1.0] * 4,
    }
    pq.write_table(pa.table(rows), tmp_path / "subs.parquet")
    engine, told = make_engine(), []
    loaded = engine.load(str(tmp_path / "subs.parquet"), lambda done, total: told.append((done, total)))
    assert (loaded.registered, loaded.dead) == (2, 2)
    assert told == [(4, 4)]
    assert sorted(letter["reason"] for letter in engine.dead_letters().to_pylist()) == ["duplicate", "inverted"]
    pq.write_table(pa.table({"sub_id": [1]}), tmp_path / "short.parquet")
    with pytest.raises(SchemaError, match="has no column xmax, xmin, ymax, ymin"):
        engine.load(str(tmp_path / "short.parquet"))


@pytest.mark.parametrize(
    ("select", "says"),
    [
        (["event_id", "ts", "x"], "events have no column y"),
        (["cast(event_id as double) event_id", "ts", "x", "y"], "event_id of events is double, wanted is"),
        (["event_id", "unix_micros(ts) ts", "x", "y"], "ts_unit"),
        (["event_id", "ts", "x", "cast(y as string) y"], "y of events is string"),
        (["event_id", "ts", "x", "y", "1 as version"], "which matches use themselves"),
    ],
)
def test_a_wrong_schema_is_an_error_before_the_stream_starts(
    spark: SparkSession, make_engine: Any, tmp_path: Path, select: list[str], says: str
) -> None:
    stream = parquet_stream(spark, tmp_path / "events", [pa.table(events(np.random.default_rng(0), 5))])
    with pytest.raises(SchemaError, match=says):
        make_engine().start(events=stream.selectExpr(*select), sink=sinks.Memory())


def test_an_unknown_column_of_operations_is_an_error_with_a_hint(
    spark: SparkSession, make_engine: Any, tmp_path: Path
) -> None:
    stream = parquet_stream(spark, tmp_path / "events", [pa.table(events(np.random.default_rng(0), 5))])
    changes = stream.selectExpr("'cancel' as op", "event_id as sub_id", "x as x_min")
    with pytest.raises(SchemaError, match="x_min, did you mean xmin"):
        make_engine().start(events=stream, operations=changes, sink=sinks.Memory())


def test_a_table_is_no_stream(spark: SparkSession, make_engine: Any) -> None:
    with pytest.raises(SettingsError, match="events is no stream"):
        make_engine().start(events=spark.range(3), sink=sinks.Memory())


def test_one_engine_runs_one_stream(spark: SparkSession, make_engine: Any, tmp_path: Path) -> None:
    engine = make_engine()
    stream = parquet_stream(spark, tmp_path / "events", [pa.table(events(np.random.default_rng(0), 5))])
    run = engine.start(events=stream, sink=sinks.Memory())
    with pytest.raises(StreamError, match="running already"):
        engine.start(events=stream, sink=sinks.Memory())
    run.stop()


def test_a_batch_that_waits_for_ever_does_not_make_stop_wait_for_ever(
    spark: SparkSession, make_engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.conf.get(query.STOP_TIMEOUT) == "120s", "Spark alone would wait without a limit"
    begun, may_end = threading.Event(), threading.Event()

    def stuck(frame: DataFrame, number: int) -> None:
        begun.set()
        may_end.wait()

    stream = parquet_stream(spark, tmp_path / "events", [pa.table(events(np.random.default_rng(0), 5))])
    run = make_engine().start(events=stream, sink=stuck)
    assert begun.wait(120)
    monkeypatch.setattr(query, "STOP_S_MAX", 0.1)
    spark.conf.set(query.STOP_TIMEOUT, "1s")
    try:
        with pytest.raises(StreamError, match=r"goes on though it was cancelled .* sink or its source waits"):
            run.stop()
    finally:
        spark.conf.set(query.STOP_TIMEOUT, "120s")
        may_end.set()
    run.stop()
    assert not run.is_active


def test_an_empty_batch_passes(spark: SparkSession, make_engine: Any, tmp_path: Path) -> None:
    engine, sink = make_engine(), sinks.Memory()
    empty = pa.table(events(np.random.default_rng(0), 0))
    full = pa.table(events(np.random.default_rng(0), 5))
    engine.start(events=parquet_stream(spark, tmp_path / "e", [empty, full]), sink=sink, available_now=True).wait()
    assert engine.status()["events"] == 5
    assert engine.status()["matches"] == 0


def test_operations_of_several_files_in_one_batch_take_effect_in_the_order_of_the_files(
    spark: SparkSession, make_engine: Any, tmp_path: Path
) -> None:
    side = {"xmin": -1.0, "ymin": -1.0, "xmax": 1.0, "ymax": 1.0}
    registers = [{"op": "register", "sub_id": i} | side for i in range(5)]
    cancels = [{"op": "cancel", "sub_id": i} for i in range(4)] + [
        {"op": "register", "sub_id": 100 + i} | side for i in range(500)
    ]
    again = [{"op": "register", "sub_id": 0} | side]
    write_files(
        tmp_path / "operations", [pa.Table.from_pylist(rows, schema=OPERATION) for rows in (registers, cancels, again)]
    )
    stream = parquet_stream(spark, tmp_path / "events", [pa.table(events(np.random.default_rng(0), 5))])
    engine = make_engine()
    changes = sources.operations_from_files(spark, str(tmp_path / "operations"))  # the largest would be read first
    engine.start(events=stream, operations=changes, sink=sinks.Memory(), available_now=True).wait()
    assert engine.status()["subscriptions"] == 502
    assert engine.status()["operations_refused"] == 0


def test_a_folder_of_matches_belongs_to_one_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    stream = parquet_stream(spark, tmp_path / "events", [pa.table(events(np.random.default_rng(0), 5))])
    for name in ("one", "one"):
        with Engine(spark, CONTRACT, checkpoint=str(tmp_path / name)) as engine:
            engine.start(events=stream, sink=sinks.Parquet(str(tmp_path / "out")), available_now=True).wait()
    with (
        Engine(spark, CONTRACT, checkpoint=str(tmp_path / "two")) as engine,
        pytest.raises(SettingsError, match="holds the matches of another checkpoint"),
    ):
        engine.start(events=stream, sink=sinks.Parquet(str(tmp_path / "out")), available_now=True)


def test_a_batch_that_spark_fills_anew_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    tables = [pa.table(events(np.random.default_rng(b), 5, first_id=10 * b)) for b in range(3)]
    write_files(tmp_path / "events", tables[:2])
    stream = sources.events_from_files(spark, str(tmp_path / "events"))
    sink = sinks.Parquet(str(tmp_path / "out"))
    with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        engine.start(events=stream, sink=sink, available_now=True).wait()
    for log in ("offsets", "commits", "sources/0"):
        for file in (tmp_path / "state" / "spark" / log).glob("*0*"):
            file.unlink()
    write_files(tmp_path / "events", tables)
    with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        run = engine.start(events=stream, sink=sink, available_now=True)
        with pytest.raises(StateError, match="batch 0 has been run with other events"):
            run.wait()
