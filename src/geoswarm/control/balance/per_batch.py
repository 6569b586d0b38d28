"""A plan for every batch, drawn from the cells of its own events: what a Spark engineer would try before SWARM.

It needs no rounds and no statistics, and cannot be late; it pays by looking at every batch before the exchange. The
plan itself is `control/layout/weighted.py`. `per-batch` counts events alone; `per-batch-weighed` counts an event the
more, the more queries meet its cell, as its matching takes longer.
"""

import numpy as np

from geoswarm.control.balance.static import Static
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.layout.weighted import weighted
from geoswarm.control.strategy import Sample
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan

EVENT_IN_QUERIES = 100
"""What an event costs that meets nobody, as a number of queries near it: 0.3 µs to 3 ns (`run/sim/service.py`)."""


class PerBatch(Static):
    """Draws a plan for every batch, from the cells of its own events."""

    name = "per-batch"
    weighs_queries = False

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        """Never in force unless a batch cannot be counted: there is one before the first batch."""
        return uniform(grid, executors)

    def plan_batch(self, plan: Plan, events_of_cell: Ints, queries_of_cell: Ints) -> Plan:
        if self.weighs_queries:
            return self._drawn(plan, events_of_cell * (EVENT_IN_QUERIES + queries_of_cell))
        return self._drawn(plan, events_of_cell)

    def _drawn(self, plan: Plan, weight_of_cell: Ints) -> Plan:
        """Halving the map again and again is greedy: where the layout in force suits the batch better, it stays."""
        weights = weight_of_cell.astype(np.float64)
        fresh = weighted(plan.grid, plan.executors, weights)
        return plan.replace_by(min(fresh, plan, key=lambda drawn: _heaviest(drawn, weights)), self.name)


class PerBatchWeighed(PerBatch):
    """Draws a plan for every batch; an event counts the more, the more queries meet its cell."""

    name = "per-batch-weighed"
    weighs_queries = True


def _heaviest(plan: Plan, weight_of_cell: Floats) -> float:
    """What lies with the executor that has most."""
    of_slot = np.bincount(plan.slot_of_cell, weight_of_cell, minlength=len(plan.partitions))
    return float(np.bincount(plan.executor_of_slot, of_slot, minlength=plan.executors).max())
