"""The strategies that never change a plan: what adaptive ones are measured against.

They differ in the first plan. SWARM §6: `replicated` (all queries everywhere, points dealt in turn), `static-uniform`
and `static-history`. `over-partitioned` is what a Spark engineer would try first: many more partitions than machines,
one task for each, and a free machine takes the next.
"""

from typing import Annotated

from pydantic import Field

from geoswarm.config import EXECUTORS_MAX
from geoswarm.control.estimate import by_cost
from geoswarm.control.layout.dealt import dealt
from geoswarm.control.layout.history import history
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.strategy import Decision, RoundReport, Sample
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import InputError
from geoswarm.parameters import check_arguments

PARTITIONS_PER_EXECUTOR = 16
"""For `over-partitioned`: a hotspot of 15 % of the side covers 2 % of the map, so 8 partitions with 22 executors."""


class Static:
    needs_stats = False
    needs_sample = False
    estimate = staticmethod(by_cost)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        return Decision((), {"decision": "never changes"})


class Replicated(Static):
    """Keeps all queries everywhere, and deals events out in turn."""

    name = "replicated"

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        return dealt(grid, executors)


class StaticUniform(Static):
    """Keeps equal shares of the map for ever."""

    name = "static-uniform"

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        return uniform(grid, executors)


class StaticHistory(Static):
    """Draws a plan from a sample of events and queries, and keeps it for ever."""

    name = "static-history"
    draws_from_sample = True

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        if sample is None:
            raise InputError(
                "static-history draws its plan from a sample: give one, such as 400 k points and 200 k rects"
            )
        return history(grid, executors, sample.points, sample.rects)


class OverPartitioned(Static):
    """Makes many more equal shares of the map than machines, a task each; a free machine takes the next."""

    name = "over-partitioned"

    @check_arguments
    def __init__(
        self,
        *,
        partitions_per_executor: Annotated[
            int, Field(ge=1, description="shares of the map for each executor")
        ] = PARTITIONS_PER_EXECUTOR,
    ) -> None:
        self.partitions_per_executor = partitions_per_executor

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        """An executor of the plan is a Spark task, so the plan has more of them than there are machines."""
        return uniform(grid, min(executors * self.partitions_per_executor, EXECUTORS_MAX))
