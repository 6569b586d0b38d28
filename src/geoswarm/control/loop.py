"""The control plane of a running engine: counts go in batch by batch, a new plan comes out when a round ends.

    churn, reports ─> statistics ─> [a round is over] ─> coordinator ─> plan, entry for the journal

Each batch brings its time, so a replay of the same batches takes the same decisions. The statistics are not stored:
after a restart the live queries are counted again, and points begin at zero, because their counts fade anyway.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from geoswarm.control.balance.static import Static
from geoswarm.control.coordinator import Coordinator, RoundOutcome, fresh_plan_entry
from geoswarm.control.layout.dealt import is_dealt
from geoswarm.control.outcome import RoundEntry
from geoswarm.control.strategy import PlansBatches, ReadsCells, Sample, Strategy, draws_from_sample
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.grid import CellBox
from geoswarm.core.space.overlap import overlap
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.density import Density
from geoswarm.core.stats.redraw import queries_near, redraw_stats
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.errors import InputError
from geoswarm.flow.observe import LoadReport, Quote

SAMPLE_MAX = 10_000
"""The most events, and the most subscriptions, that a sample for a strategy has."""

HURRY, HURRY_EVENTS = 2.0, 500
"""Of the mean: a round ends at once if the costliest executor of a batch has more, and the batch has so many events for
each executor that it is no chance."""


class QuerySource(Protocol):
    """The subscriptions in force, as a checkpoint offers them."""

    def live_rects(self) -> Floats:
        """The rectangles of all subscriptions, (n, 4)."""

    def some_queries(self, most: int) -> tuple[Floats, pa.StringArray]:
        """Rectangles and keywords of at most `most` subscriptions, chosen evenly."""

    def live_count(self) -> int:
        """How many there are, about: those that expired may still be among them."""


class ControlLoop:
    def __init__(self, strategy: Strategy, plan: Plan, round_s: float, queries: QuerySource) -> None:
        """`queries` are read at the start, when partitions are new, and for strategies that need a sample."""
        self.plan = plan
        self._coordinator, self._round_s, self._queries = Coordinator(strategy), round_s, queries
        self._said: deque[Quote] = deque(maxlen=SAMPLE_MAX)
        self._stats: dict[int, TrioStat] = {}
        self._density = Density(plan.grid)
        if self.needs_stats:
            self._stats = {p.id: TrioStat.empty(p) for p in plan.partitions}
            self._count(queries.live_rects(), TrioStat.add_queries)
        if self._weighs_queries:
            self._density.add(self._boxes(queries.live_rects()))
        for stat in self._stats.values():
            stat.close_round()  # these queries did not arrive in the round that begins now
        self._load = LoadReport()
        self._began_s: float | None = None
        self._was_refused = False
        self._hurries = True

    @property
    def needs_stats(self) -> bool:
        return self._coordinator.strategy.needs_stats

    @property
    def needs_cells(self) -> bool:
        strategy = self._coordinator.strategy
        return isinstance(strategy, ReadsCells) and strategy.reads_cells

    @property
    def _levels_at_once(self) -> bool:
        """Whether one round is enough for the strategy, whatever has happened."""
        return isinstance(self._coordinator.strategy, ReadsCells)

    @property
    def plans_batches(self) -> bool:
        return isinstance(self._coordinator.strategy, PlansBatches)

    def plan_batch(self, batch_id: int, events_of_cell: Ints) -> RoundOutcome:
        """The plan for this batch, from a strategy that draws one for every batch."""
        strategy, before = self._coordinator.strategy, self.plan
        assert isinstance(strategy, PlansBatches)
        queries = self._density.of_cells()
        self.plan = strategy.plan_batch(before, events_of_cell, queries)
        why: dict[str, int | str] = {"decision": f"drawn for batch {batch_id}", "events": int(events_of_cell.sum())}
        return RoundOutcome(self.plan, fresh_plan_entry(before, self.plan, self._coordinator.rounds, why))

    @property
    def draws_from_batch(self) -> bool:
        """Whether the strategy has drawn no plan yet, and waits for a sample of the first batch."""
        strategy = self._coordinator.strategy
        return draws_from_sample(strategy) and not self._was_refused and self.plan.drawn_by != strategy.name

    def plan_from_batch(self, batch_id: int, points: Floats, texts: pa.StringArray) -> RoundOutcome:
        """A first plan from some events of a batch and from the subscriptions in force."""
        strategy, before = self._coordinator.strategy, self.plan
        entry = RoundEntry(self._coordinator.rounds, strategy.name, before.epoch, "kept")
        if not len(points):  # the next batch may have some
            return RoundOutcome(None, replace(entry, why={"decision": f"batch {batch_id} is empty"}))
        sample = self._sample_with(points, texts)
        why: dict[str, int | str] = {"decision": f"first plan, drawn from batch {batch_id}"}
        why |= {"events": len(points), "subscriptions": len(sample.rects)}
        try:
            fresh = strategy.first_plan(before.grid, before.executors, sample)
        except InputError as error:
            self._was_refused = True  # other batches are no different
            return RoundOutcome(None, replace(entry, outcome="refused", why=why, reason=str(error)))
        self._redraw(before.replace_by(fresh, strategy.name))
        return RoundOutcome(self.plan, fresh_plan_entry(before, self.plan, self._coordinator.rounds, why))

    def scale(self, executors: int) -> RoundOutcome:
        """Changes the number of executors from the next batch on. A strategy that follows the load fills the new ones;
        a static one draws a first plan again, from the next batch if it needs a sample."""
        before, strategy = self.plan, self._coordinator.strategy
        plan = before.with_executors(executors)
        if isinstance(strategy, Static):
            if draws_from_sample(strategy):
                plan = replace(plan, drawn_by="")
            else:
                with suppress(InputError):  # it needs a sample, and there is none: new executors stay idle
                    plan = before.replace_by(strategy.first_plan(before.grid, executors, None), strategy.name)
        elif self._levels_at_once and self._coordinator.last_report is not None:  # no need to wait for another round
            levelled = self._coordinator.decide(plan, self._coordinator.last_report).plan
            plan = plan if levelled is None else replace(levelled, epoch=plan.epoch)
        elif draws_from_sample(strategy) and self._coordinator.last_report is None:
            plan = replace(plan, drawn_by="")  # nothing is measured yet: the next batch is the sample
        self._load = LoadReport()  # it was measured with another number of executors
        self._was_refused = False
        self._redraw(plan)
        why: dict[str, int | str] = {"decision": f"scaled from {before.executors} to {plan.executors} executors"}
        return RoundOutcome(plan, fresh_plan_entry(before, plan, self._coordinator.rounds, why))

    def add_batch(
        self, came: Sequence[Floats], went: Sequence[Floats], report: LoadReport, now_s: float
    ) -> RoundOutcome | None:
        """Counts a finished batch. Returns an outcome if a round has ended; its plan holds from the next batch on."""
        if self.needs_stats:
            for rects in came:
                self._count(rects, TrioStat.add_queries)
            for rects in went:
                self._count(rects, TrioStat.remove_queries)
        if self._weighs_queries:
            for rects in came:
                self._density.add(self._boxes(rects))
            for rects in went:
                self._density.add(self._boxes(rects), -1)
        for partition, counted in report.stats.items():
            self._stats[partition] = self._stats[partition] + counted
        self._said += report.said
        if self._began_s is None:
            self._began_s = now_s  # workers started in this batch, so its times do not depend on places
            return None
        self._load += replace(report, stats={}, said=[])  # both were added above
        hurries = self._hurries and self._is_far_off(report)
        if hurries:
            self._load = replace(report, stats={}, said=[])  # what was before means nothing any more
        elif now_s - self._began_s < self._round_s:
            return None
        live = self._queries.live_count() if self._levels_at_once else 0
        outcome = self._coordinator.close_round(self.plan, self._load, self._stats, now_s, self._sample(), live)
        self._load, self._began_s = LoadReport(), now_s
        self._hurries = not hurries or outcome.plan is not None  # it did not help: the next round has its time
        if outcome.plan is not None:
            self._redraw(outcome.plan)
        return outcome

    def _is_far_off(self, report: LoadReport) -> bool:
        """Whether a batch is so unbalanced that a strategy which can level in one round should not wait for its end."""
        spent = np.zeros(self.plan.executors)
        for executor, load in report.executors.items():
            spent[executor] = load.cpu_us
        is_large = report.events >= HURRY_EVENTS * self.plan.executors
        can_level = self._levels_at_once and not is_dealt(self.plan)
        return can_level and is_large and float(spent.max()) > HURRY * float(spent.mean())

    def _sample(self) -> Sample | None:
        if not self._coordinator.strategy.needs_sample or not self._said:
            return None
        points = np.array([(said.x, said.y) for said in self._said])
        return self._sample_with(points, pa.array([said.text for said in self._said], pa.string()))

    def _sample_with(self, points: Floats, texts: pa.StringArray) -> Sample:
        rects, keywords = self._queries.some_queries(SAMPLE_MAX)
        return Sample(points, rects, texts, keywords, max(1.0, self._queries.live_count() / max(1, len(rects))))

    @property
    def _weighs_queries(self) -> bool:
        strategy = self._coordinator.strategy
        return isinstance(strategy, PlansBatches) and strategy.weighs_queries

    def _boxes(self, rects: Floats) -> CellBox:
        return self.plan.grid.cover(*np.ascontiguousarray(rects.T))

    def _count(self, rects: Floats, verb: Callable[[TrioStat, CellBox], None]) -> None:
        """Applies `verb` to the statistics of each partition, with the queries that meet it."""
        if not len(rects):
            return
        boxes = self._boxes(rects)
        met = overlap(self.plan, boxes)
        query = np.repeat(np.arange(len(rects)), np.diff(met.offsets))
        order = np.argsort(met.slots, kind="stable")
        ends = np.cumsum(np.bincount(met.slots, minlength=len(self.plan.partitions)))
        for slot, partition in enumerate(self.plan.partitions):
            mine = query[order[ends[slot - 1] if slot else 0 : ends[slot]]]
            if len(mine):
                verb(self._stats[partition.id], CellBox(*(side[mine] for side in boxes)))

    def _redraw(self, plan: Plan) -> None:
        """Counts the queries of new partitions only: a plan that only moves partitions reads no subscription."""
        self.plan = plan
        if not self.needs_stats:
            return
        new = [p for p in plan.partitions if p.id not in self._stats]
        near = queries_near(self._queries.live_rects(), plan.grid, new) if new else None
        queries = {} if near is None else {p.id: near for p in new}
        self._stats = redraw_stats(self._stats, plan, queries)
