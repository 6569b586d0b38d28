"""Where the sensor looks after a rebalance."""

from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.change import ChangeNote, DivideNote, Merge
from geoswarm.core.space.grid import Grid
from geoswarm.guard.sensing import triggers


def test_a_place_that_is_merged_to_be_divided_anew_is_sensed_where_it_was() -> None:
    plan = uniform(Grid(0, 0, 100, 100, 20, 20), 4)
    changes: list[ChangeNote] = [Merge((0, 1), 2), DivideNote(99, "", (0, 1))]
    assert triggers(plan, changes, {p.id: float(p.id) for p in plan.partitions}) == [
        max(p.id for p in plan.partitions if p.executor == 2)
    ]


def test_an_executor_that_had_nothing_is_no_hotspot() -> None:
    plan = uniform(Grid(0, 0, 100, 100, 20, 20), 4).with_executors(5)
    assert triggers(plan, [Merge((0, 1), 4), DivideNote(99, "", (0, 1))], {}) == []
