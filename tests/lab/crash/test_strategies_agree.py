"""Every strategy in `control/balance/` gives the oracle's matches, alone and after any other; a new one by existing.

`control/test_laws.py` has what a strategy may ask for; here is what becomes of the matches.
"""

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.config import Contract
from geoswarm.control.loop import ControlLoop
from geoswarm.control.outcome import RoundEntry
from geoswarm.control.registry import first_plan, strategies
from geoswarm.control.strategy import PlansBatches, RoundReport, Sample, Strategy
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.flow.observe import LoadReport
from geoswarm.lab.crash.scenario import CONTRACT, STEP_S, TUNING, Scenario, compare
from geoswarm.lab.crash.victim import IN_PROCESS, process
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage
from stepped import SteppedEngine
from worlds import BOUNDS, operations, random_sample, rectangles, with_keywords, with_texts
from worlds import events as anywhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = sorted(strategies())
ON_SPARK = ["auto", "auto-places", "per-batch", "ps2-adjusted", "replicated", "static-uniform", "swarm"]
"""One of each kind that the engine can tell apart: a first plan from the first batch, a plan for every batch, divided
terms, shared partitions, no round at all, statistics. All of them take turns below, without Spark."""
FILES, HOT_FILE = 4, 2
PER_BATCH = {name for name, kind in strategies().items() if isinstance(kind(), PlansBatches)}
MOVING = {name for name, kind in strategies().items() if kind.needs_stats or kind.needs_sample}


class Rush(Scenario):
    """A hotspot appears half-way: two of three events fall into a corner. Subscriptions come and go as ever."""

    def events(self, number: int) -> pa.Table:
        table = super().events(number)
        if number < HOT_FILE:
            return table
        drawn = np.random.default_rng((self.seed, number, 2)).random((2, len(table)))
        for side, place, start in (("x", drawn[0], 70.0), ("y", drawn[1], 5.0)):
            old = table[side].to_pylist()
            inside = [v is not None and 0 <= v <= (100.0 if side == "x" else 50.0) for v in old]
            moved = [
                start + 8.0 * place[i] if inside[i] and i % 3 else v for i, v in enumerate(old)
            ]  # malformed ones stay so
            table = table.set_column(table.schema.get_field_index(side), side, pa.array(moved, pa.float64()))
        return table


RUSH = Rush(seed=12, events_per_file=240)


def sample_of(scenario: Scenario) -> Sample:
    """What could be known beforehand: the calm, not the hotspot."""
    rows = [row for row in scenario.events(0).to_pylist() if all(row[c] is not None for c in "xy")]
    points = np.array([(row["x"], row["y"]) for row in rows])
    inside = (points >= 0).all(axis=1) & (points <= (100.0, 50.0)).all(axis=1)
    rects = np.array([[10.0, 10.0, 30.0, 20.0], [60.0, 1.0, 80.0, 40.0]])
    return random_sample(np.random.default_rng(0), points[inside], rects)


def judge(home: Path, batches: int) -> JournalReader:
    verdict = compare(RUSH, home / "checkpoint", home / "output")
    assert verdict.is_equal, verdict
    assert verdict.batches == batches
    assert verdict.pairs > 300
    return JournalReader(Storage(str(home / "checkpoint")))


@pytest.mark.parametrize("name", sorted({*MOVING, *PER_BATCH, "replicated"}))
def test_every_strategy_that_moves_gives_the_oracles_matches(tmp_path: Path, name: str) -> None:
    RUSH.write(tmp_path, range(FILES))
    tuning = TUNING.model_copy(update={"strategy": name, "round_s": STEP_S / 2})
    process(tmp_path, IN_PROCESS, tuning, sample=sample_of(RUSH))
    journal = judge(tmp_path / "run", FILES)
    if name in PER_BATCH:
        assert len({entry.plan_epoch for entry in journal.read(BatchEntry)}) == FILES


def test_each_strategy_goes_on_where_another_was_cut_off(spark: "SparkSession", tmp_path: Path) -> None:
    """One checkpoint through all of them. The batch under way is run again, by the plan that it had."""
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100000")
    home, done = tmp_path / "run", 0
    rng = np.random.default_rng(4)
    order = rng.permutation(ON_SPARK).tolist()
    for name in order:
        RUSH.write(tmp_path, range(done, done + 1))
        done += 1
        process(tmp_path, "local[2]", TUNING.model_copy(update={"strategy": name}), sample=sample_of(RUSH))
        for file in (home / "checkpoint" / "spark" / "commits").glob(f"*{done - 1}*"):  # with its checksum
            if file.name.strip(".").split(".")[0] == str(done - 1):
                file.unlink()
        if done % 2:
            shutil.rmtree(home / "output" / f"batch={done - 1}")  # the sink was not reached, either
    process(tmp_path, "local[2]", TUNING, sample=sample_of(RUSH))
    drawn = {entry.strategy for entry in judge(home, done).read(RoundEntry)}
    assert drawn >= set(order[1:]), "each took over"


# --- the same without Spark, for longer

BATCHES = 14
WORLD = Contract(columns=30, rows=20, executors=4)


def crowd(rng: np.random.Generator, b: int) -> pa.Table:
    """Fewer get through from batch to batch, which is what makes SWARM act."""
    n = 200 - 8 * b
    batch = with_texts(rng, anywhere(rng, n, first_id=1000 * b))
    if b >= 4:  # a corner becomes hot
        hot = np.arange(n) % 3 > 0
        for side in ("x", "y"):
            values = np.asarray(batch[side])
            column = pa.array(np.where(hot, 20 + values / 20, values))
            batch = batch.set_column(batch.schema.get_field_index(side), side, column)
    return batch


class Step(NamedTuple):
    batch: pa.Table
    storm: pa.Table
    want: list[Pair]


@pytest.fixture(scope="module")
def hotspot() -> tuple[Sample, list[Step]]:
    """The same for every strategy: what is known beforehand, and each batch with the oracle's matches."""
    rng, oracle, steps = np.random.default_rng(31), Oracle(BOUNDS), list[Step]()
    points = np.stack([np.asarray(crowd(rng, 0)[side]) for side in ("x", "y")], axis=1)
    sample = random_sample(rng, points, rectangles(rng, 30))
    for b in range(BATCHES):
        batch, storm = crowd(rng, b), with_keywords(rng, operations(rng, 60, ids=90, now_us=10 * b), share=0.5)
        oracle.operate(storm, 10 * b)
        steps.append(Step(batch, storm, sorted(oracle.match(batch, 10 * b))))
    return sample, steps


def record_questions(strategy: Strategy) -> list[tuple[Plan, RoundReport]]:
    """Plan and report of every call of `rebalance`; the list grows with each call."""
    asked: list[tuple[Plan, RoundReport]] = []
    decide = strategy.rebalance

    def rebalance(plan: Plan, report: RoundReport) -> Any:
        asked.append((plan, report))
        estimate = strategy.estimate(plan, report) if strategy.needs_stats else 0.0
        assert math.isfinite(estimate)
        assert estimate >= 0
        return decide(plan, report)

    strategy.rebalance = rebalance  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_follows_a_hotspot_without_losing_a_match(
    tmp_path: Path, hotspot: tuple[Sample, list[Step]], name: str
) -> None:
    (sample, steps), strategy = hotspot, strategies()[name]()
    engine = SteppedEngine(tmp_path, WORLD, first_plan=lambda grid, n: first_plan(name, sample, grid, n))
    held, asked = engine.checkpoint, record_questions(strategy)
    loop = ControlLoop(strategy, held.plan, 1.0, held)
    epochs, outcomes = set(), set()
    for b, (batch, storm, want) in enumerate(steps):

        def replan(batch: pa.Table = batch, b: int = b) -> Plan:
            cells = held.grid.locate(*(np.asarray(batch[side]) for side in ("x", "y")))
            plan = loop.plan_batch(b, np.bincount(cells, minlength=held.grid.cells)).plan
            assert plan is not None
            return plan

        through = engine.batch(b, batch, storm, 10 * b, replan if loop.plans_batches else None)
        assert sorted(through.pairs) == want
        epochs.add(through.plan.epoch)
        churn = held.take_churn()
        report = through.report
        if not loop.needs_stats:  # then they are not counted
            report = LoadReport(report.partitions, report.executors, said=report.said)
        outcome = loop.add_batch(churn.came, churn.went, report, float(2 * b))
        if outcome is not None:
            outcomes.add(outcome.entry.outcome)
            if outcome.plan is not None:
                assert outcome.plan.epoch == held.plan.epoch + 1
                held.adopt_plan(outcome.plan)
    engine.close()
    assert len(asked) == BATCHES - 1
    assert outcomes <= {"applied", "kept", "refused"}
    moves = BATCHES - 1 if name in PER_BATCH else 1 if name in MOVING else 0
    assert len(epochs) > moves


@pytest.mark.parametrize("name", NAMES)
def test_every_first_plan_covers_a_map_of_any_shape(name: str) -> None:
    """Down to one cell for each executor."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows, columns = rng.integers(1, 7, 2).tolist()
        executors = int(rng.integers(1, rows * columns + 1)) if seed % 3 else rows * columns
        grid = Grid(*CONTRACT.bounds, columns=columns, rows=rows)
        sample = random_sample(rng, rng.uniform(0, 50, (40, 2)), np.array([[1.0, 1.0, 40.0, 30.0]]))
        strategy = strategies()[name]()
        plan = first_plan(name, sample, grid, executors)
        assert Plan.from_json(plan.to_json()) == plan
        assert plan.drawn_by == name
        if isinstance(strategy, PlansBatches):
            weights = rng.integers(0, 5, grid.cells) * (rng.random() < 0.8)
            after = strategy.plan_batch(plan, weights, rng.integers(0, 9, grid.cells))
            assert (after.epoch, after.executors) == (1, executors)
            assert len({p.executor for p in after.partitions}) == executors, "every executor gets something"
