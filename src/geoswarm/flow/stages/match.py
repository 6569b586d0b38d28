"""Unpack, match and observe: the work of a task after the exchange, for one executor or several.

`matchers.py` chooses the matcher of a parcel.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from geoswarm.config import EXECUTORS_MAX
from geoswarm.flow.aggregates.count import EventCounter
from geoswarm.flow.exchange import pack_parcels
from geoswarm.flow.match.match import MatchRun
from geoswarm.flow.merge import as_arrays, as_pairs
from geoswarm.flow.observe import (
    PARCEL_QUOTES_MAX,
    RUN_CELLS,
    RUN_CELLS_MIN,
    TASK_CELLS,
    TASK_QUOTES_MAX,
    Load,
    LoadReport,
    count_points,
    quote_events,
    sample_cells,
)
from geoswarm.flow.rivals.route_areas import events_at_home
from geoswarm.flow.route import Parcel
from geoswarm.flow.route_terms import COPIES, EVENT_NUMBER
from geoswarm.flow.stages.aggregates import event_counter, send_counted
from geoswarm.flow.stages.matchers import match_parcels
from geoswarm.flow.stages.task import BatchTask, Body
from geoswarm.model import TEXT

Shape = Callable[[MatchRun, int, LoadReport], Iterator[pa.RecordBatch]]
"""Takes matches, the executor, and its counts so far; returns rows."""


def match_events(task: BatchTask) -> Body:
    """The matches as they go out: the event's own columns and `sub_ids`, or `sub_id` when pairs are asked for. Where
    objects are followed, also the events that met no subscription."""
    shape = partial(as_arrays, every=task.follows) if task.shape == "arrays" else as_pairs
    return _match_and(lambda met, executor, counted: shape(met), task)


def match_parts(task: BatchTask) -> Body:
    """Where an event may come back in several rows: its matches here, packed for the executor that merges them."""
    return _match_and(partial(_to_merger, task.plan().executors, task.follows), task)


def _match_and(shape: Shape, task: BatchTask) -> Body:
    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clock = _ExecutorClock(task)
        counter = None if task.splits_events else event_counter(task)  # parts are counted when they are merged
        shaped = shape if counter is None else _counting(shape, counter)
        asks_for_words = any(segment.text is not None for segment in task.subscriptions())
        served = match_parcels(batches, task)  # not timed: the first partition would be charged for all
        for parcel, runs in served:
            counted = clock.turn_to(parcel.executor)
            if asks_for_words and TEXT.name in parcel.events.schema.names:
                counted.said += quote_events(parcel.events, min(PARCEL_QUOTES_MAX, TASK_QUOTES_MAX - len(counted.said)))
            yield from _serve(parcel, runs, parcel.executor, task, shaped, counted)
        clock.end_turns()
        if counter is not None:
            send_counted(task, "match", number, counter)
        reports = clock.reports(number)
        next(iter(reports.values())).late = 0 if counter is None else counter.late
        for executor, counted in reports.items():
            task.state.report("match", executor, counted)

    return run


def _counting(shape: Shape, counter: EventCounter) -> Shape:
    """The same for what is left to be reported."""
    return lambda met, executor, counted: shape(counter.take(met), executor, counted)


class _ExecutorClock:
    """The reports of the executors that a task serves, and the CPU time of the task divided among them: each has what
    passed while its parcels were served, an equal part of what passed before the first, and of what passes after the
    last, when the counted events of all are put together, a part by its matches."""

    def __init__(self, task: BatchTask) -> None:
        self._cpu_s, self._name = task.cpu_s, task.name_task()
        self._since_s, self._first_s, self._last_s = task.cpu_s(), 0.0, 0.0
        self._counted: dict[int, LoadReport] = {}
        self._spent_s: dict[int, float] = {}
        self._now_with: int | None = None

    def turn_to(self, executor: int) -> LoadReport:
        self._stop()
        self._now_with = executor
        return self._counted.setdefault(executor, LoadReport(task=self._name))

    def end_turns(self) -> None:
        """What passes from now on is for all executors."""
        self._stop()
        self._now_with = None

    def reports(self, number: int) -> dict[int, LoadReport]:
        """By executor; the task with this number, if it has no parcels, reports under one that no executor has: its
        executors are not known to it, and another task may serve what it would take for one of them."""
        self._stop()
        if not self._counted:
            self.turn_to(EXECUTORS_MAX + number)
        matches = {e: sum(load.matches for load in c.partitions.values()) for e, c in self._counted.items()}
        total = sum(matches.values())
        for executor, counted in self._counted.items():
            own_s = self._spent_s.get(executor, 0.0) + self._first_s / len(self._counted)
            own_s += self._last_s * (matches[executor] / total if total else 1 / len(self._counted))
            counted.task_cpu_us = round(own_s * 1e6)
        return self._counted

    def _stop(self) -> None:
        now_s = self._cpu_s()
        if self._now_with is None and not self._counted:
            self._first_s += now_s - self._since_s
        elif self._now_with is None:
            self._last_s += now_s - self._since_s
        else:
            self._spent_s[self._now_with] = self._spent_s.get(self._now_with, 0.0) + now_s - self._since_s
        self._since_s = now_s


def _serve(
    parcel: Parcel, runs: Iterator[MatchRun], executor: int, task: BatchTask, shape: Shape, counted: LoadReport
) -> Iterator[pa.RecordBatch]:
    began_s = task.cpu_s()
    if task.counts_points:
        plan = task.plan()
        events = (
            parcel.events
            if plan.siblings or not task.splits_events
            else events_at_home(parcel.events, plan, parcel.partition)
        )
        counted.add_stat(parcel.partition, count_points(events, plan, parcel.partition))
    for met in runs:
        out = list(shape(met, executor, counted))
        matches = np.diff(met.offsets)
        matched_events = int(np.count_nonzero(matches))
        if task.counts_cells and len(matches):
            most = max(RUN_CELLS_MIN, min(RUN_CELLS, TASK_CELLS - len(counted.cells.cells)))
            counted.cells += sample_cells(met.events, matches, task.grid, most)
        cpu_us = int((task.cpu_s() - began_s) * 1e6)
        counted.add(parcel.partition, executor, Load(len(met.events), matched_events, len(met.subs), cpu_us))
        yield from out
        began_s = task.cpu_s()


def _to_merger(executors: int, every: bool, met: MatchRun, here: int, counted: LoadReport) -> Iterator[pa.RecordBatch]:
    """Matches of this executor, packed for where the other rows of each event go; an event without others stays."""
    for rows in as_arrays(met, every):
        counted.in_transit += len(rows)
        numbers, copies = (rows.column(field.name).to_numpy() for field in (EVENT_NUMBER, COPIES))
        target = np.where(copies == 1, here, numbers % executors)
        halves = (Parcel(0, int(t), rows.filter(pa.array(target == t))) for t in np.unique(target))
        yield pack_parcels(halves)
