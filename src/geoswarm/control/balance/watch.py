"""The places that executors would have while events are dealt out among all: no event goes by them, but Guard looks.

An attack on the balancing finds nothing to attack while events are dealt out, but its queries cost as much. So a plan
of places is drawn by what was measured, and levelled round by round as if it were in force (thesis §5.3.1: whatever
makes a cluster rebalance is examined).

    cells of the round ──► the work of each place ──► AutoPlaces ──► changes ──► Guard's sensor
                                     ▲                                 │
                                     └────────── the next plan ◄───────┘
"""

import numpy as np

from geoswarm.control.balance.levelling import CellWork
from geoswarm.control.coordinator import Coordinator
from geoswarm.control.strategy import RoundReport, Strategy, WatchedRound
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.plan import Plan, Slots
from geoswarm.core.stats.cell_counts import CellCounts
from geoswarm.flow.observe import Load, LoadReport


class PlacesWatch:
    def __init__(self, strategy: Strategy, first: Plan) -> None:
        self._coordinator, self._plan = Coordinator(strategy), first

    @property
    def executors(self) -> int:
        return self._plan.executors

    def follow(self, report: RoundReport, cells: CellWork) -> WatchedRound | None:
        """The round, if the plan would have changed."""
        plan = self._plan
        load = load_of_places(plan, report.load.cells, cells)
        outcome = self._coordinator.decide(plan, RoundReport(report.round, report.now_s, load, {}))
        if outcome.plan is None:
            return None
        self._plan = outcome.plan
        return WatchedRound(plan, outcome.entry.changes, {i: part.cpu_us for i, part in load.partitions.items()})


def load_of_places(plan: Plan, counts: CellCounts, cells: CellWork) -> LoadReport:
    """What would have been measured under the plan."""

    def by_slot(slots: Slots, values: Floats) -> list[int]:
        return [int(total) for total in np.bincount(slots, values, minlength=len(plan.partitions))]

    load, counted = LoadReport(cells=counts), plan.slot_of_cell[counts.cells]
    worked = plan.slot_of_cell[cells.rows * plan.grid.columns + cells.columns]
    sums = by_slot(counted, counts.events), by_slot(counted, counts.matches), by_slot(worked, cells.work)
    for part, events, matches, spent_us in zip(plan.partitions, *sums, strict=True):
        load.add(part.id, part.executor, Load(events, 0, matches, spent_us))
    return load
