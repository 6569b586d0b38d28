"""The work of an executor where subscriptions are told of objects that send nothing: who is inside when a subscription
begins (`initial.py`), and who was inside when it was forgotten (`forgotten.py`).

    end of an interval ──────── silent ──┐
    state of all its objects ── initial ─┼──► rows of alerts without an event, then those of events
    events ──────────────────── turns ───┘

Streams in which nobody asks for either have `ExecutorWork` itself.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.flow.keyed.forgotten import find_forgotten
from geoswarm.flow.keyed.initial import find_begun
from geoswarm.flow.keyed.operator import KEY, Answer, Turn
from geoswarm.flow.keyed.state import StateFile
from geoswarm.flow.keyed.told_rows import told_rows
from geoswarm.flow.keyed.turn import KeyGroups, Shelf, group, make_shelf, turn_of
from geoswarm.flow.keyed.work import ExecutorWork, KeyedTask
from geoswarm.model import OF_ENDED, OF_INITIAL

if TYPE_CHECKING:
    from geoswarm.flow.keyed.transitions import Transitions


class LifeWork(ExecutorWork):
    """The part of a batch that falls to one executor, whose operator is `Transitions` with a `telling`."""

    def __init__(self, task: KeyedTask, executor: int) -> None:
        super().__init__(task, executor)
        operator: Transitions = task.operator  # type: ignore[assignment]
        assert operator.telling is not None
        self._telling, self._lookup = operator.telling, operator.lookup
        self._begun: list[Shelf] = []
        """The state of objects with stays that begin with this batch, by interval."""
        self._kept = list[pa.Array]()
        """The keys whose state the turns have kept."""

    def run(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from super().run(batches)
        self._file_begun()

    def _endings(self) -> Iterator[pa.RecordBatch]:
        yield from super()._endings()
        yield from self._forgotten()
        yield from self._initial()

    def _look_up(self, ids: Ints) -> Iterator[tuple[Shelf, Bools | None]]:
        yield from super()._look_up(ids)
        yield from ((shelf, None) for shelf in self._begun)

    def _file(self, grouped: KeyGroups, answer: Answer, bucket: int) -> None:
        super()._file(grouped, answer, bucket)
        self._kept.append(grouped.keys.take(pa.array(answer.kept_groups)))

    # -- who is forgotten while it is inside

    def _forgotten(self) -> Iterator[pa.RecordBatch]:
        task, operator, before = self._task, self._task.operator, self._task.before
        leaving = before.leaving(task.moment.interval, operator.window)
        if not leaving:
            return
        turn, last = self._turn_of_all(leaving, before.files), task.moment.interval - operator.window
        newest = turn.held_starts[1:] - 1
        gone = np.flatnonzero(turn.held_intervals[newest] <= last)
        held = turn.held.take(pa.array(newest[gone]))
        told = find_forgotten(held, self._lookup, self._telling)
        if len(told.subs):
            yield told_rows(turn.keys.take(pa.array(gone)), held, told, OF_ENDED, operator.given(task.fed))

    # -- who is inside when a subscription begins

    def _initial(self) -> Iterator[pa.RecordBatch]:
        task, operator = self._task, self._task.operator
        files = task.before.alive(task.moment.interval, operator.window)
        asked = self._telling.begun() if files else None
        if asked is None:
            return
        turn = self._turn_of_all(files, files)
        found = find_begun(turn, asked, self._telling)
        if found is None:
            return
        begun, held = found
        changed, newest = np.unique(begun.groups), turn.held_starts[1:] - 1
        keys, intervals = turn.keys.take(pa.array(changed)), turn.held_intervals[newest][changed]
        rows = pa.record_batch([keys, *held.take(pa.array(changed)).columns], schema=self._schema)
        for interval in np.unique(intervals).tolist():
            theirs = rows.filter(pa.array(intervals == interval))
            self._begun.append(make_shelf(theirs, np.full(len(theirs), task.moment.batch, np.int64), interval))
        yield told_rows(turn.keys, held, begun, OF_INITIAL, operator.given(task.fed))

    def _turn_of_all(self, files: Sequence[StateFile], seen: Sequence[StateFile]) -> Turn:
        """The objects in some files that are this executor's now, with all their state in the files `seen`."""
        task, parts = self._task, [pa.RecordBatch.from_pylist([], schema=pa.schema([self._schema.field(KEY)]))]
        for file in files:
            if file.epoch == task.plan_epoch and file.executor != self._executor and not len(task.plan.split_keys):
                continue
            shelf = self._open(file)
            mine: Bools = task.plan.route(shelf.ids).astype(np.int64) == self._executor
            parts.append(shelf.rows.select([KEY]).filter(pa.array(mine)))
        grouped = group(pa.concat_batches(parts)).without_rows()
        grouped = grouped._replace(rows=pa.RecordBatch.from_pylist([], schema=task.fed))
        return turn_of(grouped, self._all_of(seen, grouped.ids), task.operator, task.moment)

    def _file_begun(self) -> None:
        """Those that no event of the batch has changed further, in the intervals in which their objects were seen."""
        task = self._task
        for number, shelf in enumerate(self._begun):
            kept = pa.concat_arrays([shelf.rows.column(KEY).slice(0, 0), *self._kept])
            left = ~np.asarray(pc.is_in(shelf.rows.column(KEY), value_set=kept))
            if left.any():
                rows = shelf.rows.filter(pa.array(left))
                shelf = Shelf(shelf.ids[left], shelf.batches[left], rows, shelf.interval)
                attempt, generation = f"{self._attempt}-begun-{number}", len(self._schemas) - 1
                written = task.state.write(shelf, task.moment, task.plan, self._executor, attempt, generation)
                self.report.added.append(written)
