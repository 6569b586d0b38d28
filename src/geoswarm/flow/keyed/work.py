"""The work of one executor for a keyed operator in one batch: find the state, call the operator, file what it keeps.

It can be run again with the same result: it reads the state after the batch before and writes new files, which count
only if the driver names them in the commit of the batch (`state.py`). `store/keyed_state.py` reads and writes files.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX
from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.keys.hashing import key_ids
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.flow.keyed.charge import KeyCosts, WorkedKeys, charge_keys
from geoswarm.flow.keyed.key_report import KeyedReport, KeyLoads, add_counts
from geoswarm.flow.keyed.operator import KEY, Answer, Moment, Operator, Turn
from geoswarm.flow.keyed.state import Commit, StateFile, files_to_merge, keys_in_file, state_schemas
from geoswarm.flow.keyed.state_size import state_after, state_of
from geoswarm.flow.keyed.turn import KeyGroups, Shelf, compact_shelves, group, make_shelf, turn_of
from geoswarm.flow.observe import TaskName


class KeyedFiles(Protocol):
    """The files of one operator, as tasks use them. It travels to every task."""

    @property
    def place(self) -> str:
        """The name of the folder, unique among all checkpoints."""

    def read_plan(self, epoch: int, seal: str) -> KeyPlan: ...

    def open(self, file: StateFile, schemas: Sequence[pa.Schema]) -> Shelf: ...

    def write(
        self, shelf: Shelf, moment: Moment, plan: KeyPlan, executor: int, attempt: str, generation: int
    ) -> StateFile: ...

    def forget_copies(self, names: Collection[str]) -> None: ...

    def report(self, attempt: str, stage: str, number: int, counted: KeyedReport) -> None: ...

    def report_loads(self, attempt: str, executor: int, loads: bytes) -> None: ...

    def file_dead_letters(self, batch: int, part: str, letters: pa.Table) -> None: ...


@dataclass(frozen=True)
class KeyedTask:
    """What every task of a keyed batch knows."""

    state: KeyedFiles
    operator: Operator
    moment: Moment
    before: Commit
    """The state that the batch may see."""
    plan_epoch: int
    plan_seal: str
    fed: pa.Schema
    cpu_s: Callable[[], float]
    """The CPU time of the calling thread."""
    fresh_name: Callable[[], str]
    """Returns a name that no other attempt at any task has."""
    attempt: str = ""
    """Separates the reports of several attempts at one batch."""
    costs: KeyCosts | None = None
    """By these, keys are charged the time that their executor took; None: they are charged the operator's work."""
    heavy_keys: int | None = None
    """The number of keys that each executor reports one by one, the heaviest; None: all."""
    name_task: Callable[[], TaskName] | None = None
    """Names the task that calls it; None: nobody asks what the runner spent on it."""
    weighs_table: bool = True
    """Whether the state of the table's keys is reported, too, if they have no rows in the batch."""

    @cached_property
    def plan(self) -> KeyPlan:
        return self.state.read_plan(self.plan_epoch, self.plan_seal)

    @cached_property
    def plans(self) -> dict[int, KeyPlan]:
        """The plans under which files were written, by epoch."""
        epochs = {file.epoch for file in self.before.files}
        return {epoch: self.state.read_plan(epoch, self.before.seals[epoch]) for epoch in epochs}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("plan", "plans")}

    @property
    def columns(self) -> tuple[pa.Schema, ...]:
        """The columns of rows of state, generation by generation."""
        return state_schemas(self.operator, self.fed.field(KEY).type)

    @property
    def merges(self) -> bool:
        """Whether the given rows must be merged before they go out."""
        if self.operator.merge_by is None:
            return False
        return self.operator.merges_always or bool(len(self.plan.split_keys))

    @property
    def reports(self) -> str:
        """The name of this attempt among those that report."""
        return f"{self.moment.batch:012d}-{self.attempt}"


class ExecutorWork:
    """The part of a batch that falls to one executor."""

    def __init__(self, task: KeyedTask, executor: int) -> None:
        self._task, self._executor, self._attempt = task, executor, task.fresh_name()
        self._schemas = task.columns
        self._schema = self._schemas[-1]
        self._shelves = shelves_of(task)
        self.report = KeyedReport()
        self._worked: list[WorkedKeys] = []

    def run(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that the operator gives for all rows of the executor in this batch."""
        given = [*self._endings()]
        for number, rows in enumerate(_buckets(batches)):
            self.report.rows += len(rows)
            grouped = group(rows, self._task.operator.order)
            turn = self._turn(grouped)
            answer = self._task.operator.update(turn)
            given.append(answer.given)
            self.report.counts = add_counts([self.report.counts, answer.counts])
            self._file(grouped, answer, number)
            self._worked.append(WorkedKeys.of(grouped.ids, answer, state_after(turn, answer)))
        worked = WorkedKeys.join(self._worked)
        self.report.keys, self.report.work = len(worked.ids), float(worked.work.sum())
        self.report.measured_us = int(worked.took_us.sum())
        self.report.given = sum(map(len, given))
        yield from (part for part in given if len(part))

    # -- the state of keys

    def _turn(self, grouped: KeyGroups) -> Turn:
        task = self._task
        belong = self._belong if task.plan.is_split(grouped.ids).any() else None
        turn = turn_of(grouped, self._look_up(grouped.ids), task.operator, task.moment, belong)
        return turn._replace(cpu_s=task.cpu_s)

    def _look_up(self, ids: Ints) -> Iterator[tuple[Shelf, Bools | None]]:
        """The shelves on which the state of keys is, from oldest to newest, and which of the keys are on each."""
        task = self._task
        return self._all_of(task.before.alive(task.moment.interval, task.operator.window), ids)

    def _belong(self, shelf: Shelf, at: Ints) -> Bools:
        """Which of these rows of state are looked up here: of a split key those of this executor's parts."""
        task, ids = self._task, shelf.ids[at]
        mine, split = np.ones(len(at), np.bool_), np.flatnonzero(task.plan.is_split(ids))
        numbers = task.operator.part_numbers(shelf.rows.take(pa.array(at[split])))
        if numbers is not None:
            mine[split] = task.plan.route(task.plan.deal(ids[split], numbers)) == self._executor
        return mine

    def _open(self, file: StateFile) -> Shelf:
        if file.name not in self._shelves:
            self._shelves[file.name] = self._task.state.open(file, self._schemas)
        return self._shelves[file.name]

    # -- what is reported of keys

    @property
    def loads(self) -> KeyLoads:
        """Load and state of the executor's keys. The time that is divided is that in `report`, which the caller, who
        knows when the executor's turn began, has noted there."""
        task, worked = self._task, WorkedKeys.join(self._worked)
        load = worked.work if task.costs is None else charge_keys(worked, self.report.cpu_us, task.costs)
        resting, resting_state = self._table_at_rest(worked.ids) if task.weighs_table else (worked.ids[:0], load[:0])
        ids = np.concatenate([worked.ids, resting])
        load, state = np.append(load, np.zeros(len(resting))), np.append(worked.state, resting_state)
        loads = KeyLoads(ids, load, state)
        if task.heavy_keys is None:
            return loads
        return loads.shorten(task.plan.is_listed(ids) | task.plan.is_split(ids), task.heavy_keys)

    def _table_at_rest(self, at_work: Ints) -> tuple[Ints, Floats]:
        """Keys that the table gives to this executor, and that have state, but no rows in this batch; their state."""
        task, plan = self._task, self._task.plan
        working = at_work[plan.is_listed(at_work)]
        ids = np.setdiff1d(plan.keys[plan.targets == self._executor], working)
        alive = task.before.alive(task.moment.interval, task.operator.window) if len(ids) else ()
        state = state_of(ids, self._all_of(alive, ids))
        return ids[state > 0.0], state[state > 0.0]

    # -- filing rows to keep

    def _file(self, grouped: KeyGroups, answer: Answer, bucket: int) -> None:
        task, moment, state = self._task, self._task.moment, self._task.state
        if len(answer.kept):
            keys = grouped.keys.take(pa.array(answer.kept_groups))
            rows = pa.record_batch([keys, *answer.kept.columns], schema=self._schema)
            shelf = make_shelf(rows, np.full(len(rows), moment.batch, np.int64), moment.interval)
            swallowed = files_to_merge(self._deltas(), len(rows)) if bucket == 0 else []
            if swallowed:
                shelf = compact_shelves([*(self._open(file) for file in swallowed), shelf], task.operator)
                self.report.gone = [file.name for file in swallowed]
            attempt = f"{self._attempt}-{bucket}"
            generation = len(self._schemas) - 1
            self.report.added.append(state.write(shelf, moment, task.plan, self._executor, attempt, generation))

    def _deltas(self) -> list[StateFile]:
        own = (self._task.moment.interval, self._task.plan.epoch, self._executor)
        return [file for file in self._task.before.files if (file.interval, file.epoch, file.executor) == own]

    # -- ends of intervals

    def _endings(self) -> Iterator[pa.RecordBatch]:
        """The rows that the operator gives for an interval that has ended since the batch before, and for those that
        leave the window now."""
        task, ended = self._task, self._task.before.interval
        operator, now = task.operator, task.moment.interval
        if now == ended or not task.before.files:
            return
        if _overrides(operator, "close"):
            moment = task.moment._replace(interval=ended)
            kept_in = [file for file in task.before.files if file.interval == ended]
            for grouped in self._mine(kept_in):
                seen = task.before.alive(ended, operator.window)
                yield from _some(operator.close(turn_of(grouped, self._all_of(seen, grouped.ids), operator, moment)))
        if _overrides(operator, "expire"):
            leaving = task.before.leaving(now, operator.window)
            for interval in sorted({file.interval for file in leaving}):
                kept_in = [file for file in leaving if file.interval == interval]
                for grouped in self._mine(kept_in):
                    turn = turn_of(grouped, self._all_of(kept_in, grouped.ids), operator, task.moment)
                    yield from _some(operator.expire(turn))

    def _mine(self, files: Sequence[StateFile]) -> Iterator[KeyGroups]:
        """The keys with rows in these files, of one interval, for which this executor is responsible: those that the
        interval's last plan gave to it, or to an executor that has left and whose work it has taken over."""
        if not files:
            return
        last = self._task.plans[max(file.epoch for file in files)]
        fields = [self._schema.field(KEY)]
        keys = [pa.RecordBatch.from_pylist([], schema=pa.schema(fields))]
        for file in files:
            is_sure = file.epoch == last.epoch and not len(last.split_keys)
            if is_sure and self._stands_for(np.array([file.executor]))[0]:
                keys.append(self._open(file).rows.select([KEY]))
            elif not is_sure:
                shelf = self._open(file)
                mine = self._stands_for(last.route(shelf.ids).astype(np.int64))
                keys.append(shelf.rows.select([KEY]).filter(pa.array(mine)))
        rows = pa.concat_batches(keys)
        if len(rows):
            empty = pa.RecordBatch.from_pylist([], schema=self._task.fed)
            yield group(rows).without_rows()._replace(rows=empty)

    def _stands_for(self, executors: Ints) -> Bools:
        at_work = np.array(self._task.plan.executors)
        stands: Ints = np.where(np.isin(executors, at_work), executors, at_work[executors % len(at_work)])
        mine: Bools = stands == self._executor
        return mine

    def _all_of(self, files: Sequence[StateFile], ids: Ints) -> Iterator[tuple[Shelf, Bools | None]]:
        owners: dict[int, Ints] = {}
        for file in files:
            wanted = keys_in_file(file, self._task.plans, ids, owners)
            if wanted.any():
                yield self._open(file), wanted


def _buckets(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Groups of rows: all rows of a key are in one, and none is too large to be concatenated."""
    count = 1 + sum(batch.nbytes for batch in batches) // GATHERED_BYTES_MAX
    for bucket in range(count):
        parts = [b if count == 1 else b.filter(pa.array(key_ids(b.column(KEY)) % count == bucket)) for b in batches]
        if sum(map(len, parts)):
            yield pa.concat_batches(parts)


def merge_given(batches: Sequence[pa.RecordBatch], operator: Operator) -> Iterator[pa.RecordBatch]:
    """Merges rows that were given in several places, where they agree in `merge_by`."""
    if batches and operator.merge_by is not None:
        grouped = group(pa.concat_batches(batches), by=operator.merge_by)
        yield operator.merge(grouped.rows, grouped.starts)


_open_shelves: dict[str, dict[str, Shelf]] = {}
"""The files of each operator that this worker has mapped. Names are never used again, so none can be stale."""


def shelves_of(task: KeyedTask) -> dict[str, Shelf]:
    shelves = _open_shelves.setdefault(task.state.place, {})
    stale = set(shelves) - {file.name for file in task.before.files}
    for name in stale:
        del shelves[name]
    task.state.forget_copies(stale)
    return shelves


def _some(given: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    if given is not None:
        yield given


def _overrides(operator: Operator, hook: str) -> bool:
    return getattr(type(operator), hook) is not getattr(Operator, hook)
