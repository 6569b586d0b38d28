"""Rows that tasks hand to each other as messages: they arrive as Spark SQL would bring them, without it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
from geoswarm.config import Contract, Tuning
from geoswarm.flow.exchange import PACKED
from geoswarm.flow.stages.task import Body
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.spark import sources
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.task_rows import TaskRows
from worlds import BOUNDS, events, operations, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Batches = Iterator[pa.RecordBatch]
TASKS, EXECUTORS, LARGE_BYTES = 3, 5, 3 << 20
ARRIVED = PACKED.append(pa.field("task", pa.int64(), nullable=False))


def reading() -> Body:
    """Small parcels for every executor, one that no socket takes at once, and a batch without any."""

    def parcels(executors: list[int], payloads: list[bytes]) -> pa.RecordBatch:
        rows = len(executors)
        numbers = (pa.array(executors, pa.int32()), pa.array(range(rows), pa.int32()), pa.array([0] * rows, pa.int8()))
        return pa.record_batch([*numbers, pa.array(payloads, pa.binary())], schema=PACKED)

    def read(number: int, batches: Batches) -> Batches:
        for _ in batches:  # its number, where Spark SQL starts it
            pass
        rng = np.random.default_rng(number)
        yield parcels(list(range(EXECUTORS)), [rng.bytes(int(size)) for size in rng.integers(0, 50, EXECUTORS)])
        yield parcels([], [])
        yield parcels([number, 1, 1], [rng.bytes(LARGE_BYTES), b"", b"x"])

    return read


def noting_task() -> Body:
    def note(number: int, batches: Batches) -> Batches:
        for batch in batches:
            yield batch.append_column(ARRIVED.field("task"), pa.array(np.full(len(batch), number)))

    return note


def test_parcels_arrive_at_the_task_to_which_spark_sql_would_bring_them(spark: "SparkSession") -> None:
    arrived = TaskRows.read(spark, TASKS, reading(), PACKED).exchange(2).map(noting_task(), ARRIVED)
    assert isinstance(arrived, TaskRows)
    got, want = ([str(row) for row in rows.to_arrow().to_pylist()] for rows in (arrived, arrived.by_sql))
    assert len(want) == TASKS * (EXECUTORS + 3)
    assert sorted(got) == sorted(want)
    chosen = TaskRows.read(spark, TASKS, reading(), PACKED).exchange(2, (1, 1, 0, 1, 0)).map(noting_task(), ARRIVED)
    assert isinstance(chosen, TaskRows)
    for rows in (chosen, chosen.by_sql):
        found = rows.to_arrow()
        assert [(1, 1, 0, 1, 0)[executor] for executor in found["executor"].to_pylist()] == found["task"].to_pylist()
    table = arrived.to_arrow()
    assert table.schema == ARRIVED
    assert table["task"].to_pylist() == [executor % 2 for executor in table["executor"].to_pylist()]


def test_several_readers_of_rows_that_are_kept_have_each_task_run_once(spark: "SparkSession", tmp_path: Path) -> None:
    read, runs = reading(), str(tmp_path / "runs")

    def note_run(number: int, batches: Batches) -> Batches:
        with Path(runs).open("a") as file:
            file.write(f"{number}\n")
        return read(number, batches)

    rows = TaskRows.read(spark, TASKS, note_run, PACKED)
    with rows.keep():
        rows.run()
        count = len(rows.add_constant("batch", 7).to_arrow())
        assert len(rows.exchange(2).to_arrow()) == len(rows.to_arrow()) == count > 0
    assert sorted(Path(runs).read_text().split()) == ["0", "1", "2"]
    rows.run()
    assert len(Path(runs).read_text().split()) == 2 * TASKS


def test_an_error_of_a_task_reaches_whoever_reads_its_rows(spark: "SparkSession") -> None:
    def fail(number: int, batches: Batches) -> Batches:
        for _ in batches:
            pass
        raise ValueError("the disk of task 1 is full")

    rows = TaskRows.read(spark, 1, fail, PACKED)
    for read_all in (rows.run, rows.to_arrow, rows.exchange(2).run):
        with pytest.raises(Exception, match="the disk of task 1 is full"):
            read_all()


@pytest.mark.parametrize("writes_files", [True, False])
def test_spark_sql_plans_nothing_where_tasks_read_the_files(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes_files: bool
) -> None:
    rng, oracle = np.random.default_rng(5), Oracle(BOUNDS)
    asked, came = operations(rng, 80, ids=90, now_us=0), pa.table(events(rng, 400))
    oracle.operate(asked, 0)
    want = oracle.match(came, 0)
    write_files(tmp_path / "events", [came])
    write_files(tmp_path / "operations", [asked])

    def refuse(rows: SparkRows) -> None:
        raise AssertionError("a plan of Spark SQL")

    monkeypatch.setattr(SparkRows, "frame", property(refuse))
    sink = gs.sinks.Parquet(str(tmp_path / "out")) if writes_files else gs.sinks.Memory()
    contract = Contract(columns=20, rows=15, executors=EXECUTORS)
    with gs.Engine(spark, contract, Tuning(matches="pairs"), checkpoint=str(tmp_path / "state")) as engine:
        frames = (
            sources.events_from_files(spark, str(tmp_path / "events")),
            sources.operations_from_files(spark, str(tmp_path / "operations")),
        )
        engine.start(events=frames[0], operations=frames[1], sink=sink, available_now=True).wait()
    found = sink.read() if isinstance(sink, gs.sinks.Parquet) else sink.table()
    pairs = list(zip(found["event_id"].to_pylist(), found["sub_id"].to_pylist(), strict=True))
    assert len(pairs) == len(want) > 100
    assert set(pairs) == want
