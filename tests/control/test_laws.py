"""What holds for every strategy in `control/balance/`, found by looking: a new one is tested by existing."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.control.estimate import is_worse
from geoswarm.control.registry import strategies
from geoswarm.control.strategy import RoundReport
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.redraw import redrawn
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.flow.observe import Load, LoadReport
from worlds import sampled

GRID = Grid(0.0, 0.0, 1.0, 1.0, columns=14, rows=11)
ROUNDS = 8


def crowd(rng: np.random.Generator, n: int, hot: Floats) -> Floats:
    """Half of the points anywhere, half in a hotspot."""
    spread = rng.random((n, 2))
    spread[: n // 2] = (hot + rng.normal(0, 0.07, (n // 2, 2))).clip(0, 1)
    return spread


def around(centres: Floats) -> Floats:
    return np.concatenate([centres - 0.06, centres + 0.06], axis=1).clip(0, 1)


def measured(plan: Plan, stats: dict[int, TrioStat], points: Floats, rects: Floats) -> LoadReport:
    """A round's batches, counted into `stats`; time is what comparing every event with every query would take."""
    cells = GRID.locate(points[:, 0], points[:, 1])
    slots, boxes, load = plan.route(cells), GRID.cover(*rects.T), LoadReport(events_in=len(points))
    for slot, p in enumerate(plan.partitions):
        here = cells[slots == slot].astype(np.int64)
        stats[p.id].add_points(*np.divmod(here, GRID.columns))
        stats[p.id].add_queries(boxes)
        cpu_us = int(len(here) * (1 + stats[p.id].trio.q))
        load.add(p.id, p.executor, Load(len(here), len(here), len(here), cpu_us))
    return load


def test_the_strategies_of_this_folder_are_found() -> None:
    assert set(strategies()) >= {
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


@pytest.mark.parametrize("name", sorted(strategies()))
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), executors=st.integers(1, 9))
def test_every_strategy_covers_each_cell_once_and_never_worsens_what_it_was_shown(
    name: str, seed: int, executors: int
) -> None:
    rng = np.random.default_rng(seed)
    strategy = strategies()[name]()
    sample = sampled(rng, crowd(rng, 300, rng.random(2)), around(rng.random((50, 2))))
    plan = strategy.first_plan(GRID, executors, sample)
    assert plan.epoch == 0
    assert plan.grid == GRID
    assert plan.executors == executors or name == "over-partitioned"
    stats = {p.id: TrioStat.empty(p) for p in plan.partitions}
    hot = rng.random(2)
    for number in range(ROUNDS):
        hot = rng.random(2) if number == ROUNDS // 2 else hot
        load = measured(plan, stats, crowd(rng, int(rng.integers(1, 300)), hot), around(crowd(rng, 20, hot)))
        for stat in stats.values():
            stat.close_round()
        report = RoundReport(number, 15.0 * number, load, stats)
        decision = strategy.rebalance(plan, report)
        json.dumps(dict(decision.why))  # the journal can take it
        assert decision.why
        proposed = plan.apply(decision.changes)  # a plan that does not cover each cell once is a PlanError
        if strategy.needs_stats:
            assert not is_worse(strategy.estimate(proposed, report), strategy.estimate(plan, report))
        if decision.changes:
            stats, plan = redrawn(stats, proposed), proposed


@pytest.mark.parametrize("name", sorted(strategies()))
def test_the_same_world_leads_to_the_same_decisions(name: str) -> None:
    def story() -> list[object]:
        rng = np.random.default_rng(3)
        strategy = strategies()[name]()
        hot = np.array([0.2, 0.7])
        plan = strategy.first_plan(GRID, 4, sampled(rng, crowd(rng, 200, hot), around(rng.random((30, 2)))))
        stats = {p.id: TrioStat.empty(p) for p in plan.partitions}
        told: list[object] = [plan]
        for number in range(ROUNDS):
            load = measured(plan, stats, crowd(rng, 200, hot), around(crowd(rng, 20, hot)))
            for stat in stats.values():
                stat.close_round()
            decision = strategy.rebalance(plan, RoundReport(number, 15.0 * number, load, stats))
            told.append(decision)
            if decision.changes:
                plan = plan.apply(decision.changes)
                stats = redrawn(stats, plan)
        return told

    assert story() == story()
