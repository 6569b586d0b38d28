"""The work of one executor where fixes are put in order: hold those that arrive, and hand on those that are due.

    files before ── [since, watermark) of each ──► transitions       a file that the watermark has passed is gone
    arrived ──┬── late, or ahead of the clock: counted
              ├── in time ──► a new file, by time
              └── what it met on `inside` ───────► out

A file is written once and read in slices: nothing in it changes while the watermark goes through it. It says of what
time its first fix is, so that most files are not opened. One of an older plan is divided anew among the executors of
the present one. It can be run again with the same result, as `work.py`, which has the rest of the work.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX, gather
from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.keys.hashing import key_ids
from geoswarm.errors import StateError
from geoswarm.flow.keyed.key_report import KeyedReport, add_counts
from geoswarm.flow.keyed.operator import KEY
from geoswarm.flow.keyed.reorder import EVER_US, HeldRows, Reorder, without_inside
from geoswarm.flow.keyed.state import StateFile, files_to_merge
from geoswarm.flow.keyed.work import ExecutorWork, KeyedTask
from geoswarm.model import TIMESTAMP

if TYPE_CHECKING:
    from geoswarm.flow.keyed.ordered_transitions import OrderedTransitions

HELD_FILES_MAX = 16
"""Files of one executor before some are merged: each that is due is looked at in every batch."""
ROWS_MAX = 1 << 62
"""Rows that are put together are limited by their bytes only."""
MERGED_BYTES_MAX = GATHERED_BYTES_MAX // 4
"""Larger files are not merged."""
LATE_BY_US = "late_by_us"
"""The name, in a report, of how much older than the watermark the latest fix is."""


class ReorderWork(ExecutorWork):
    """The part of a batch that falls to one executor, whose operator is `OrderedTransitions`."""

    def __init__(self, task: KeyedTask, executor: int) -> None:
        super().__init__(task, executor)
        self._operator: OrderedTransitions = task.operator  # type: ignore[assignment]
        self._holding = Holding(self._operator.reorder, task, executor)

    def run(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The transitions of all fixes that are due, then what is on `inside` of those that arrived. So the rows of an
        object are in order within the batch, but for what arrived late: due are those before the watermark."""
        operator, lookup = self._operator, self._operator.lookup
        arrived = [*gather(iter(batches), ROWS_MAX)]
        due = self._holding.take([without_inside(rows, lookup) for rows in arrived])
        yield from super().run([without_inside(rows, lookup) for rows in gather(iter(due), ROWS_MAX)])
        inside = pa.Table.from_batches(map(operator.give_inside, arrived), operator.given(self._task.fed))
        yield from inside.sort_by([(name, "ascending") for name in operator.order]).to_batches()
        self.report.given += len(inside)
        self.report.rows = sum(map(len, arrived))
        self.report.counts = add_counts([self.report.counts, self._holding.counts])
        self._holding.send_report()


class Holding:
    """The fixes that one executor holds."""

    def __init__(self, reorder: Reorder, task: KeyedTask, executor: int) -> None:
        self._reorder, self._task, self._executor = reorder, task, executor
        self._attempt = task.fresh_name()
        self._until_us = reorder.watermark_us if reorder.is_on else EVER_US
        self._open = _open_files(reorder)
        self._report = KeyedReport()
        self.counts = {"late_fixes": 0, "ahead_fixes": 0, "held_fixes": 0}

    def take(self, arrived: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The fixes that are due; the others of these and of those before are held."""
        stay, due, fresh = list[StateFile](), list[pa.RecordBatch](), list[pa.RecordBatch]()
        for file in self._reorder.held:
            if file.epoch != self._task.plan.epoch:
                given, kept = self._divide(file)
                due.append(self._as_fed(given))
                fresh.append(self._as_fed(kept))
            elif file.executor == self._executor:
                due += map(self._as_fed, self._slice(file, stay))
        if self._reorder.is_on:
            fresh += map(self._sift, arrived)
        else:
            due += arrived
        self._file(fresh, stay)
        return [rows for rows in due if len(rows)]

    def send_report(self) -> None:
        self._reorder.store.report(self._reorder.attempt, "work", self._executor, self._report)

    def _slice(self, file: StateFile, stay: list[StateFile]) -> tuple[pa.RecordBatch, ...]:
        """The fixes of an own file that are due, if it has reached them."""
        if file.due_us is not None and file.due_us >= self._until_us:
            stay.append(file)
            self.counts["held_fixes"] += file.rows
            return ()
        held = self._read(file)
        first, end = np.searchsorted(held.ts_us, (self._reorder.since_us, self._until_us))
        if end == len(held.ts_us):
            self._report.gone.append(file.name)
        else:
            stay.append(file)
            self.counts["held_fixes"] += len(held.ts_us) - int(end)
        return (held.rows.slice(first, end - first),)

    def _divide(self, file: StateFile) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The fixes in a file of another plan that are this executor's: those that are due, and those to hold."""
        held = self._read(file)
        self._report.gone.append(file.name)
        mine = (self._task.plan.route(held.ids) == self._executor) & (held.ts_us >= self._reorder.since_us)
        is_due: Bools = held.ts_us < self._until_us
        self.counts["held_fixes"] += int(np.count_nonzero(mine & ~is_due))
        return held.rows.filter(pa.array(mine & is_due)), held.rows.filter(pa.array(mine & ~is_due))

    def _sift(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those that arrived in time, to hold."""
        ts_us = _times(rows)
        late: Bools = ts_us < self._reorder.watermark_us
        ahead: Bools = ts_us > self._reorder.bound_us
        if late.any():
            late_by_us = self._reorder.watermark_us - int(ts_us[late].min())
            self._report.counts[LATE_BY_US] = max(self._report.counts.get(LATE_BY_US, 0), late_by_us)
        kept = ~(late | ahead)
        self.counts["late_fixes"] += int(np.count_nonzero(late))
        self.counts["ahead_fixes"] += int(np.count_nonzero(ahead))
        self.counts["held_fixes"] += int(np.count_nonzero(kept))
        return rows if kept.all() else rows.filter(pa.array(kept))

    # -- files

    def _file(self, fresh: Sequence[pa.RecordBatch], stay: Sequence[StateFile]) -> None:
        """Hold these fixes, and with them those of some files that stay, if these are too many."""
        count = sum(map(len, fresh))
        if not count:
            return
        small = [file for file in stay if file.bytes <= MERGED_BYTES_MAX]
        swallowed = files_to_merge(small, count) if len(stay) >= HELD_FILES_MAX else []
        self._report.gone += [file.name for file in swallowed]
        every = chain(fresh, (self._as_fed(self._rest(file)) for file in swallowed))
        for number, rows in enumerate(gather((part for part in every if len(part)), ROWS_MAX)):
            ts_us = _times(rows)
            order = np.argsort(ts_us, kind="stable")
            rows = rows.take(pa.array(order))
            held = HeldRows(key_ids(rows.column(KEY)), ts_us[order], rows)
            name = f"{self._task.moment.batch:012d}-{self._executor:05d}-{self._attempt}-{number}"
            written = self._reorder.store.write_fixes(held, name, self._task.plan.epoch, self._executor)
            self._report.added.append(written)

    def _rest(self, file: StateFile) -> pa.RecordBatch:
        held = self._read(file)
        return held.rows.slice(int(np.searchsorted(held.ts_us, self._until_us)))

    def _read(self, file: StateFile) -> HeldRows:
        if file.name not in self._open:
            self._open[file.name] = self._reorder.store.open_fixes(file)
        return self._open[file.name]

    def _as_fed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Fixes with the columns of today: those that events had when they were held may have been others."""
        fed = self._task.fed
        return rows if rows.schema.equals(fed) else _with_columns(rows, fed)


def _with_columns(rows: pa.RecordBatch, fed: pa.Schema) -> pa.RecordBatch:
    columns = list[pa.Array]()
    for field in fed:
        if field.name not in rows.schema.names:
            columns.append(pa.nulls(len(rows), field.type))
            continue
        try:
            columns.append(rows.column(field.name).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as why:
            raise StateError(
                f"fixes are held back whose column {field.name} is {rows.schema.field(field.name).type}, and events "
                f"have {field.type} now ({why}): start with the columns of before and reorder_s = 0 until a batch has "
                "run"
            ) from None
    return pa.record_batch(columns, schema=fed)


def _times(rows: pa.RecordBatch) -> Ints:
    times: Ints = rows.column("ts").cast(TIMESTAMP).cast(pa.int64()).to_numpy()
    return times


_opened: dict[str, dict[str, HeldRows]] = {}
"""The files that this worker has mapped, by checkpoint. Names are never used again, so none can be stale."""


def _open_files(reorder: Reorder) -> dict[str, HeldRows]:
    opened = _opened.setdefault(reorder.store.place, {})
    stale = set(opened) - {file.name for file in reorder.held}
    for name in stale:
        del opened[name]
    reorder.store.forget_copies(stale)
    return opened
