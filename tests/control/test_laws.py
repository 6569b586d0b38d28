"""What holds for every strategy in `control/balance/`, found by looking: a new one is tested by existing.

The worlds are in `law_worlds.py`. Other laws by discovery: of statistics, indexes and detectors in `test_laws.py` at
the top of the tests, of planners of keys in `control/keyed/test_planners.py`.
"""

import math

import numpy as np
import pytest

from control.law_worlds import Question, World, make
from geoswarm.control.balance.static import Static
from geoswarm.control.estimate import is_worse
from geoswarm.control.registry import strategies
from geoswarm.control.strategy import PlansBatches, Sample, Strategy
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.change import Move
from geoswarm.core.space.plan import Plan
from geoswarm.errors import InputError

NAMES = sorted(strategies())
PER_BATCH = [name for name, kind in sorted(strategies().items()) if isinstance(kind(), PlansBatches)]
ROUNDS = 12


def test_the_strategies_of_this_folder_are_found() -> None:
    assert set(NAMES) >= {
        "distributor",
        "distributor-auto",
        "distributor-data",
        "distributor-static",
        "over-partitioned",
        "per-batch",
        "per-batch-weighed",
        "ps2-adjusted",
        "ps2-frequency",
        "ps2-grid",
        "ps2-hybrid",
        "ps2-hypergraph",
        "ps2-kd-tree",
        "ps2-metric",
        "ps2-r-tree",
        "replicated",
        "static-history",
        "static-uniform",
        "swarm",
        "swarm-measured",
    }


def first_plan(strategy: Strategy, world: World, sample: Sample | None) -> Plan:
    """A strategy that draws its plan from a sample may ask for one, with a sentence that says so. Every plan that can
    be made covers each cell, and each share of a cell's terms, once: all others are a PlanError."""
    if sample is None and not plans_without_sample(strategy, world):
        sample = world.sample()
    plan = strategy.first_plan(world.grid, world.executors, sample)
    assert (plan.epoch, plan.grid) == (0, world.grid)
    # A strategy may make a task of every partition, as `over-partitioned` does: its executors are Spark's tasks then.
    if plan.executors != world.executors:
        assert plan.executors > world.executors
        assert len({p.executor for p in plan.partitions}) == len(plan.partitions)
    return plan


def plans_without_sample(strategy: Strategy, world: World) -> bool:
    try:
        strategy.first_plan(world.grid, world.executors, None)
    except InputError as error:
        if "sample" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(6))
def test_no_strategy_makes_the_load_that_it_was_shown_worse(name: str, seed: int) -> None:
    """With and without words, samples and subscriptions, while crowds move and executors come and go. The measure is
    the strategy's own, by which the coordinator judges it, too: it never has to refuse."""
    world = World(seed)
    strategy = make(strategies()[name], world.rng)
    plan = first_plan(strategy, world, world.sample() if seed % 3 else None)
    questions = 0
    for asked, outcome in world.play(strategy, plan, ROUNDS):
        questions += len(asked)
        assert outcome.entry.outcome in ("kept", "applied"), outcome.entry
        assert outcome.entry.decision != "failed", outcome.entry
        for shown in asked:
            check_answer(strategy, shown)
    assert questions > 0


def check_answer(strategy: Strategy, shown: Question) -> None:
    plan, report, decision = shown
    assert decision.why
    assert not decision.changes or decision.fresh is None, "either changes or a plan that takes over"
    if isinstance(strategy, Static):  # it never changes a plan between batches, so that nothing can become worse
        assert not decision.changes
        assert decision.fresh is None
        return
    before = strategy.estimate(plan, report)
    assert math.isfinite(before)
    assert before >= 0
    proposed = plan.apply(decision.changes)
    if decision.fresh is not None:
        proposed = plan.replace_by(decision.fresh, strategy.name)
    assert not is_worse(strategy.estimate(proposed, report), before)
    assert proposed.executors == plan.executors
    heaped = plan.apply([Move(p.id, 0) for p in plan.partitions])
    assert not is_worse(before, strategy.estimate(heaped, report)), "all work on one executor is not less for any"


@pytest.mark.parametrize("name", PER_BATCH)
@pytest.mark.parametrize("seed", range(6))
def test_a_plan_for_a_batch_has_no_more_on_one_executor_than_the_plan_before_it(name: str, seed: int) -> None:
    """A strategy that draws a plan for every batch is shown the batch: its events by cell, and the queries there."""
    world, strategy = World(seed), strategies()[name]()
    assert isinstance(strategy, PlansBatches)
    plan = strategy.first_plan(world.grid, world.executors, None)
    for _ in range(ROUNDS):
        events = world.events_of_cell(world.points(int(world.rng.integers(0, 400))))
        drawn = strategy.plan_batch(plan, events, np.zeros(world.grid.cells, np.int64))
        assert drawn.epoch == plan.epoch + 1
        assert most_events(drawn, events) <= most_events(plan, events)
        plan = drawn


def most_events(plan: Plan, events_of_cell: Ints) -> int:
    assert not plan.is_spread
    owners = plan.executor_of_slot[plan.slot_of_cell]
    return int(np.bincount(owners, events_of_cell, minlength=plan.executors).max())


@pytest.mark.slow
def test_the_worlds_have_something_of_everything() -> None:
    """A law that was never put to the test would say little."""
    seen: set[str] = set()
    for name in ("swarm", "swarm-measured", "distributor", "ps2-adjusted"):
        for seed in range(15):
            world = World(seed)
            strategy = make(strategies()[name], world.rng)
            seen |= {"no subscriptions"} if not len(world.queries.rects) else set()
            plan = first_plan(strategy, world, None)
            for asked, outcome in world.play(strategy, plan, ROUNDS):
                seen.add(f"{name} {outcome.entry.outcome}")
                seen |= {type(change).__name__ for shown in asked for change in shown.decision.changes}
                for plan, report, decision in asked:
                    seen |= {"fresh plan"} if decision.fresh is not None else set()
                    seen |= {"divided terms"} if plan.siblings else set()
                    seen |= {"sample"} if report.sample is not None else set()
                    seen |= {"no load"} if not report.load.partitions else set()
                    seen |= {"idle executor"} if len({p.executor for p in plan.partitions}) < plan.executors else set()
    assert seen >= {"Move", "Split", "Merge", "Divide", "fresh plan", "divided terms", "sample", "no load"}
    assert seen >= {"no subscriptions", "idle executor"}
    assert seen >= {f"{name} applied" for name in ("swarm", "swarm-measured", "distributor", "ps2-adjusted")}


@pytest.mark.parametrize("name", NAMES)
def test_the_same_world_leads_to_the_same_decisions(name: str) -> None:
    def story() -> list[object]:
        world = World(3)
        strategy = make(strategies()[name], world.rng)
        plan = first_plan(strategy, world, world.sample())
        return [plan, *(outcome for _, outcome in world.play(strategy, plan, ROUNDS))]

    assert story() == story()
