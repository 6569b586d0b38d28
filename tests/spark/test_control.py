"""Plans change while the stream runs, and nobody who reads the matches can tell."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from geoswarm import journal
from geoswarm.config import Contract, Tuning
from geoswarm.control.strategy import Sample
from geoswarm.sim.oracle import Oracle, pairs_of
from geoswarm.space.plan import Plan
from geoswarm.spark import sinks, sources
from geoswarm.spark.engine import Engine
from geoswarm.state.storage import Storage
from worlds import BOUNDS, events, operations, write_files

CONTRACT = Contract(columns=60, rows=60, executors=4)
BATCHES = 8
NEVER_SOON_US = 4_000_000_000_000_000  # so that the clock decides about rounds only


def redrawn_at_random(plan: Plan, rng: np.random.Generator) -> Plan:
    for _ in range(int(rng.integers(1, 6))):
        old = plan.partitions[int(rng.integers(len(plan.partitions)))]
        owners = (int(rng.integers(4)), int(rng.integers(4)))
        if rng.random() < 0.6 and old.row1 > old.row0:
            plan = plan.split(old.id, "row", int(rng.integers(old.row0, old.row1)), owners)
        elif old.col1 > old.col0:
            plan = plan.split(old.id, "column", int(rng.integers(old.col0, old.col1)), owners)
        else:
            plan = plan.move(old.id, owners[0])
    return plan


def world(tmp_path: Path, seed: int) -> tuple[list[pa.Table], list[pa.Table], list[tuple[int, int]]]:
    """Events and operations by batch, half of the events in one corner, and what the oracle makes of them."""
    rng = np.random.default_rng(seed)
    batches, storms, oracle, want = [], [], Oracle(BOUNDS), []
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


def test_a_plan_redrawn_at_random_changes_no_match(spark: SparkSession, tmp_path: Path) -> None:
    _, _, want = world(tmp_path, 21)
    rng, memory, epochs = np.random.default_rng(3), sinks.Memory(), []
    with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state"), clock=lambda: 0.0) as engine:

        def sink(matches: DataFrame, batch_id: int) -> None:
            memory.write(matches, batch_id)
            epochs.append(engine._checkpoint.plan.epoch)
            if rng.random() < 0.7:
                engine._checkpoint.adopt_plan(redrawn_at_random(engine._checkpoint.plan, rng))

        run(spark, tmp_path, engine, sink)
    assert sorted(pairs_of([memory.table()])) == sorted(want)
    assert len(set(epochs)) > 3


@pytest.mark.parametrize("name", ["swarm", "static-history", "over-partitioned", "static-uniform"])
def test_every_strategy_finds_the_same_matches(spark: SparkSession, tmp_path: Path, name: str) -> None:
    batches, _, want = world(tmp_path, 22)
    points = np.stack([np.asarray(batches[0][c]) for c in ("x", "y")], axis=1)
    sample = Sample(points, np.array([[0.0, 0.0, 20.0, 20.0], [-50.0, -10.0, 5.0, 5.0]]))
    sink, clock = sinks.Memory(), iter(range(0, 1_000_000, 16))  # every batch is a round
    checkpoint = str(tmp_path / "state")
    tuning = Tuning(strategy=name, round_s=15.0)
    with Engine(
        spark, CONTRACT, tuning, checkpoint=checkpoint, sample=sample, clock=lambda: float(next(clock))
    ) as engine:
        run(spark, tmp_path, engine, sink)
    assert sorted(pairs_of([sink.table()])) == sorted(want)


def test_swarm_splits_the_corner_where_the_events_fall(spark: SparkSession, tmp_path: Path) -> None:
    world(tmp_path, 23)
    clock = iter(range(0, 1_000_000, 16))  # every batch is a round
    checkpoint = str(tmp_path / "state")
    with Engine(
        spark, CONTRACT, Tuning(strategy="swarm"), checkpoint=checkpoint, clock=lambda: float(next(clock))
    ) as engine:
        run(spark, tmp_path, engine, sinks.Memory())
        status = engine.status()
    rounds = list(journal.read(Storage(checkpoint), "round"))
    assert status["plan_epoch"] > 0
    assert {entry["outcome"] for entry in rounds} <= {"applied", "kept", "refused"}
    applied = [entry for entry in rounds if entry["outcome"] == "applied"]
    assert len(applied) == status["plan_epoch"]
    assert all(entry["estimate_after"] <= entry["estimate_before"] for entry in applied)
    with Engine(spark, CONTRACT, Tuning(strategy="swarm"), checkpoint=checkpoint) as again:
        assert again.status()["plan_epoch"] == status["plan_epoch"]


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
