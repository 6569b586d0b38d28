"""A plan drawn from history gives each executor one rectangle, and all of them almost the same cost."""

import numpy as np
import pytest

from geoswarm.control.balance.static import OverPartitioned, StaticHistory
from geoswarm.control.estimate import executor_costs
from geoswarm.control.layout.history import history
from geoswarm.control.layout.uniform import uniform
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.errors import InputError, PlanError

GRID = Grid(0.0, 0.0, 100.0, 100.0, columns=200, rows=200)
NOBODY, NOTHING = np.empty((0, 2)), np.empty((0, 4))


def cities(rng: np.random.Generator, n: int) -> Floats:
    centres, spread = np.random.default_rng(1).uniform(10, 90, (12, 2)), rng.normal(0, 5, (n, 2))
    return (centres[rng.integers(0, 12, n)] + spread).clip(0, 100)


def sample(n: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(7)
    centres = cities(rng, n // 2)
    return cities(rng, n), np.concatenate([centres - 0.1, centres + 0.1], axis=1).clip(0, 100)


def costs(plan: Plan, points: Floats, rects: Floats) -> Floats:
    cells = GRID.locate(points[:, 0], points[:, 1])
    slots, stats = plan.route(cells), {}
    for slot, p in enumerate(plan.partitions):
        stat = stats[p.id] = TrioStat.empty(p)
        stat.add_points(*np.divmod(cells[slots == slot].astype(np.int64), GRID.columns))
        stat.add_queries(GRID.cover(*rects.T))
        stat.close_round()
    return executor_costs(plan, stats)


@pytest.mark.parametrize("executors", [1, 2, 5, 8, 22, 30])
def test_all_executors_cost_almost_the_same(executors: int) -> None:
    points, rects = sample(40_000)
    plan = history(GRID, executors, points, rects)
    assert sorted(plan.executor_of_slot.tolist()) == list(range(executors))
    drawn = costs(plan, points, rects)
    assert drawn.max() <= 1.35 * drawn.mean()
    if executors > 2:
        assert drawn.max() < 0.3 * costs(uniform(GRID, executors), points, rects).max()


def test_without_any_history_it_is_an_even_share_of_the_map() -> None:
    plan = history(GRID, 4, NOBODY, NOTHING)
    assert [p.cells for p in plan.partitions] == [10_000] * 4


def test_a_crowd_in_one_cell_leaves_a_plan_all_the_same() -> None:
    points, rects = np.full((50, 2), 33.3), np.full((9, 4), 33.3)
    assert len(history(GRID, 7, points, rects).partitions) == 7


@pytest.mark.parametrize("executors", [1, 3, 5, 6, 9])
def test_every_executor_gets_a_cell_while_there_are_cells(executors: int) -> None:
    grid = Grid(0.0, 0.0, 1.0, 1.0, columns=3, rows=2)
    plan = history(grid, executors, np.full((50, 2), 0.1), NOTHING)
    assert len(plan.partitions) == min(executors, 6)
    assert plan.executors == executors


def test_a_sample_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"points \(0, 4\) and rects \(0, 2\)"):
        history(GRID, 2, NOTHING, NOBODY)
    with pytest.raises(PlanError, match="0 executors"):
        history(GRID, 0, NOBODY, NOTHING)
    with pytest.raises(InputError, match="give one"):
        StaticHistory().first_plan(GRID, 2)


def test_over_partitioned_makes_many_small_tasks() -> None:
    plan = OverPartitioned(partitions_per_executor=16).first_plan(GRID, 5)
    assert plan.executors == 80
    assert np.bincount(plan.executor_of_slot).tolist() == [1] * 80
