"""The strategies that never change a plan: what adaptive ones are measured against.

They differ in the first plan. SWARM §6: `static-uniform` and `static-history`. `over-partitioned` is what a Spark
engineer would try first: many more partitions than executors, dealt out like cards, so that a hotspot falls on several.
"""

from dataclasses import replace

from geoswarm.control.estimate import by_cost
from geoswarm.control.strategy import Decision, RoundReport, Sample
from geoswarm.errors import InputError
from geoswarm.layout.history import history
from geoswarm.layout.uniform import uniform
from geoswarm.space.grid import Grid
from geoswarm.space.plan import Plan

PARTITIONS_PER_EXECUTOR = 16
"""Of `over-partitioned`: a hotspot of 15 % of the side covers 2 % of the map, and so 8 partitions of 22 executors'."""


class _Static:
    needs_stats = False
    estimate = staticmethod(by_cost)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        return Decision((), {"decision": "never changes"})


class StaticUniform(_Static):
    name = "static-uniform"

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        return uniform(grid, executors)


class StaticHistory(_Static):
    name = "static-history"

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        if sample is None:
            raise InputError(
                "static-history draws its plan from a sample: give one, such as 400 k points and 200 k rects"
            )
        return history(grid, executors, sample.points, sample.rects)


class OverPartitioned(_Static):
    name = "over-partitioned"

    def __init__(self, partitions_per_executor: int = PARTITIONS_PER_EXECUTOR) -> None:
        self.partitions_per_executor = partitions_per_executor

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        fine = uniform(grid, executors * self.partitions_per_executor)
        dealt = tuple(replace(p, executor=i % executors) for i, p in enumerate(fine.partitions))
        return replace(fine, executors=executors, partitions=dealt)
