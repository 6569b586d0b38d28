"""The work of one executor for aggregates in one batch: give the windows that are over, file what is counted.

    files that are due ──► sort, drop who is gone ──► windows over: answers ──► rows out
                                     │
    rows of the batch ───────────────┴──► merge ──► a file for each part, with the time when it is due

A part is what is due at like times (`live.py`). It can be run again with the same result, as `flow/keyed/work.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX
from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.flow.aggregates import full_windows, panes, sessions
from geoswarm.flow.aggregates.answers import Closed, answer
from geoswarm.flow.aggregates.files import sort_files
from geoswarm.flow.aggregates.full_windows import number_texts
from geoswarm.flow.aggregates.held_rows import HeldRows, Sorted, constant, join, no_rows, sort
from geoswarm.flow.aggregates.live import EVENTS, PANES, Rules, find_live, is_plain, kind_of_part
from geoswarm.flow.keyed.charge import WorkedKeys, charge_keys
from geoswarm.flow.keyed.key_report import KeyedReport, KeyLoads
from geoswarm.flow.keyed.operator import KEY
from geoswarm.flow.keyed.state import StateFile, files_to_merge
from geoswarm.flow.keyed.turn import Shelf, find_ids
from geoswarm.flow.keyed.work import KeyedTask, shelves_of

if TYPE_CHECKING:
    from geoswarm.flow.aggregates.operator import Aggregates


class AggregateWork:
    """The part of a batch that falls to one executor."""

    def __init__(self, task: KeyedTask, executor: int) -> None:
        self._task, self._executor, self._attempt = task, executor, task.fresh_name()
        self._operator: Aggregates = task.operator  # type: ignore[assignment]
        self._shelves = shelves_of(task)
        self._files = sort_files(task.before.files, self._operator.watermark_us, task.plan.epoch, executor)
        self.report = KeyedReport(gone=[file.name for file in self._files.taken])
        self._worked: list[tuple[Ints, float]] = []
        self._given: list[Ints] = []
        self._keys = WorkedKeys.join([])
        self._written = 0

    def run(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers of all windows that are over."""
        self.report.rows = sum(map(len, batches))
        taken = sum(file.bytes for file in self._files.taken)
        buckets = 1 + (taken + sum(batch.nbytes for batch in batches)) // GATHERED_BYTES_MAX
        for bucket in range(buckets):
            fresh = self._fresh([_of_bucket(rows, bucket, buckets) for rows in batches])
            sorted_, rules = self._sorted(fresh)
            parts = rules.of(rules.parts)
            held = {file.part for file in self._files.taken}
            for part in sorted(held | set(np.flatnonzero(np.bincount(parts)).tolist())):
                is_mine = parts == part
                mine = sorted_.where(is_mine), rules if is_mine.all() else rules.take(is_mine)
                taken_rows = [
                    _of_keys(self._held(file), bucket, buckets) for file in self._files.taken if file.part == part
                ]
                for closed in self._work_on(part, mine, join([no_rows(), *taken_rows]), buckets == 1):
                    yield from self._answer(closed)
        self._keys = self._worked_keys()
        self.report.keys, self.report.work = len(self._keys.ids), float(self._keys.work.sum())

    def _fresh(self, batches: Sequence[pa.RecordBatch]) -> HeldRows:
        parts = [no_rows()]
        for rows in number_texts(batches):
            keys = np.asarray(rows.column(KEY), np.int64)
            parts.append(HeldRows.of(rows, keys, constant(self._task.moment.batch, len(rows))))
        return join(parts)

    def _sorted(self, rows: HeldRows) -> tuple[Sorted, Rules]:
        """Rows in order, without those of subscriptions that are gone, and the rules for each."""
        ordered = sort(rows)
        lives, rules = find_live(ordered.rows, self._operator.rules)
        return ordered.where(lives), rules

    # -- a part

    def _work_on(self, part: int, fresh: tuple[Sorted, Rules], taken: HeldRows, can_merge: bool) -> Iterator[Closed]:
        kind = kind_of_part(part)
        self._note(fresh[0].rows)
        if kind == EVENTS:
            self._note(taken)
            yield from self._fill(part, fresh[0].rows, taken, can_merge)
            return
        held, dues = no_rows(), list[Ints]()
        if len(taken):
            rows, rules = self._sorted(taken)
            self._note(rows.rows)
            close = self._close_panes if kind == PANES else self._close_sessions
            over, held, due_us = close(rows, rules)
            dues.append(due_us)
            yield from over
        if is_plain(part):
            dues.append(panes.due_us(*fresh, self._operator.watermark_us))
            new = fresh[0].rows  # which came with others, that have more columns
            alike = HeldRows.plain(new.keys, new.batches, new.began, new.first, new.counts)
            self._file_plain(part, [held, alike], np.concatenate(dues), can_merge)
        else:
            self._file_spans(part, kind, [held, fresh[0].rows], can_merge)

    def _close_panes(self, rows: Sorted, rules: Rules) -> tuple[Iterator[Closed], HeldRows, Ints]:
        """The windows that are over; the rows that are still needed, and when they are due."""
        rows, rules = panes.unite(rows, rules)
        over = panes.close(rows, rules, self._operator.since_us, self._operator.watermark_us)
        due_us = panes.due_us(rows, rules, self._operator.watermark_us)
        needed = panes.still_needed(due_us)
        return over, rows.rows.where(needed), due_us[needed]

    def _close_sessions(self, rows: Sorted, rules: Rules) -> tuple[Iterator[Closed], HeldRows, Ints]:
        rows, rules = sessions.unite(rows, rules)
        ends = sessions.due_us(rows, rules)
        is_over = ends <= self._operator.watermark_us
        return iter([sessions.close(rows, rules, ends, is_over)]), rows.rows.where(~is_over), ends[~is_over]

    def _file_plain(self, part: int, some: Sequence[HeldRows], due_us: Ints, can_merge: bool) -> None:
        """Plain counts, which are added up whatever their rules are. Who is gone is dropped when the file is due."""
        if not len(due_us):
            return
        swallowed = files_to_merge(self._deltas(part), len(due_us)) if can_merge else []
        rows = sort(join([*(self._held(file) for file in swallowed), *some]))
        first_us = min([int(due_us.min()), *(file.due_us for file in swallowed if file.due_us is not None)])
        self._write(part, panes.unite_plain(rows), first_us, swallowed)

    def _file_spans(self, part: int, kind: int, some: Sequence[HeldRows], can_merge: bool) -> None:
        count = sum(map(len, some))
        if not count:
            return
        swallowed = files_to_merge(self._deltas(part), count) if can_merge else []
        rows, rules = self._sorted(join([*(self._held(file) for file in swallowed), *some]))
        unite = panes.unite if kind == PANES else sessions.unite
        rows, rules = unite(rows, rules)
        watermark_us = self._operator.watermark_us
        due = panes.due_us(rows, rules, watermark_us) if kind == PANES else sessions.due_us(rows, rules)
        self._write(part, rows.rows, int(due.min()) if len(due) else None, swallowed)

    def _fill(self, part: int, fresh: HeldRows, taken: HeldRows, can_merge: bool) -> Iterator[Closed]:
        stays = [file for file in (*self._files.old, *self._files.own) if file.part == part]
        keys = np.unique(fresh.keys)
        found = [self._held(file, keys) for file in stays] if len(keys) else []
        held = self._newest(join([taken, *found]))
        rows, rules = self._sorted(join([held.where(held.counts > 0), fresh]))
        is_held = rows.rows.batches < self._task.moment.batch
        order = full_windows.order_of(rows, is_held)
        rows = Sorted(rows.rows.take(order), rows.is_new)
        closed, kept = full_windows.fill(rows, rules.take(order), is_held[order])
        yield closed
        if not len(kept):
            return
        swallowed = files_to_merge(self._deltas(part), len(kept)) if can_merge else []
        kept = self._newest(join([*(self._held(file) for file in swallowed), kept]))
        if len(swallowed) == len(stays):  # no older row is left that a row of no events must overrule
            kept = kept.where(kept.counts > 0)
        self._write(part, kept, None, swallowed)

    def _newest(self, rows: HeldRows) -> HeldRows:
        ordered, _ = self._sorted(rows)
        return ordered.rows.where(full_windows.newest(ordered))

    # -- files

    def _held(self, file: StateFile, keys: Ints | None = None) -> HeldRows:
        """The rows of a file that are this executor's; `keys`, ascending: only those of these."""
        shelf = self._open(file)
        is_own = file.epoch == self._task.plan.epoch
        if keys is not None:
            at, _ = find_ids(shelf, keys, None)
        elif is_own:
            return HeldRows.of(shelf.rows, shelf.ids, shelf.batches)
        else:
            at = np.arange(len(shelf.ids))
        if not is_own:
            at = at[self._task.plan.route(shelf.ids[at]) == self._executor]
        return HeldRows.of(shelf.rows.take(pa.array(at)), shelf.ids[at], shelf.batches[at])

    def _open(self, file: StateFile) -> Shelf:
        if file.name not in self._shelves:
            self._shelves[file.name] = self._task.state.open(file, self._task.columns[: file.generation + 1])
        return self._shelves[file.name]

    def _deltas(self, part: int) -> list[StateFile]:
        return [file for file in self._files.own if file.part == part]

    def _write(self, part: int, rows: HeldRows, due_us: int | None, swallowed: Sequence[StateFile]) -> None:
        self.report.gone += [file.name for file in swallowed]
        if not len(rows):
            return
        task = self._task
        generation = 0 if rows.is_plain else len(task.columns) - 1
        whole = pa.record_batch([pa.array(rows.keys), *rows.batch.columns], schema=task.columns[generation])
        shelf = Shelf(rows.keys, np.ascontiguousarray(rows.batches), whole, task.moment.interval)
        attempt = f"{self._attempt}-{self._written}"
        self._written += 1
        written = task.state.write(shelf, task.moment, task.plan, self._executor, attempt, generation)
        self.report.added.append(replace(written, part=part, due_us=due_us))

    # -- what goes out, and what is reported

    def _answer(self, closed: Closed) -> Iterator[pa.RecordBatch]:
        if len(closed.rows):
            given, keys = answer(closed, self._operator.users)
            self._given.append(keys)
            self.report.given += len(given)
            yield given

    def _note(self, rows: HeldRows) -> None:
        if len(rows):
            self._worked.append((rows.keys, rows.row_bytes))

    def _worked_keys(self) -> WorkedKeys:
        """What was done for each key: its rows are its work. Its state is that of these rows; the rest is not read."""
        nothing = np.empty(0, np.int64)
        every = np.concatenate([nothing, *(keys for keys, _ in self._worked)])
        sizes = np.concatenate([np.empty(0), *(np.full(len(keys), size) for keys, size in self._worked)])
        order = np.argsort(every, kind="stable")  # most are in order
        every = every[order]
        starts = np.flatnonzero(np.diff(every, prepend=every[0] - 1 if len(every) else 0))
        ids = every[starts]
        given = np.searchsorted(ids, np.concatenate([nothing, *self._given]))
        return WorkedKeys(
            ids,
            np.diff(np.append(starts, len(every))).astype(np.float64),
            np.bincount(given, minlength=len(ids)).astype(np.float64),
            np.zeros(len(ids)),
            np.add.reduceat(sizes[order], starts) if len(ids) else np.empty(0),
        )

    @property
    def loads(self) -> KeyLoads:
        """Load and state of the keys that were worked on. The time that is divided is that in `report`."""
        task, worked = self._task, self._keys
        load = worked.work if task.costs is None else charge_keys(worked, self.report.cpu_us, task.costs)
        loads = KeyLoads(worked.ids, load, worked.state)
        if task.heavy_keys is None:
            return loads
        return loads.shorten(task.plan.is_listed(worked.ids), task.heavy_keys)


def _of_bucket(rows: pa.RecordBatch, bucket: int, buckets: int) -> pa.RecordBatch:
    if buckets == 1:
        return rows
    return rows.filter(pa.array(_is_in(np.asarray(rows.column(KEY), np.int64), bucket, buckets)))


def _of_keys(rows: HeldRows, bucket: int, buckets: int) -> HeldRows:
    return rows if buckets == 1 else rows.where(_is_in(rows.keys, bucket, buckets))


def _is_in(keys: Ints, bucket: int, buckets: int) -> Bools:
    found: Bools = keys % buckets == bucket
    return found
