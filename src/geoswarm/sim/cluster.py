"""A virtual cluster: routers, machines with bounded queues, and sources that stop when a queue is full.

The plan, the statistics, the strategies and the coordinator are the engine's own, no copies; what is simulated is time.
Where events fall is `world.py`, what work takes is `service.py`, and the rivals' ways to a machine are `routing.py`.

    sources ──(no faster than the routers)──► routers ──► queue ▯▯▯▯▯ machine 0 ──► done
        ▲                                            └──► queue ▯▯▯▯▯ machine 1 ──► done
        └────── wait while the next event's queue is full ──┘

Every drawn event is served first come first served, one after the other on its machine, so latency is exact for what
was drawn. Back-pressure is that of Storm's max pending: an event whose queue is full stops the sources until a place
is free, and so the whole stream runs at the pace of the slowest machine (SWARM §6.2, Fig. 17). The sources offer more
than the cluster can take (§2). Storm 1.0 lets its sources speed up slowly after a stop; ours resume at once.

*Units of work* are queries in the system × events processed per second (§6.1).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from geoswarm.control.coordinator import Coordinator
from geoswarm.control.registry import strategy
from geoswarm.flow.observe import LoadReport, PartitionLoad
from geoswarm.jit import CellIds, Floats, Ints, kernel
from geoswarm.sim.holdings import Holdings
from geoswarm.sim.routing import Batch, Routing, routing_of
from geoswarm.sim.service import Service
from geoswarm.sim.spans import Span
from geoswarm.sim.world import Step, World
from geoswarm.space.plan import Plan, Slots
from geoswarm.stats.triostat import NUMBERS_PER_EXECUTOR

NUMBER_BYTES = 8
NUMBERS_PER_CHANGE = 6
"""An id, four borders and an owner."""


@dataclass(frozen=True)
class Setup:
    """SWARM §6: 30 machines, of which 8 route; a round every 15 seconds."""

    executors: int = 22
    routers: int = 8
    round_s: float = 15.0
    pending_max: int = 50_000
    """Events in one machine's queue; about a second of its work at 20 µs each."""
    service: Service = field(default_factory=Service)


class Clock(NamedTuple):
    """What the machines and the sources are at, as the kernel changes it."""

    free_at_s: Floats
    """When each machine has done all that it has."""
    done_at_s: Floats
    """(machines, places): when the event that last took a place in the queue is done."""
    taken: Ints
    """Events that each machine ever took."""
    source_at_s: Floats
    """One number: when the sources can send again."""


class Cluster:
    """Feed it steps; read `spans`, one per round."""

    def __init__(
        self, world: World, setup: Setup, name: str, routing: Routing, coordinator: Coordinator | None = None
    ) -> None:
        """Without a coordinator nothing is ever rebalanced, and no statistics are taken."""
        self.name, self.plan = name, routing.plan
        self.spans: list[Span] = []
        """One per round."""
        self.entries: list[dict[str, Any]] = []
        """What the coordinator would write into the journal."""
        self._world, self._setup, self._routing, self._coordinator = world, setup, routing, coordinator
        self._machines = routing.machines
        places = max(1, setup.pending_max // world.weight)
        self._clock = Clock(
            np.zeros(self._machines),
            np.zeros((self._machines, places)),
            np.zeros(self._machines, np.int64),
            np.zeros(1),
        )
        self._pace_s = max(
            world.step_s / world.events_per_step, setup.service.route_us * 1e-6 * world.weight / setup.routers
        )
        self._expected = world.events_per_step // 2
        self._steps_per_round = max(1, round(setup.round_s / world.step_s))
        self._seen: list[CellIds] = []
        self._work_of_slot: list[tuple[Slots, Floats]] = []
        self._measured: Span | None = None
        self._held = None if self.plan is None else Holdings(world, self.plan, counts=coordinator is not None)
        self._operate(np.arange(world.subscriptions), np.empty(0, np.int64), 0.0)  # before the stream: costs nothing

    def advance(self, step: Step) -> None:
        service, world, start_s = self._setup.service, self._world, step.start_s
        self._operate(step.registered, step.cancelled, service.register_us)
        slots, queries = np.empty(0, np.int32), np.empty(0, np.int64)
        indexed = np.full(len(step.cells), float(step.queries))
        if self.plan is not None and self._held is not None:
            slots = self.plan.route(step.cells)
            queries = self._held.queries_of_slot(self.plan)
            indexed = queries[slots].astype(np.float64)
        work_s = service.event_s(step.met, indexed) * world.weight
        free_at_s = np.maximum(self._clock.free_at_s, start_s)
        routed = self._routing.route(Batch(step.cells, slots, step.met, work_s, queries, self._expected, free_at_s))
        backlog_s = self._delay(start_s, routed.overhead_s + routed.moved * service.move_us * 1e-6 / self._machines)
        sent, latency_s = _serve(self._clock, routed.machines, work_s, start_s, world.step_s, self._pace_s)
        if self._routing.waits:
            latency_s += sent * world.step_s / 2  # for the batch to fill
        self._expected = sent  # a batch is weighed when it has come; the one before tells how long it gets
        busy_s = backlog_s + np.bincount(routed.machines[:sent], work_s[:sent], self._machines)
        busy_s -= np.maximum(self._clock.free_at_s - (start_s + world.step_s), 0.0)
        self._add(
            Span(
                start_s,
                world.step_s,
                step.queries,
                sent * world.weight,
                latency_s * world.weight,
                float(work_s[:sent].sum()),
                tuple(busy_s.tolist()),
                routed.moved,
                0,
                0 if self.plan is None else len(self.plan.partitions),
            )
        )
        if self._coordinator is not None:
            self._seen.append(step.cells[:sent])
            self._work_of_slot.append((slots[:sent], work_s[:sent]))
        if (step.number + 1) % self._steps_per_round == 0:
            self._close_round(start_s + world.step_s)

    def _operate(self, came: Ints, went: Ints, register_us: float) -> None:
        self._routing.changed(came, went)
        if not len(came) and not len(went):
            return
        if self.plan is None or self._held is None:
            share = self._routing.copies / self._machines
            self._clock.free_at_s[:] += (len(came) + len(went)) * share * register_us * 1e-6
            return
        touched = self._held.register(self.plan, came) + self._held.cancel(self.plan, went)
        owners = self.plan.executor_of_slot % self._machines
        self._clock.free_at_s[:] += np.bincount(owners, touched, self._machines) * register_us * 1e-6

    def _delay(self, now_s: float, by_s: Floats) -> Floats:
        """Work that is no event's. Returns each machine's backlog with it."""
        np.maximum(self._clock.free_at_s, now_s, out=self._clock.free_at_s)
        self._clock.free_at_s[:] += by_s
        return self._clock.free_at_s - now_s

    def _add(self, span: Span) -> None:
        self._measured = span if self._measured is None else self._measured + span

    def _close_round(self, now_s: float) -> None:
        self._rebalance(now_s)
        if self._measured is not None:
            self.spans.append(self._measured)
        self._measured = None
        self._seen, self._work_of_slot = [], []

    def _rebalance(self, now_s: float) -> None:
        plan, held, coordinator = self.plan, self._held, self._coordinator
        if plan is None or held is None or coordinator is None:
            return
        held.count(plan, np.concatenate(self._seen))
        outcome = coordinator.close_round(plan, self._load(plan), held.stats, now_s)
        self.entries.append(outcome.entry)
        sent_bytes, moved = self._machines * NUMBERS_PER_EXECUTOR * NUMBER_BYTES, 0
        if outcome.plan is not None:
            by_slot = held.redraw(plan, outcome.plan)
            moved = int(by_slot.sum())
            self.plan = self._routing.plan = outcome.plan
            # The giver sends what the taker indexes; both are busy with it.
            ends = [
                (p.executor, p.executor if p.previous_executor is None else p.previous_executor)
                for p in outcome.plan.partitions
            ]
            hands = np.bincount(np.array(ends).ravel(), np.repeat(by_slot, 2), self._machines)
            self._delay(now_s, hands.astype(np.float64) * self._setup.service.move_us * 1e-6)
            # To m_H: C(m_L), R(S) and an id; to every router: what each change is (SWARM §4.3.1).
            told = 3 + NUMBERS_PER_CHANGE * len(outcome.entry["changes"]) * self._setup.routers
            sent_bytes += told * NUMBER_BYTES
        at_once = Span(
            now_s,
            0.0,
            0.0,
            0,
            0.0,
            0.0,
            (0.0,) * self._machines,
            moved,
            sent_bytes,
            len((outcome.plan or plan).partitions),
        )
        self._add(at_once)

    def _load(self, plan: Plan) -> LoadReport:
        """A drawn world knows which cells queries meet, not which points: `matches` stays 0."""
        slots = np.concatenate([s for s, _ in self._work_of_slot])
        work_s = np.concatenate([w for _, w in self._work_of_slot])
        events = np.bincount(slots, minlength=len(plan.partitions)) * self._world.weight
        cpu_us = np.bincount(slots, work_s * 1e6, len(plan.partitions))
        report = LoadReport(events_in=int(events.sum()))
        for slot, p in enumerate(plan.partitions):
            report.add(p.id, PartitionLoad(p.executor, int(events[slot]), 0, 0, int(cpu_us[slot])))
        return report


NEEDS_NO_PLAN = ("replicated", "per-batch", "per-batch-weighed")
NEVER_REBALANCES = (*NEEDS_NO_PLAN, "static-uniform", "static-history", "over-partitioned")
"""No statistics are taken for these: nobody would read them."""
NAMES = (
    "replicated",
    "static-uniform",
    "static-history",
    "swarm",
    "swarm-measured",
    "over-partitioned",
    "per-batch",
    "per-batch-weighed",
)
"""The strategies of the issue, in the order of the paper and then ours."""


def cluster(name: str, world: World, setup: Setup) -> Cluster:
    """A cluster that runs a strategy by name, from its first plan."""
    kind = strategy("static-uniform" if name in NEEDS_NO_PLAN else name)
    plan = kind.first_plan(world.grid, setup.executors, world.sample() if name == "static-history" else None)
    routing = routing_of(name, world, plan, setup.service, setup.executors, setup.routers)
    return Cluster(world, setup, name, routing, None if name in NEVER_REBALANCES else Coordinator(kind))


def race(world: World, clusters: Iterable[Cluster], horizon_s: float) -> Iterator[float]:
    """All clusters through one world, step by step; yields the time that has been simulated."""
    contestants = list(clusters)
    for step in world.steps(horizon_s):
        for cluster in contestants:
            cluster.advance(step)
        yield step.start_s + world.step_s


@kernel
def _serve(
    clock: Clock, machines: Ints, work_s: Floats, start_s: float, step_s: float, pace_s: float
) -> tuple[int, float]:
    """Send as many of a step's events as its time and the queues allow: (how many, the sum of their latencies)."""
    now_s, end_s = max(clock.source_at_s[0], start_s), start_s + step_s
    places = clock.done_at_s.shape[1]
    sent, latency_s = 0, 0.0
    for i in range(len(machines)):
        machine = machines[i]
        place = clock.taken[machine] % places
        now_s = max(now_s, clock.done_at_s[machine, place])  # the queue is full until this one is done
        if now_s >= end_s:
            break
        done_s = max(now_s, clock.free_at_s[machine]) + work_s[i]
        clock.free_at_s[machine] = done_s
        clock.done_at_s[machine, place] = done_s
        clock.taken[machine] += 1
        latency_s += done_s - now_s
        sent += 1
        now_s += pace_s
    clock.source_at_s[0] = now_s
    return sent, latency_s
