"""Plans change while the stream runs, and the matches stay the same."""

import shutil
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from geoswarm.config import Contract, Tuning
from geoswarm.control.outcome import RoundEntry
from geoswarm.flow.observe import TaskName
from geoswarm.run import sinks
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair, pairs_of
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.rows import ClusterRows
from geoswarm.run.spark.task_times import jvm_cpu_us
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage
from worlds import BOUNDS, events, operations, write_files

CONTRACT = Contract(columns=60, rows=60, executors=4)
BATCHES = 8
NEVER_SOON_US = 4_000_000_000_000_000  # so that the clock decides about rounds only


def world(tmp_path: Path, seed: int) -> tuple[list[pa.Table], list[pa.Table], list[tuple[int, int]]]:
    """Events and operations by batch, half of the events in one corner, and what the oracle makes of them."""
    rng = np.random.default_rng(seed)
    batches, storms, oracle, want = [], [], Oracle(BOUNDS), list[Pair]()
    for b in range(BATCHES):
        batch, storm = pa.table(events(rng, 200, first_id=1000 * b)), operations(rng, 60, ids=80, now_us=NEVER_SOON_US)
        corner = np.where(np.arange(200) % 2 == 0, np.abs(np.asarray(batch["x"])) / 6, np.asarray(batch["x"]))
        batches.append(batch.set_column(2, "x", pa.array(corner)))
        storms.append(storm)
        oracle.operate(storm, 0)
        want += oracle.match(batches[-1], 0)
    write_files(tmp_path / "events", batches)
    write_files(tmp_path / "operations", storms)
    return batches, storms, want


def run(spark: SparkSession, tmp_path: Path, engine: Engine, sink: sinks.SinkLike) -> None:
    stream = sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1)
    changes = sources.operations_from_files(spark, str(tmp_path / "operations"), files_per_batch=1)
    engine.start(events=stream, operations=changes, sink=sink, available_now=True).wait()


def test_swarm_splits_the_corner_where_the_events_fall(spark: SparkSession, tmp_path: Path) -> None:
    world(tmp_path, 23)
    clock = iter(range(0, 1_000_000, 16))  # every batch is a round
    checkpoint = str(tmp_path / "state")
    with Engine(
        spark, CONTRACT, Tuning(strategy="swarm"), checkpoint=checkpoint, clock=lambda: float(next(clock))
    ) as engine:
        run(spark, tmp_path, engine, sinks.Memory())
        status = engine.status()
    rounds = list(JournalReader(Storage(checkpoint)).read(RoundEntry))
    assert status["plan_epoch"] > 0
    assert {entry.outcome for entry in rounds} <= {"applied", "kept", "refused"}
    applied = [entry for entry in rounds if entry.outcome == "applied"]
    assert len(applied) == status["plan_epoch"]
    assert all((entry.estimate_after or 0.0) <= (entry.estimate_before or 0.0) for entry in applied)
    with Engine(spark, CONTRACT, Tuning(strategy="swarm"), checkpoint=checkpoint) as again:
        assert again.status()["plan_epoch"] == status["plan_epoch"]


def test_a_task_is_charged_what_its_worker_and_spark_spent(spark: SparkSession, tmp_path: Path) -> None:
    world(tmp_path, 3)
    checkpoint = str(tmp_path / "state")
    told = list[tuple[dict[TaskName, int], int]]()
    spent = ClusterRows.runner_cpu_us

    def ask(rows: ClusterRows, tasks: Collection[TaskName]) -> dict[TaskName, int]:
        told.append((spent(rows, tasks), len(tasks)))
        return told[-1][0]

    with pytest.MonkeyPatch.context() as patched, Engine(spark, CONTRACT, checkpoint=checkpoint) as engine:
        patched.setattr(ClusterRows, "runner_cpu_us", ask)
        run(spark, tmp_path, engine, sinks.Memory())
    assert len(told) == BATCHES
    for found, asked in told:
        assert len(found) == asked == 2, "Spark knows each of them: as many as run at once, for four executors"
        assert all(0 < cpu_us < 60_000_000 for cpu_us in found.values())
    for entry, (found, _) in zip(JournalReader(Storage(checkpoint)).read(BatchEntry), told, strict=True):
        assert sum(load.cpu_us for load in entry.executors.values()) > sum(found.values()) / len(found)
        assert entry.rates is not None
    assert jvm_cpu_us(spark, [TaskName(10**6, 1)]) == {}, "a stage that Spark does not know"


def test_a_batch_replayed_after_its_plan_was_replaced_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    _, _, want = world(tmp_path, 23)
    clock, checkpoint = iter(range(0, 1_000_000, 16)), tmp_path / "state"
    sink = sinks.Parquet(str(tmp_path / "out"))
    for _ in range(
        3
    ):  # what a kill between a new plan and Spark's commit leaves: the batch comes again, the plan is there
        with Engine(
            spark, CONTRACT, Tuning(strategy="swarm"), checkpoint=str(checkpoint), clock=lambda: float(next(clock))
        ) as engine:
            run(spark, tmp_path, engine, sink)
            assert engine.status()["plan_epoch"] > 0
            assert engine.status()["events"] == 200 * BATCHES
        newest = max((checkpoint / "spark" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    assert sorted(pairs_of([sink.read()])) == sorted(want)


def test_a_checkpoint_made_again_at_the_same_place_starts_from_nothing(spark: SparkSession, tmp_path: Path) -> None:
    world(tmp_path, 25)
    for sub_id in (1, 2):  # the same workers serve both
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
        sink = sinks.Memory()
        with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
            engine.subscribe(sub_id, BOUNDS)
            stream = sources.events_from_files(spark, str(tmp_path / "events"))
            engine.start(events=stream, sink=sink, available_now=True).wait()
        assert {sub for _, sub in pairs_of([sink.table()])} == {sub_id}
