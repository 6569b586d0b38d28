"""Equal weights for all, wherever the crowd is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.control.layout.weighted import weighted_plan
from geoswarm.core.space.grid import Grid
from geoswarm.errors import PlanError

GRID = Grid(0.0, 0.0, 1.0, 1.0, columns=40, rows=30)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), executors=st.integers(1, 25))
def test_no_share_is_far_above_the_mean_unless_one_line_of_cells_is(seed: int, executors: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.pareto(2.0, GRID.cells)
    plan = weighted_plan(GRID, executors, weights)
    assert plan.executors == executors == len(plan.partitions)
    loads = np.bincount(plan.slot_of_cell, weights, executors)
    grid = weights.reshape(GRID.rows, GRID.columns)
    line = max(grid.sum(axis=0).max(), grid.sum(axis=1).max())  # a cut misses its aim by half a line at most
    assert loads.max() <= weights.sum() / executors + line * np.ceil(np.log2(executors + 1))


def test_a_crowd_in_one_corner_is_shared_by_all() -> None:
    weights = np.zeros((GRID.rows, GRID.columns))
    weights[:8, :8] = 1.0
    plan = weighted_plan(GRID, 8, weights.ravel())
    assert np.bincount(plan.slot_of_cell, weights.ravel(), 8).tolist() == [8.0] * 8


def test_where_nothing_is_known_areas_are_equal() -> None:
    plan = weighted_plan(GRID, 4, np.zeros(GRID.cells))
    assert {p.cells for p in plan.partitions} == {GRID.cells // 4}


def test_executors_without_cells_own_nothing() -> None:
    tiny = Grid(0.0, 0.0, 1.0, 1.0, columns=2, rows=1)
    assert len(weighted_plan(tiny, 5, np.ones(2)).partitions) == 2
    with pytest.raises(PlanError, match="0 executors"):
        weighted_plan(tiny, 0, np.ones(2))
