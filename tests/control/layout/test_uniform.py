"""The uniform layout gives each executor one rectangle, all of about the same size."""

import pytest

from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.grid import Grid
from geoswarm.errors import PlanError


def grid_of(rows: int, columns: int) -> Grid:
    return Grid(-180.0, -90.0, 180.0, 90.0, columns=columns, rows=rows)


@pytest.mark.parametrize("executors", range(1, 65))
@pytest.mark.parametrize(("rows", "columns"), [(1000, 1000), (97, 53), (1, 64), (8, 8)])
def test_each_executor_owns_one_partition(rows: int, columns: int, executors: int) -> None:
    plan = uniform(grid_of(rows, columns), executors)  # the plan itself checks that each cell is covered once
    assert plan.epoch == 0
    assert sorted(plan.executor_of_slot.tolist()) == list(range(executors))


@pytest.mark.parametrize("executors", range(1, 65))
def test_no_partition_is_more_than_twice_as_large_or_as_long_as_another_needs(executors: int) -> None:
    plan = uniform(grid_of(1000, 1000), executors)
    areas = [p.cells for p in plan.partitions]
    assert max(areas) <= 2.1 * min(areas)  # halves of odd sides differ by a row
    for p in plan.partitions:
        height, width = p.row1 - p.row0 + 1, p.col1 - p.col0 + 1
        assert max(height, width) <= 2.1 * min(height, width)


def test_a_power_of_two_gives_equal_partitions() -> None:
    assert {p.cells for p in uniform(grid_of(64, 64), 16).partitions} == {256}


def test_five_executors_share_the_map_as_drawn() -> None:
    #   7 7 8 8 5 5 5 5    0 is cut into 1 | 2, then 1 into 3 over 4 and 2 into 5 over 6,
    #   4 4 4 4 6 6 6 6    then the oldest of the largest, 3, into 7 | 8
    plan = uniform(grid_of(8, 8), 5)
    drawn = {p.id: (p.row0, p.col0, p.row1, p.col1) for p in plan.partitions}
    assert drawn == {
        4: (4, 0, 7, 3),
        5: (0, 4, 3, 7),
        6: (4, 4, 7, 7),
        7: (0, 0, 3, 1),
        8: (0, 2, 3, 3),
    }
    assert [p.parent for p in plan.partitions] == [(1,), (2,), (2,), (3,), (3,)]
    assert all(p.previous_executor is None for p in plan.partitions)
    assert plan.next_partition_id == 9


def test_the_longer_side_is_cut_first() -> None:
    wide, tall = uniform(grid_of(4, 8), 2), uniform(grid_of(8, 4), 2)
    assert [(p.row1, p.col1) for p in wide.partitions] == [(3, 3), (3, 7)]
    assert [(p.row1, p.col1) for p in tall.partitions] == [(3, 3), (7, 3)]


def test_splitting_stops_at_single_cells_and_leaves_the_other_executors_idle() -> None:
    plan = uniform(grid_of(2, 2), 9)
    assert [p.cells for p in plan.partitions] == [1, 1, 1, 1]
    assert plan.executors == 9


def test_the_same_request_gives_the_same_plan() -> None:
    assert uniform(grid_of(97, 53), 13) == uniform(grid_of(97, 53), 13)


def test_a_map_without_executors_is_refused() -> None:
    with pytest.raises(PlanError, match="0 executors cannot own 4 cells"):
        uniform(grid_of(2, 2), 0)
