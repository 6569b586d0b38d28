"""Executors join and leave while the stream runs: every match still goes out once."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from geoswarm.config import Contract, Tuning
from geoswarm.control.outcome import RoundEntry
from geoswarm.errors import SettingsError
from geoswarm.run import sinks
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair, pairs_of
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.rows import SparkRows
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from worlds import BOUNDS, operations, wandering_events, with_on, write_files

BATCHES = 9


@pytest.mark.parametrize("strategy", ["swarm-measured", "per-batch"])
def test_executors_come_and_go_while_the_stream_runs(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    rng, oracle, want = np.random.default_rng(7), Oracle(BOUNDS), list[Pair]()
    batches = [
        wandering_events(rng, 200, near=60.0, objects=20, first_id=1000 * b, at_us=10**7 * b) for b in range(BATCHES)
    ]
    storms = [with_on(rng, operations(rng, 50, ids=60, near=60.0, lasts_us=10**12)) for _ in range(BATCHES)]
    for batch, storm in zip(batches, storms, strict=True):
        oracle.operate(storm, 0)
        want += oracle.deliver(batch, 0)
    write_files(tmp_path / "events", batches)
    write_files(tmp_path / "operations", storms)
    memory, moments = sinks.Memory(), iter(range(10**6))
    tuning, contract = Tuning(strategy=strategy, round_s=1.0), Contract(columns=30, rows=30, executors=3)
    with Engine(
        spark, contract, tuning, checkpoint=str(tmp_path / "state"), clock=lambda: next(moments) / 1e6
    ) as engine:

        def sink(found: DataFrame, batch_id: int) -> None:
            memory.write(SparkRows(found), batch_id)
            if batch_id in (1, 5):
                engine.scale(6 if batch_id == 1 else 2)

        run = engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
            operations=sources.operations_from_files(spark, str(tmp_path / "operations"), files_per_batch=1),
            sink=sink,
            available_now=True,
        )
        with pytest.raises(SettingsError, match="use 1 to 900"):
            engine.scale(0)
        run.wait()
        reader = JournalReader(engine._checkpoint.storage)
        batches, rounds = list(reader.read(BatchEntry)), list(reader.read(RoundEntry))
        assert engine._checkpoint.plan.executors == 2
    assert sorted(pairs_of([memory.table()])) == sorted(want)
    told = [entry.decision for entry in rounds]
    assert [text for text in told if "scaled" in text] == [
        "scaled from 3 to 6 executors",
        "scaled from 6 to 2 executors",
    ]
    used = [set(entry.executors) for entry in batches]
    assert all(executors <= {0, 1, 2} for executors in used[:2])
    assert all(executors <= {0, 1} for executors in used[6:])
    if strategy != "swarm-measured":  # which takes its rounds to give the new ones work
        assert max(max(executors) for executors in used[2:6]) > 2


def test_a_new_checkpoint_has_an_executor_for_each_task_that_runs_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with Engine(spark, checkpoint=str(tmp_path)) as engine:
        assert engine.executors == max(2, spark.sparkContext.defaultParallelism)
        assert engine._cluster_slots() == spark.sparkContext.defaultParallelism


def test_a_checkpoint_keeps_the_executors_it_was_scaled_to(spark: SparkSession, tmp_path: Path) -> None:
    write_files(
        tmp_path / "events", [wandering_events(np.random.default_rng(b), 20, near=9.0, objects=3) for b in range(2)]
    )
    contract = Contract(columns=30, rows=30, executors=3)
    tuning = Tuning(strategy="static-uniform")
    for expected in (5, 5):
        with Engine(spark, contract, tuning, checkpoint=str(tmp_path / "state")) as engine:

            def sink(found: DataFrame, batch_id: int, engine: Engine = engine) -> None:
                assert isinstance(found.toArrow(), pa.Table)
                engine.scale(5)

            engine.start(
                events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
                sink=sink,
                available_now=True,
            ).wait()
            assert engine._checkpoint.plan.executors == expected
