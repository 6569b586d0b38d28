"""The ways to find an event's machine that are not a plan with fixed owners: the one place where the rivals differ.

`cluster.py` serves whatever is routed, by whichever of these. Each says the owner of every event of a step, how many
queries an event's index holds, and what the way itself costs. Issue: rivals behind the same interface.

    ByPlan            cell -> partition -> executor: SWARM and both static grids
    RoundRobin        `replicated`: every machine holds all queries (SWARM §6, first rival)
    OverPartitioned   many small partitions, each batch's tasks handed to whichever machine is free first, as Spark does
    PerBatch          cells counted in the batch itself, the Z-order curve cut into equal shares for that batch alone;
                      `per-batch-weighed` counts an event once for every query that meets its cell

The last two look at a whole batch before they choose, so its events wait for the batch to fill.
"""

import heapq
from typing import NamedTuple, Protocol

import numpy as np

from geoswarm.jit import CellIds, Floats, Ints
from geoswarm.sim.service import Service
from geoswarm.sim.world import World
from geoswarm.space.plan import Plan, Slots


class Batch(NamedTuple):
    """What is known when the events of a step are to be routed."""

    cells: CellIds
    slots: Slots
    """In the plan, or empty where there is none."""
    met: Ints
    """Queries that meet the cell of each event."""
    work_s: Floats
    """Of each event. Only time itself may know it: a scheduler sees it as machines that become free."""
    queries: Ints
    """Held at each slot, or empty."""
    expected: int
    """How many of them will be sent, by the step before."""
    free_at_s: Floats
    """When each machine has done what it has."""


class Routed(NamedTuple):
    machines: Ints
    """Of each event."""
    moved: int
    """Queries that have another machine than in the step before."""
    overhead_s: Floats
    """On each machine, once in the step."""


class Routing(Protocol):
    plan: Plan | None
    """None: an event's machine is found without one, and its index holds all queries."""
    machines: int
    waits: bool
    """Whether events wait for the end of their batch before they are routed."""
    copies: int
    """Machines that index each new query, where no plan says which."""

    def changed(self, came: Ints, went: Ints) -> None:
        """Queries that were registered and cancelled, by ordinal."""

    def route(self, batch: Batch) -> Routed: ...


class _Plain:
    plan: Plan | None = None
    waits = False
    copies = 1

    def changed(self, came: Ints, went: Ints) -> None:
        pass


class ByPlan(_Plain):
    def __init__(self, plan: Plan) -> None:
        self.plan, self.machines = plan, plan.executors

    def route(self, batch: Batch) -> Routed:
        assert self.plan is not None
        return Routed(self.plan.executor_of_slot[batch.slots].astype(np.int64), 0, np.zeros(self.machines))


class RoundRobin(_Plain):
    def __init__(self, machines: int) -> None:
        self.machines = self.copies = machines
        self._next = 0

    def route(self, batch: Batch) -> Routed:
        machines = (self._next + np.arange(len(batch.cells))) % self.machines
        self._next = (self._next + batch.expected) % self.machines
        return Routed(machines, 0, np.zeros(self.machines))


class OverPartitioned(_Plain):
    """One task per partition and batch, started in the order of their partitions. The plan's owners do not matter."""

    waits = True

    def __init__(self, plan: Plan, machines: int, service: Service) -> None:
        self.plan, self.machines, self._task_s = plan, machines, service.task_us * 1e-6
        self._owner = np.full(len(plan.partitions), -1, np.int64)

    def route(self, batch: Batch) -> Routed:
        sent = slice(0, batch.expected)
        work_s = np.bincount(batch.slots[sent], batch.work_s[sent], len(self._owner))
        tasks = np.bincount(batch.slots[sent], minlength=len(self._owner)) > 0
        free = [(float(at_s), m) for m, at_s in enumerate(batch.free_at_s)]
        heapq.heapify(free)
        owner, overhead_s = self._owner.copy(), np.zeros(self.machines)
        for slot in np.flatnonzero(tasks):
            at_s, machine = free[0]
            heapq.heapreplace(free, (at_s + self._task_s + float(work_s[slot]), machine))
            owner[slot] = machine
            overhead_s[machine] += self._task_s
        moved = int(batch.queries[(owner != self._owner) & (self._owner >= 0)].sum())
        self._owner = owner
        # A partition that is met for the first time after the choice goes where Spark's hash would send it.
        machines = owner[batch.slots]
        return Routed(np.where(machines < 0, batch.slots % self.machines, machines), moved, overhead_s)


class PerBatch(_Plain):
    waits = True

    def __init__(self, world: World, machines: int, service: Service, *, weighed: bool) -> None:
        grid = world.grid
        self._weighed = weighed
        order = np.argsort(grid.zcodes(np.arange(grid.cells, dtype=np.int32)), kind="stable")
        self._place = np.empty(grid.cells, np.int64)  # of each cell along the curve
        self._place[order] = np.arange(grid.cells)
        self.machines, self._world = machines, world
        self._count_s = service.count_us * 1e-6 * world.weight
        self._corners = np.zeros(grid.cells, np.int64)
        self._before = np.zeros(grid.cells + 1, np.int64)  # queries that begin before each place
        self._borders: Ints | None = None

    def changed(self, came: Ints, went: Ints) -> None:
        for ordinals, by in ((came, 1), (went, -1)):
            box = self._world.of(ordinals)
            np.add.at(self._corners, self._place[box.row0 * self._world.grid.columns + box.col0], by)
        if len(came) or len(went):
            np.cumsum(self._corners, out=self._before[1:])

    def route(self, batch: Batch) -> Routed:
        places = self._place[batch.cells]
        sent = places[: batch.expected]
        order = np.argsort(sent, kind="stable")
        total = np.cumsum(1 + batch.met[: batch.expected][order] if self._weighed else np.ones(len(sent)))
        shares = np.arange(1, self.machines) / self.machines * (total[-1] if len(total) else 0.0)
        cuts = np.minimum(np.searchsorted(total, shares), max(len(sent) - 1, 0))
        borders = sent[order][cuts] if len(sent) else np.zeros(self.machines - 1, np.int64)
        moved = 0
        if self._borders is not None:
            moved = int(np.abs(self._before[borders] - self._before[self._borders]).sum())
        self._borders = borders
        overhead_s = np.full(self.machines, self._count_s * batch.expected / self.machines)
        return Routed(np.searchsorted(borders, places, side="right"), moved, overhead_s)


def routing_of(name: str, world: World, plan: Plan, service: Service, executors: int, routers: int) -> Routing:
    """By the name of the strategy whose first plan is given. Whoever replicates needs no routers: they serve, too."""
    if name == "replicated":
        return RoundRobin(executors + routers)
    if name == "over-partitioned":
        return OverPartitioned(plan, executors, service)
    if name in ("per-batch", "per-batch-weighed"):
        return PerBatch(world, executors, service, weighed=name == "per-batch-weighed")
    return ByPlan(plan)
