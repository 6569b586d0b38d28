"""From a step's events to machines: the only part of the simulator that differs between strategies.

`cluster.py` serves the routed events; the plans are the strategies' own (`control/balance/`), as in the engine. Each
routing returns the machine of every event of a step, and what the routing itself costs.

    ByPlan            cell -> partition -> executor: SWARM and the static grids. In a partition of all machines, events
                      are dealt in turn: `replicated` has only such a one (SWARM §6, first rival)
    ByTask            `over-partitioned`: an executor of the plan is a task, and the machine that is free first takes
                      the next, as Spark's scheduler does
    ByBatch           a strategy that plans each batch: its cells are counted before the exchange

The last two need a whole batch before they choose, so its events wait for the batch to fill. A plan needs no batches,
but can run in them, as in this engine.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from geoswarm.control.strategy import PlansBatches
from geoswarm.core.arrays.jit import CellIds, Floats, Ints, kernel
from geoswarm.core.space.plan import ExecutorIds, Plan, Slots
from geoswarm.core.stats.density import Density
from geoswarm.run.sim.service import Service
from geoswarm.run.sim.world import World


class RoutingBatch(NamedTuple):
    """What is known when the events of a step are to be routed."""

    cells: CellIds
    slots: Slots
    """The slot of each event in the plan; empty where a new plan will be drawn."""
    work_s: Floats
    """The work of each event, which a scheduler only sees when a machine becomes free."""
    queries: Ints
    """The number of queries at each slot, or empty."""
    expected: int
    """How many events will probably be sent: as many as in the step before."""
    free_at_s: Floats
    """When each machine will have done all its work."""


class Routed(NamedTuple):
    machines: Ints
    """The machine of each event."""
    moved: int
    """The number of queries that have another machine than in the step before."""
    overhead_s: Floats
    """Time on each machine, once in the step."""
    driver_s: float = 0.0
    """CPU time that the driver's planning really took."""


class Routing(Protocol):
    plan: Plan
    machines: int
    waits: bool
    """Whether events wait for the end of their batch before they are routed."""
    holds: bool
    """Whether a machine holds the queries of its partitions from step to step. Else all machines map the same files,
    and each event's index has all queries."""

    def note_changes(self, came: Ints, went: Ints) -> None:
        """Notes queries that were registered and cancelled, as ordinals."""

    def route(self, batch: RoutingBatch) -> Routed: ...


class ByPlan:
    holds = True

    def __init__(self, plan: Plan, *, waits: bool = False) -> None:
        self.plan, self.machines, self.waits = plan, plan.executors, waits
        self._turn = 0

    def note_changes(self, came: Ints, went: Ints) -> None:
        pass

    def route(self, batch: RoutingBatch) -> Routed:
        turns = self.plan.turns
        nth = (self._turn + np.arange(len(batch.slots))) % turns.counts[batch.slots]
        self._turn += batch.expected
        owners = turns.owner[turns.first_of_slot[batch.slots] + nth].astype(np.int64)
        return Routed(owners, 0, np.zeros(self.machines))


class ByTask:
    """Tasks start in the order of their numbers, as Spark's do."""

    waits, holds = True, True

    def __init__(self, plan: Plan, machines: int, service: Service) -> None:
        self.plan, self.machines, self._task_s = plan, machines, service.task_us * 1e-6
        self._machine_of_task = np.full(plan.executors, -1, np.int64)

    def note_changes(self, came: Ints, went: Ints) -> None:
        pass

    def route(self, batch: RoutingBatch) -> Routed:
        tasks = self.plan.executor_of_slot[batch.slots]
        sent = slice(0, batch.expected)
        work_s = np.bincount(tasks[sent], batch.work_s[sent], self.plan.executors)
        runs = np.bincount(tasks[sent], minlength=self.plan.executors) > 0
        free = [(float(at_s), m) for m, at_s in enumerate(batch.free_at_s)]
        heapq.heapify(free)
        chosen, overhead_s = self._machine_of_task.copy(), np.zeros(self.machines)
        for task in np.flatnonzero(runs):
            at_s, machine = free[0]
            heapq.heapreplace(free, (at_s + self._task_s + float(work_s[task]), machine))
            chosen[task] = machine
            overhead_s[machine] += self._task_s
        changed = (chosen != self._machine_of_task) & (self._machine_of_task >= 0)
        moved = int(batch.queries[changed[self.plan.executor_of_slot]].sum())
        self._machine_of_task = chosen
        # A task without events at the time of the choice goes to the machine of its number.
        machines = chosen[tasks]
        return Routed(np.where(machines < 0, tasks % self.machines, machines), moved, overhead_s)


class ByBatch:
    waits, holds = True, False

    def __init__(
        self, strategy: PlansBatches, plan: Plan, world: World, service: Service, cpu_s: Callable[[], float]
    ) -> None:
        self.plan, self.machines = plan, plan.executors
        self._strategy, self._world, self._cpu_s = strategy, world, cpu_s
        self._count_s = service.count_us * 1e-6 * world.weight
        self._density = Density(world.grid)
        self._begun = np.zeros(world.grid.cells, np.int64)  # queries whose first cell this is

    def note_changes(self, came: Ints, went: Ints) -> None:
        columns = self._world.grid.columns
        for ordinals, by in ((came, self._world.query_weight), (went, -self._world.query_weight)):
            box = self._world.of(ordinals)
            self._density.add(box, by)
            np.add.at(self._begun, box.row0 * columns + box.col0, by)

    def route(self, batch: RoutingBatch) -> Routed:
        before = self.plan
        events = np.bincount(batch.cells[: batch.expected], minlength=before.grid.cells)
        began_s = self._cpu_s()
        self.plan = self._strategy.plan_batch(before, events, self._density.of_cells())
        driver_s = self._cpu_s() - began_s
        drawn = self.plan
        moved = _count_moved(
            self._begun, before.slot_of_cell, before.executor_of_slot, drawn.slot_of_cell, drawn.executor_of_slot
        )
        machines = self.plan.executor_of_slot[self.plan.route(batch.cells)].astype(np.int64)
        overhead_s = np.full(self.machines, self._count_s * batch.expected / self.machines)
        return Routed(machines, moved, overhead_s, driver_s)


@kernel
def _count_moved(begun: Ints, slots: Slots, owners: ExecutorIds, slots_after: Slots, owners_after: ExecutorIds) -> int:
    """The number of queries whose first cell has another executor than before."""
    moved = 0
    for cell in range(len(begun)):
        if owners[slots[cell]] != owners_after[slots_after[cell]]:
            moved += begun[cell]
    return moved
