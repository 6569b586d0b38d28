"""PS2Stream's machines on a virtual clock: dispatchers, and workers that keep queries of their own.

The engine has no such workers: there, queries are stored in segments that all map, and a change of plan moves none.
These machines are for the paper's experiments with migration (§VI-D). Strategies, plans and layouts are the engine's
own; `words_stream.py` draws the stream and explains lists, `words_kernels.py` has the loops over tuples, and
`words_spans.py` the measurements.

    tuple ──► dispatcher ──► every worker that has one of its lists ──► c2 + c1 × entries of these lists    an event
                        └──► every worker that is to have it ─────────► c3 × entries there, or c4           a change

Definition 1 has c1 for each pair of an event and a query of a worker; the index (§IV-D) looks at the pairs that share a
list, so c1 is per such pair here. Strategies can still be set to judge by Definition 1 as in the paper.

**A cell is the unit of migration** (§V-A), so the plan that a layout draws is cut into cells at the start. When a plan
changes, the most loaded worker first chooses cells (`choose_s`), then packs their queries, which cross the network, and
the other worker indexes them. Both do that instead of their work, and events of these cells wait for it.

**A fresh plan** (§V-B) is for queries that come from then on. Older ones stay where they are, so events follow both
plans; when few are left they are migrated and the older plan ends. No cells are handed over in the meantime.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from geoswarm.control.balance.tally import plan_arrays, slots_of
from geoswarm.control.coordinator import Coordinator
from geoswarm.control.layout.load_model import COSTS, Costs
from geoswarm.control.outcome import RoundEntry
from geoswarm.control.strategy import RoundReport, Sample, Strategy
from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.errors import InputError
from geoswarm.flow.observe import Load, LoadReport
from geoswarm.run.sim.words_kernels import (
    ListRouting,
    ServedTuples,
    count_moved,
    latencies,
    serve_changes,
    serve_events,
)
from geoswarm.run.sim.words_spans import LATENCIES_S, MachinesSpan
from geoswarm.run.sim.words_stream import TextRun, TextScale, TextStep


@dataclass(frozen=True)
class MachinesSetup:
    workers: int = 8
    dispatchers: int = 4
    costs: Costs = COSTS
    """Measured on the engine's own index; the paper gives no figures."""
    dispatch_us: float = 1.0
    move_us: float = COSTS.c3_insertion
    """Per migrated query, for giver and taker: as much as inserting it."""
    bytes_per_s: float = 60e6
    """The speed of the network between two machines, which is "moderate" in the paper."""
    offered_per_s: float = 100_000.0
    """The offered rate, for latencies. Throughput is measured as if more were offered than can be served."""
    old_share_min: float = 0.1
    """When a smaller share of queries follows the older plan, these are migrated."""
    sample_events: int = 3000
    sample_queries: int = 10_000
    """The most queries in a strategy's sample."""

    def sample_costs(self, scale: TextScale) -> Costs:
        """The costs for a strategy's sample, in which a drawn query stands for many."""
        queries, events = min(self.sample_queries, scale.live), min(self.sample_events, scale.events)
        stands_for = scale.live * scale.query_weight / queries
        # The number of the sample's queries that come during its events.
        come_share = events / (2 * scale.posts_per_change * queries)
        costs = self.costs
        return Costs(
            costs.c1_check * stands_for,
            costs.c2_event,
            costs.c3_insertion * come_share,
            costs.c4_deletion * come_share,
        )


class _Migration(NamedTuple):
    lists: Bools
    size_bytes: float
    queries: float
    busy_s: Floats
    migration_s: float
    cells: int


@dataclass
class Machines:
    stream: TextRun
    plan: Plan
    """A plan in cells, as `in_cells` makes it."""
    strategy: Strategy | None = None
    setup: MachinesSetup = field(default_factory=MachinesSetup)
    choose_s: float = 0.0
    """The time that choosing cells takes on the worker that chooses."""
    entries: list[RoundEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        stream, live = self.stream, self.stream.scale.live
        self._coordinator = None if self.strategy is None else Coordinator(self.strategy, trusts=True)
        self._rng = np.random.default_rng(stream.posts.seed)
        self._alive = np.zeros(stream.count, np.bool_)
        self._is_old = np.zeros(stream.count, np.bool_)
        self._new: ListRouting = self._list_routing(self.plan)
        self._old: ListRouting | None = None
        self._count(np.arange(live), 1)
        self._alive[:live] = True
        self._now_s = 0.0
        self._backlog_s = np.zeros(self.setup.workers + 1)
        """The backlog of each worker, and of the dispatchers."""
        self._moved = self._nothing()

    def step(self, number: int) -> MachinesSpan:
        step, moved = self.stream.step(number), self._moved
        self._count(step.inserted, 1)
        self._alive[step.inserted] = True
        events, inserted, deleted = self._serve(step)
        self._count(step.deleted, -1)
        self._alive[step.deleted] = self._is_old[step.deleted] = False
        span = self._span(step, events, inserted, deleted, moved)
        self._moved = self._nothing()
        if self._old is not None:
            self._drain()
        elif self._coordinator is not None:
            self._decide(step, events, inserted, deleted)
        return span

    def run(self, first: int = 0, end: int | None = None) -> list[MachinesSpan]:
        return [self.step(number) for number in range(first, self.stream.steps if end is None else end)]

    def fork(self, strategy: Strategy | None, setup: MachinesSetup | None = None, choose_s: float = 0.0) -> "Machines":
        """Idle machines with the same queries and plan, and another strategy."""
        if self._old is not None:
            raise InputError("two plans are in force: fork before a fresh plan comes, or when the older one has ended")
        other = Machines(self.stream, self.plan, strategy, setup or self.setup, choose_s)
        other._alive, other._new = self._alive.copy(), self._new._replace(counts=self._new.counts.copy())
        return other

    def recent(self, step: TextStep) -> Sample:
        setup = self.setup
        events = self._rng.permutation(step.events)[: setup.sample_events]
        return self.stream.sample(events, self._rng.permutation(np.flatnonzero(self._alive))[: setup.sample_queries])

    def _serve(self, step: TextStep) -> tuple[ServedTuples, ServedTuples, ServedTuples]:
        stream, costs, workers = self.stream, self.setup.costs, self.setup.workers
        check_us = costs.c1_check * stream.scale.query_weight
        old = self._old or self._new
        both = self._old is not None
        events = serve_events(
            step.events,
            stream.of_events,
            self._new,
            old,
            both,
            self._moved.lists,
            stream.is_sent,
            (check_us, costs.c2_event),
            workers,
        )
        inserted, deleted = (
            serve_changes(rows, stream.of_queries, self._new, old, self._is_old, costs_us, workers)
            for rows, costs_us in ((step.inserted, (0.0, costs.c3_entry)), (step.deleted, (costs.c4_deletion, 0.0)))
        )
        return events, inserted, deleted

    def _span(
        self, step: TextStep, events: ServedTuples, inserted: ServedTuples, deleted: ServedTuples, moved: _Migration
    ) -> MachinesSpan:
        scale, setup = self.stream.scale, self.setup
        weights = (scale.event_weight, float(scale.query_weight), float(scale.query_weight))
        parts, counts = (events, inserted, deleted), [len(rows) for rows in step]
        work_s = np.zeros(setup.workers)
        for part, weight in zip(parts, weights, strict=True):
            work_s += np.bincount(part.workers, part.us, minlength=setup.workers) * (weight * 1e-6)
        tuples = float(np.dot(weights, counts))
        dispatch_s = tuples * setup.dispatch_us * 1e-6 / setup.dispatchers
        latency = self._latency(parts, np.repeat(weights, counts), np.append(work_s, dispatch_s), moved)
        reached = np.diff(events.offsets)
        alive = max(1, int(np.count_nonzero(self._alive)))
        return MachinesSpan(
            tuples,
            work_s + moved.busy_s,
            dispatch_s,
            float(np.maximum(reached - 1, 0).sum()) * weights[0],
            float(np.count_nonzero(reached == 0)) * weights[0],
            latency,
            moved.size_bytes,
            moved.queries,
            moved.migration_s,
            moved.cells,
            float(np.count_nonzero(self._is_old & self._alive)) / alive,
        )

    def _latency(self, parts: tuple[ServedTuples, ...], weights: Floats, work_s: Floats, moved: _Migration) -> Floats:
        """The number of tuples of each class of latency.

        Work comes evenly over the step, so a machine's backlog grows or shrinks linearly. Random arrivals are left
        out: at such rates they add a millisecond."""
        span_s = float(weights.sum()) / self.setup.offered_per_s
        backlog_s = self._backlog_s + np.append(moved.busy_s, 0.0)
        growth = work_s / span_s - 1.0
        offsets = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)]).cumsum()
        workers, us, waits = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3))
        together = ServedTuples(offsets, workers, us, waits, parts[0].slot_us, parts[0].slot_events)
        at_s = self._rng.uniform(0.0, span_s, len(weights))
        self._backlog_s = np.maximum(0.0, backlog_s + growth * span_s)
        self._now_s += span_s
        return latencies(at_s, together, weights, backlog_s, growth, moved.migration_s, np.array(LATENCIES_S))

    def _decide(self, step: TextStep, events: ServedTuples, inserted: ServedTuples, deleted: ServedTuples) -> None:
        assert self._coordinator is not None
        weights = (self.stream.scale.event_weight, *2 * (self.stream.scale.query_weight,))
        us = np.dot(weights, [part.slot_us for part in (events, inserted, deleted)])
        report = LoadReport(events_in=len(step.events))
        for part, cpu_us, seen in zip(self.plan.partitions, us.tolist(), events.slot_events.tolist(), strict=True):
            if cpu_us:
                report.add(part.id, part.executor, Load(int(seen), 0, 0, round(cpu_us)))
        self._coordinator.rounds += 1
        round_report = RoundReport(self._coordinator.rounds, self._now_s, report, {}, self.recent(step))
        plan, entry, _ = self._coordinator.decide(self.plan, round_report)
        self.entries.append(entry)
        if plan is None:
            return
        if plan.partitions[0].id >= self.plan.next_partition_id:  # no partition of the plan before is left
            self._take_over(plan)
        else:
            after = self._list_routing(plan, self._new.counts)
            self._moved = self._migration(self._new, after, self._alive)
            self.plan, self._new = plan, after

    def _take_over(self, fresh: Plan) -> None:
        """Puts two plans in force: this one, and the one before it for the queries that it has."""
        self._old, self._is_old = self._new, self._alive.copy()
        self.plan = in_cells(fresh, fresh.drawn_by, first_id=fresh.next_partition_id)
        self._new = self._list_routing(self.plan)

    def _drain(self) -> None:
        assert self._old is not None
        left = self._is_old & self._alive
        if np.count_nonzero(left) > self.setup.old_share_min * np.count_nonzero(self._alive):
            return
        self._moved = self._migration(self._old, self._new, left)
        self._new = self._new._replace(counts=self._new.counts + self._old.counts)
        self._old, self._is_old = None, np.zeros_like(self._is_old)

    def _migration(self, before: ListRouting, after: ListRouting, queries: Bools) -> _Migration:
        """The time and bytes of moving these queries from one plan to another."""
        setup, weight = self.setup, self.stream.scale.query_weight
        rows, sizes = np.flatnonzero(queries), self.stream.query_bytes
        out, came, size_bytes, lists = count_moved(rows, self.stream.of_queries, before, after, sizes, setup.workers)
        busy_s = (out + came) * (weight * setup.move_us * 1e-6)
        if out.sum():
            busy_s[int(np.argmax(out))] += self.choose_s
        # Packing, network and indexing work at the same time; the slowest of them sets the pace.
        span_s = max(busy_s.max(), float(size_bytes) * weight / setup.bytes_per_s)
        cells = int(np.count_nonzero(np.bincount(self.stream.cell_of_list[lists])))
        return _Migration(lists, float(size_bytes) * weight, float(out.sum()) * weight, busy_s, span_s, cells)

    def _nothing(self) -> _Migration:
        return _Migration(np.zeros(self.stream.lists, np.bool_), 0.0, 0.0, np.zeros(self.setup.workers), 0.0, 0)

    def _list_routing(self, plan: Plan, counts: Ints | None = None) -> ListRouting:
        stream = self.stream
        places = plan.slot_of_cell[stream.cell_of_list].astype(np.int64)
        slots = slots_of(places, stream.term_of_list, plan_arrays(plan, stream.text.hashes))
        counts = np.zeros(stream.lists, np.int64) if counts is None else counts
        return ListRouting(slots, plan.executor_of_slot.astype(np.int64), counts)

    def _count(self, queries: Ints, by: int) -> None:
        """Adds queries to their lists, or removes them; old queries follow the older plan."""
        of = self.stream.of_queries
        old = self._is_old[queries]
        for routing, some in ((self._new, queries[~old]), (self._old, queries[old])):
            if routing is not None and len(some):
                lengths = of.offsets[some + 1] - of.offsets[some]
                ends = np.cumsum(lengths)
                at = np.arange(ends[-1]) + np.repeat(of.offsets[some] - ends + lengths, lengths)
                np.add.at(routing.counts, of.terms[at], by)


def in_cells(plan: Plan, drawn_by: str = "", first_id: int = 0) -> Plan:
    """The same plan with a partition for every cell, or for every share of its terms."""
    cells: dict[tuple[int, int], list[Partition]] = {}
    for p in plan.partitions:
        for row in range(p.row0, p.row1 + 1):
            for column in range(p.col0, p.col1 + 1):
                cell = Partition(0, row, column, row, column, p.executor, cut=p.cut, shares=p.shares)
                cells.setdefault((row, column), []).append(cell)
    ordered = [cell for key in sorted(cells) for cell in cells[key]]
    numbered = tuple(replace(cell, id=first_id + i) for i, cell in enumerate(ordered))
    return Plan(plan.epoch, plan.grid, plan.executors, numbered, first_id + len(numbered), drawn_by, plan.cuts)
