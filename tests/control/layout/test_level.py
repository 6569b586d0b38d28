"""Many fixed partitions, equally many points in each."""

import numpy as np
import pytest

from geoswarm.control.layout.level import level
from geoswarm.core.space.grid import Grid
from geoswarm.errors import PlanError

GRID = Grid(0.0, 0.0, 1.0, 1.0, columns=200, rows=200)


def test_executors_have_equally_many_points_though_all_live_in_one_corner() -> None:
    points = np.random.default_rng(3).beta(2.0, 9.0, (50_000, 2))
    plan = level(GRID, 16, points)
    slots = plan.slot_of_cell[GRID.locate(points[:, 0], points[:, 1])]
    by_executor = np.bincount(plan.executor_of_slot[slots], minlength=16)
    assert len(plan.partitions) == 256
    assert by_executor.max() < 1.1 * len(points) / 16
    assert by_executor.min() > 0.9 * len(points) / 16


def test_an_executor_has_neighbours() -> None:
    plan = level(GRID, 4, np.random.default_rng(3).random((5000, 2)), partitions_per_executor=4)
    for executor in range(4):
        mine = [p for p in plan.partitions if p.executor == executor]
        rows = max(p.row1 for p in mine) - min(p.row0 for p in mine) + 1
        columns = max(p.col1 for p in mine) - min(p.col0 for p in mine) + 1
        assert sum(p.cells for p in mine) == rows * columns


def test_where_cells_are_few_some_executors_have_fewer_partitions_and_none_is_refused() -> None:
    grid = Grid(0.0, 0.0, 1.0, 1.0, columns=3, rows=3)
    plan = level(grid, 4, np.full((10, 2), 0.5))
    assert [sum(p.executor == e for p in plan.partitions) for e in range(4)] == [3, 3, 3, 0]
    with pytest.raises(PlanError, match="at least 1"):
        level(grid, 0, np.full((10, 2), 0.5))
