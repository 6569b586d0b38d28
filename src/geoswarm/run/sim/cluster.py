"""A virtual cluster: sources with credits, routers, and machines that serve events in arrival order.

The plan, the statistics, the strategies and the coordinator are the engine's own, no copies; only time is simulated.
`world.py` draws the events, `service.py` has the times of work, `routing.py` finds the machine of an event, and
`race.py` runs several clusters through one world.

    sources ──(a credit each, no faster than the routers)──► routers ──► ▯▯▯▯▯▯▯▯▯▯ machine 0 ──► done ─┐
        ▲                                                           └──► ▯▯ machine 1 ───────────► done ─┤
        └───────────────────────────────── the credit comes back ────────────────────────────────────────┘

Drawn events are served one after the other on their machine, so the latency of each is exact: from the moment that it
is sent until it is done (SWARM §6.1, "execution latency"). The sources offer more than the cluster can take (§2).

*Back-pressure* is that of Storm's `max.spout.pending`: a source has so many events under way, wherever they wait, and
sends the next when one of them is done. Sources are alike, so their credits are one pool here. Credits gather at the
slowest machine, so the stream runs at its pace (§6.2, Fig. 17: sources "reduce the injection rate to match the
processing rate of the slowest machine"); and since the number under way is fixed, mean latency is that number over
throughput (Little's law). The paper names no mechanism. Storm 1.0 has a second one, marks on each machine's own
queue; with it a well balanced cluster would fill all queues instead of one, and latency could not fall with balance.
That contradicts the paper, whose two claims, 3 times the work and a quarter of the latency, fit a fixed number under
way. Storm lets its sources speed up slowly after a stop; ours resume at once.

*Batches.* A routing that needs whole batches (`Routing.waits`) is served as in Spark: a step's events are collected
while the batch before is served, no machine begins a batch before all have done the one before, and a batch has as many
events as its slowest machine can do in one step. Its events wait half a step on average until they are served.

A machine whose queries need more memory than it has fails, and the cluster with it (§6.1: `replicated` beyond 16 M).

*Units of work* are queries in the system × events processed per second (§6.1).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from geoswarm.control.coordinator import Coordinator
from geoswarm.control.outcome import RoundEntry
from geoswarm.control.strategy import WatchedRound
from geoswarm.core.arrays.jit import CellIds, Floats, Ints
from geoswarm.core.space.plan import Plan, Slots
from geoswarm.core.stats.cell_counts import CellCounts
from geoswarm.core.stats.triostat import NUMBERS_PER_EXECUTOR
from geoswarm.errors import SettingsError
from geoswarm.flow.observe import Load, LoadReport
from geoswarm.run.sim.holdings import Holdings
from geoswarm.run.sim.queues import QueueTimes, serve, serve_batch
from geoswarm.run.sim.routing import Routing, RoutingBatch
from geoswarm.run.sim.service import Service
from geoswarm.run.sim.spans import Span
from geoswarm.run.sim.world import Step, World

MATCH_US = 0.4
"""What a match costs on the engine, in its writing above all."""
NUMBER_BYTES = 8
NUMBERS_PER_CHANGE = 6
"""Numbers in a message about a change: an id, four borders and an owner."""


@dataclass(frozen=True)
class ClusterSetup:
    """SWARM §6: 40 machines, of which 10 are sources and 8 route; a round every 15 seconds."""

    executors: int = 22
    routers: int = 8
    sources: int = 10
    round_s: float = 15.0
    pending_max: int = 100_000
    """Credits of each source, together a sixth of a second of the cluster's work with a million queries. The paper has
    no figure; latency is proportional to it, but ratios do not depend on it if each machine has many drawn events."""
    memory_bytes: int = 4 << 30
    """The memory of one machine (§6)."""
    query_bytes: int = 200
    """The memory of one query in an R*-tree, with its part of the tree. The paper's machines held 16 M queries and not
    32 M, so it is 128 to 256; libspatialindex takes 153, GEOS 396. This engine maps 85 from a file that all share."""
    routers_serve: bool = True
    """Whether the machines of the routers serve events where no routers are needed: `replicated` in SWARM §6."""
    batches: bool = False
    """Whether all strategies run in batches, not only those that need them."""
    service: Service = field(default_factory=Service)


def no_clock() -> float:
    """A clock for worlds in which the real time of planning is not measured."""
    return 0.0


class Cluster:
    """Feed it steps; read `spans`, one per round."""

    def __init__(
        self,
        world: World,
        setup: ClusterSetup,
        name: str,
        routing: Routing,
        coordinator: Coordinator | None = None,
        cpu_s: Callable[[], float] = no_clock,
    ) -> None:
        """Without a coordinator there are no rounds and no statistics. `cpu_s` is a clock for the real planning time:
        the simulated world does not depend on it."""
        self.name = name
        self.spans: list[Span] = []
        """One span per round, until the cluster failed."""
        self.entries: list[RoundEntry] = []
        """What the coordinator would write into the journal."""
        self.watched: WatchedRound | None = None
        """The places that would have changed in the last round, if events were not dealt out."""
        self.failed_at_s: float | None = None
        """When a machine's memory became too small."""
        self._world, self._setup, self._routing, self._coordinator = world, setup, routing, coordinator
        self._cpu_s, self._machines = cpu_s, routing.machines
        credits = max(1, setup.sources * setup.pending_max // world.weight)
        self._clock = QueueTimes(np.zeros(self._machines), np.zeros(credits), np.zeros(1))
        self._pace_s = max(
            world.step_s / world.events_per_step, setup.service.route_us * 1e-6 * world.weight / setup.routers
        )
        self._expected = world.events_per_step // 2
        self._steps_per_round = round(setup.round_s / world.step_s)
        if abs(self._steps_per_round * world.step_s - setup.round_s) > 1e-9 or not self._steps_per_round:
            raise SettingsError(
                f"rounds of {setup.round_s:g} s are no whole steps of {world.step_s:g} s: use a multiple"
            )
        self._live = world.subscriptions * world.query_weight
        self._seen: list[CellIds] = []
        self._matches: list[Floats] = []
        self._work_of_slot: list[tuple[Slots, Floats]] = []
        self._measured: Span | None = None
        self._held = Holdings(world, self.plan, counts=coordinator is not None) if routing.holds else None
        # Queries from before the start cost no time.
        self._operate(np.arange(world.subscriptions), np.empty(0, np.int64), 0.0, 0.0)

    @property
    def plan(self) -> Plan:
        return self._routing.plan

    def advance(self, step: Step) -> None:
        service, world, start_s = self._setup.service, self._world, step.start_s
        if self.failed_at_s is None:
            self._operate(step.registered, step.cancelled, service.register_us, start_s)
        if self.failed_at_s is not None:
            return
        self._live = step.queries
        slots, queries = np.empty(0, np.int32), np.empty(0, np.int64)
        indexed = np.full(len(step.cells), float(step.queries))
        if self._held is not None:
            slots = self.plan.route(step.cells)
            queries = self._held.queries_of_slot(self.plan)
            indexed = queries[slots].astype(np.float64)
        work_s = service.event_s(step.met, indexed) * world.weight
        free_at_s = np.maximum(self._clock.free_at_s, start_s)
        routed = self._routing.route(RoutingBatch(step.cells, slots, work_s, queries, self._expected, free_at_s))
        # The giver of a query is as busy with it as its taker.
        moves_s = 2 * routed.moved * service.move_us * 1e-6 / self._machines
        backlog_s = self._delay(start_s, routed.overhead_s + moves_s)
        if self._routing.waits:
            sent, latency_s, load_s = serve_batch(backlog_s, routed.machines, work_s, world.step_s, self._pace_s)
            self._clock.free_at_s[:] = start_s + load_s
        else:
            sent, latency_s = serve(self._clock, routed.machines, work_s, start_s, world.step_s, self._pace_s)
        wait_s = sent * world.step_s / 2 if self._routing.waits else 0.0
        self._expected = sent  # the size of a batch is only known afterwards; the last one predicts it
        busy_s = backlog_s + np.bincount(routed.machines[:sent], work_s[:sent], self._machines)
        busy_s -= np.maximum(self._clock.free_at_s - (start_s + world.step_s), 0.0)
        self._add(
            Span(
                start_s,
                world.step_s,
                step.queries,
                sent * world.weight,
                (latency_s + wait_s) * world.weight,
                float(work_s[:sent].sum()),
                tuple(busy_s.tolist()),
                routed.moved,
                0,
                len(self.plan.partitions),
                wait_s * world.weight,
                routed.driver_s,
            )
        )
        if self._coordinator is not None:
            self._matches.append(step.met[:sent].astype(np.float64) * (service.met_us * world.weight / MATCH_US))
            self._seen.append(step.cells[:sent])
            self._work_of_slot.append((slots[:sent], work_s[:sent]))
        if (step.number + 1) % self._steps_per_round == 0:
            self._close_round(start_s + world.step_s)

    def _operate(self, came: Ints, went: Ints, register_us: float, now_s: float) -> None:
        if not len(came) and not len(went):
            return
        self._routing.note_changes(came, went)
        if self._held is None:  # they are written to a file that all machines map
            touched = np.full(self._machines, (len(came) + len(went)) * self._world.query_weight / self._machines)
        else:
            touched = self._by_machine(self._held.register(self.plan, came) + self._held.cancel(self.plan, went))
            held_bytes = self._by_machine(self._held.queries_of_slot(self.plan)).max() * self._setup.query_bytes
            if held_bytes > self._setup.memory_bytes:
                self.failed_at_s = now_s
        self._clock.free_at_s[:] += touched * register_us * 1e-6

    def _by_machine(self, of_slot: Ints) -> Floats:
        """Sums by machine; a slot that is spread counts for each of its machines."""
        turns = self.plan.turns
        once = np.unique(turns.lane)
        owners, slots = turns.owner[once], turns.slot[once]
        return np.bincount(owners % self._machines, of_slot[slots], self._machines).astype(np.float64)

    def _delay(self, now_s: float, by_s: Floats) -> Floats:
        """Adds work that belongs to no event. Returns each machine's backlog after it."""
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
        self._seen, self._matches, self._work_of_slot = [], [], []

    def _rebalance(self, now_s: float) -> None:
        plan, held, coordinator = self.plan, self._held, self._coordinator
        if held is None or coordinator is None:
            return
        held.count(plan, np.concatenate(self._seen))
        load, began_s = self._load(plan), self._cpu_s()
        outcome = coordinator.close_round(plan, load, held.stats, now_s, subscriptions=self._live)
        self.entries.append(outcome.entry)
        self.watched = outcome.watched
        sent_bytes, moved = self._machines * NUMBERS_PER_EXECUTOR * NUMBER_BYTES, 0
        by_slot = held.redraw(plan, outcome.plan) if outcome.plan is not None else np.empty(0, np.int64)
        driver_s = self._cpu_s() - began_s  # with finding the queries of new partitions, which the engine also does
        if outcome.plan is not None:
            moved = int(by_slot.sum())
            self._routing.plan = outcome.plan
            # The giver sends and the taker indexes, so both are busy.
            hands = np.zeros(self._machines)
            for p, queries in zip(outcome.plan.partitions, by_slot.tolist(), strict=True):
                hands[list(p.owners)] += queries / len(p.owners)
                hands[p.executor if p.previous_executor is None else p.previous_executor] += queries
            self._delay(now_s, hands * self._setup.service.move_us * 1e-6)
            # To m_H: C(m_L), R(S) and an id; to every router: what each change is (SWARM §4.3.1).
            numbers = 3 + NUMBERS_PER_CHANGE * len(outcome.entry.changes) * self._setup.routers
            sent_bytes += numbers * NUMBER_BYTES
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
            driver_s=driver_s,
        )
        self._add(at_once)

    def _load(self, plan: Plan) -> LoadReport:
        """The load of the round. A drawn world knows which cells queries meet, not which points: `matches` are as many
        as would take as long as these queries."""
        slots = np.concatenate([s for s, _ in self._work_of_slot])
        work_s = np.concatenate([w for _, w in self._work_of_slot])
        events = np.bincount(slots, minlength=len(plan.partitions)) * self._world.weight
        cpu_us = np.bincount(slots, work_s * 1e6, len(plan.partitions))
        report = LoadReport(events_in=int(events.sum()))
        cells, matches = np.concatenate(self._seen).astype(np.int64), np.concatenate(self._matches)
        report.cells = CellCounts.of(cells, np.full(len(cells), float(self._world.weight)), matches)
        matches_of_slot = np.bincount(slots, matches, len(plan.partitions))
        for slot, p in enumerate(plan.partitions):
            for executor, turns in Counter(p.turns).items():
                share = turns / len(p.turns)
                counted = (int(of_slot[slot] * share) for of_slot in (events, matches_of_slot, cpu_us))
                served, found, spent_us = counted
                report.add(p.id, executor, Load(served, 0, found, spent_us))
        return report
