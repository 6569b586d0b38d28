"""The Dynamic Distributor: when it redistributes, what it moves, and the one that needs no parameters."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.control.balance.distributor import (
    Distributor,
    DistributorAuto,
    DistributorData,
    DistributorStatic,
    mldc,
    redistribute,
)
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.loop import ControlLoop
from geoswarm.control.registry import strategies, strategy
from geoswarm.control.strategy import RoundReport
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.flow.observe import Load, LoadReport

GRID = Grid(0.0, 0.0, 1.0, 1.0, 64, 64)


def report(plan: Plan, number: int, cpu: dict[int, int], events: int = 1000) -> RoundReport:
    """`cpu` by place in the plan; the others took 10."""
    load = LoadReport()
    for i, p in enumerate(plan.partitions):
        load.add(p.id, p.executor, Load(events, 0, 0, cpu.get(i, 10)))
    return RoundReport(number, 10.0 * number, load, {}, None)


def test_the_paper_s_figure_2_is_as_balanced_with_no_more_moves() -> None:
    # 60, 20 and 20 percent on three workers: partitions of 40 and 20; 20; 10 and 10. The paper ends at 40, 30, 30.
    loads, owners = np.array([40.0, 20.0, 20.0, 10.0, 10.0]), np.array([0, 0, 1, 2, 2])
    assert mldc(owners, loads, 3) == pytest.approx(0.8)
    after, moves = redistribute(owners, loads, 3)
    assert mldc(after, loads, 3) == pytest.approx(0.2)
    assert moves <= 2


@given(st.integers(0, 10_000), st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_a_redistribution_never_makes_the_costliest_costlier(seed: int, executors: int) -> None:
    rng = np.random.default_rng(seed)
    loads, owners = rng.pareto(1.5, 30), rng.integers(0, executors, 30)
    after, moves = redistribute(owners, loads, executors)
    assert mldc(after, loads, executors) <= mldc(owners, loads, executors) + 1e-12
    assert moves == np.count_nonzero(after != owners)
    ideal = max(loads.max(), loads.sum() / executors)
    assert np.bincount(after, loads, executors).max() <= 4 / 3 * ideal + loads.max() / 3 + 1e-9


def test_all_of_few_partitions_are_found_as_well_as_by_trying_everything() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        loads, owners = rng.integers(1, 50, 7).astype(float), np.zeros(7, np.int64)
        after, _ = redistribute(owners, loads, 3)
        best = min(np.bincount(np.array(o), loads, 3).max() for o in product(range(3), repeat=7))
        assert np.bincount(after, loads, 3).max() <= 1.25 * best


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"threshold": 99.0}, "MLDC is at most"),
        ({"events_min": 10**9}, "fewer than"),
        ({"gain_min": 99.0}, "it would improve by"),
        ({}, ""),
    ],
)
def test_each_of_the_conditions_holds_it_back(change: dict[str, float], reason: str) -> None:
    strategy = Distributor(**change)  # type: ignore[arg-type]
    plan = strategy.first_plan(GRID, 4)
    decision = strategy.rebalance(plan, report(plan, 1, {0: 500, 1: 500, 2: 500}))
    assert bool(decision.changes) == (reason == "")
    assert reason in str(decision.why["decision"])


def test_it_waits_three_rounds_before_the_next_redistribution() -> None:
    strategy = Distributor()
    plan, acted = strategy.first_plan(GRID, 4), []
    for number in range(1, 12):
        hot = {(number * 16 + k) % 64: 3000 for k in range(6)}  # the load is elsewhere each round
        decision = strategy.rebalance(plan, report(plan, number, hot))
        if decision.changes:
            acted.append(number)
            plan = plan.apply(decision.changes)
    assert len(acted) >= 2
    assert min(np.diff(acted)) >= 3


def test_load_and_data_differ_where_events_are_not_alike() -> None:
    by_load, by_data = Distributor(), DistributorData()
    plan = by_load.first_plan(GRID, 4)
    heavy = report(plan, 1, {0: 900, 1: 900, 2: 900})
    assert by_load.rebalance(plan, heavy).changes
    assert not by_data.rebalance(plan, heavy).changes, "each partition has the same number of events"
    assert not DistributorStatic().rebalance(plan, heavy).changes


def test_without_parameters_it_acts_on_what_lasts_and_not_on_noise() -> None:
    rng, auto = np.random.default_rng(3), DistributorAuto()
    plan, acted = auto.first_plan(GRID, 4), 0
    for number in range(1, 30):  # every partition alike, but for noise
        noise = {i: int(v) for i, v in enumerate(rng.normal(1000, 30, 64))}
        decision = auto.rebalance(plan, report(plan, number, noise))
        acted += bool(decision.changes)
        plan = plan.apply(decision.changes) if decision.changes else plan
    assert acted <= 3, "noise is no news"
    for number in range(30, 34):
        lasting = dict.fromkeys(range(64), 1000) | dict.fromkeys(range(5), 9000)
        decision = auto.rebalance(plan, report(plan, number, lasting))
        plan = plan.apply(decision.changes) if decision.changes else plan
    loads = np.array([lasting[i] for i in range(64)], float)
    assert mldc(plan.executor_of_slot.astype(np.int64), loads, 4) < 0.15


def test_strategies_that_draw_from_a_sample_can_be_scaled_without_one() -> None:
    class NoQueries:
        def live_rects(self) -> Floats:
            return np.empty((0, 4))

        def some_queries(self, most: int) -> tuple[Floats, pa.StringArray]:
            return np.empty((0, 4)), pa.array([], pa.string())

        def live_count(self) -> int:
            return len(self.live_rects())

    for name in strategies():
        plan = uniform(GRID, 3)
        loop = ControlLoop(strategy(name), plan, 1.0, NoQueries())
        for executors in (5, 2, 1, 4):
            scaled = loop.scale(executors).plan
            assert scaled is not None
            busy = {owner for p in scaled.partitions for owner in p.owners}
            assert max(busy, default=0) < max(executors, scaled.executors), name
