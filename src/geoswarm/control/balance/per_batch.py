"""A plan for every batch, drawn from the cells of its own events: what a Spark engineer would try before SWARM.

It needs no rounds and no statistics, and is never late; its price is to count every batch before the exchange.
`control/layout/weighted.py` draws the plan. `per-batch` counts events alone; `per-batch-weighed` gives an event more
weight if more queries meet its cell, because its matching takes longer.
"""

import numpy as np

from geoswarm.control.balance.static import Static
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.layout.weighted import weighted_plan
from geoswarm.control.strategy import Sample
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan

EVENT_IN_QUERIES = 100
"""The cost of an event that meets no query, in queries near it: 0.3 µs against 3 ns (`run/sim/service.py`)."""


class PerBatch(Static):
    """Draws a plan for every batch, from the cells of its own events."""

    name = "per-batch"
    weighs_queries = False

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        """Only in force until the first batch has been counted."""
        return uniform(grid, executors)

    def plan_batch(self, plan: Plan, events_of_cell: Ints, queries_of_cell: Ints) -> Plan:
        if self.weighs_queries:
            return self._draw(plan, events_of_cell * (EVENT_IN_QUERIES + queries_of_cell))
        return self._draw(plan, events_of_cell)

    def _draw(self, plan: Plan, weight_of_cell: Ints) -> Plan:
        """Repeated halving is greedy: where the layout in force suits the batch better, it stays."""
        weights = weight_of_cell.astype(np.float64)
        fresh = weighted_plan(plan.grid, plan.executors, weights)
        return plan.replace_by(min(fresh, plan, key=lambda drawn: _heaviest(drawn, weights)), self.name)


class PerBatchWeighed(PerBatch):
    """Draws a plan for every batch; an event counts the more, the more queries meet its cell."""

    name = "per-batch-weighed"
    weighs_queries = True


def _heaviest(plan: Plan, weight_of_cell: Floats) -> float:
    """The weight of the heaviest executor."""
    of_slot = np.bincount(plan.slot_of_cell, weight_of_cell, minlength=len(plan.partitions))
    return float(plan.by_executor(of_slot).max())
