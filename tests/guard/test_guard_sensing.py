"""Where the sensor looks after a rebalance."""

from typing import Any

from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.grid import Grid
from geoswarm.guard.sensing import triggers


def test_a_place_that_is_merged_to_be_divided_anew_is_sensed_where_it_was() -> None:
    plan = uniform(Grid(0, 0, 100, 100, 20, 20), 4)
    changes: list[dict[str, Any]] = [
        {"change": "merge", "partitions": [0, 1], "executor": 2},
        {"change": "divide", "partition": 99},
    ]
    assert triggers(plan, changes, {p.id: float(p.id) for p in plan.partitions}) == [
        max(p.id for p in plan.partitions if p.executor == 2)
    ]


def test_an_executor_that_had_nothing_is_no_hotspot() -> None:
    plan = uniform(Grid(0, 0, 100, 100, 20, 20), 4).with_executors(5)
    changes: list[dict[str, Any]] = [{"change": "merge", "partitions": [0, 1], "executor": 4}]
    assert triggers(plan, [*changes, {"change": "divide", "partition": 99}], {}) == []
