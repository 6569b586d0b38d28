"""The work of one executor for a keyed operator in one batch: find the state, call the operator, file what it keeps.

It can be run again with the same result: it reads the state after the batch before and writes new files, which count
only if the driver names them in the commit of the batch (`state.py`). `store/keyed_state.py` reads and writes files.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX
from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.keys.hashing import key_ids
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.flow.keyed.operator import KEY, Answer, Moment, Operator, Turn
from geoswarm.flow.keyed.state import Commit, StateFile, files_to_merge, keys_in_file, state_schema
from geoswarm.flow.keyed.turn import KeyGroups, Shelf, compact_shelves, group, make_shelf, turn_of


class KeyedFiles(Protocol):
    """The files of one operator, as tasks use them. It travels to every task."""

    @property
    def place(self) -> str:
        """The name of the folder, unique among all checkpoints."""

    def read_plan(self, epoch: int, seal: str) -> KeyPlan: ...

    def open(self, file: StateFile, schema: pa.Schema) -> Shelf: ...

    def write(self, shelf: Shelf, moment: Moment, plan: KeyPlan, executor: int, attempt: str) -> StateFile: ...

    def forget_copies(self, names: Collection[str]) -> None: ...

    def report(self, attempt: str, stage: str, number: int, counted: "KeyedReport") -> None: ...

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
    def columns(self) -> pa.Schema:
        """The columns of rows of state."""
        return state_schema(self.operator, self.fed.field(KEY).type)

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


@dataclass
class KeyedReport:
    """The report of a task to the driver."""

    rows: int = 0
    dead: int = 0
    sent: int = 0
    """Rows that went to the executor of their key; the others were refused, or go out without the operator."""
    given: int = 0
    cpu_us: int = 0
    added: list[StateFile] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Names of files that are merged into one of the added files."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> "KeyedReport":
        return cls(**written | {"added": [StateFile(**file) for file in written["added"]]})


class KeyLoads:
    """Work and bytes of state per key, as one array that travels as bytes."""

    @staticmethod
    def pack(ids: Ints, work: Floats, size: Floats) -> bytes:
        return np.stack([ids, work.view(np.int64), size.view(np.int64)]).tobytes()

    @staticmethod
    def unpack(data: bytes) -> tuple[Ints, Floats, Floats]:
        ids, work, size = np.frombuffer(data, np.int64).reshape(3, -1)
        return ids, work.view(np.float64), size.view(np.float64)


class ExecutorWork:
    """The part of a batch that falls to one executor."""

    def __init__(self, task: KeyedTask, executor: int) -> None:
        self._task, self._executor, self._attempt = task, executor, task.fresh_name()
        self._schema = task.columns
        self._shelves = _shelves_of(task)
        self.report = KeyedReport()
        self._loads = [(np.empty(0, np.int64), np.empty(0), np.empty(0))]

    def run(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that the operator gives for all rows of the executor in this batch."""
        began_s = self._task.cpu_s()
        given = [*self._endings()]
        for number, rows in enumerate(_buckets(batches)):
            self.report.rows += len(rows)
            grouped = group(rows, self._task.operator.order)
            answer = self._task.operator.update(self._turn(grouped))
            given.append(answer.given)
            self._file(grouped, answer, number)
        self.report.given = sum(map(len, given))
        self.report.cpu_us = int((self._task.cpu_s() - began_s) * 1e6)
        yield from (part for part in given if len(part))

    # -- the state of keys

    def _turn(self, grouped: KeyGroups) -> Turn:
        task = self._task
        seen = task.before.alive(task.moment.interval, task.operator.window)
        return turn_of(grouped, self._all_of(seen, grouped), task.operator, task.moment)

    def _open(self, file: StateFile) -> Shelf:
        if file.name not in self._shelves:
            self._shelves[file.name] = self._task.state.open(file, self._schema)
        return self._shelves[file.name]

    # -- filing rows to keep

    @property
    def loads(self) -> bytes:
        return KeyLoads.pack(*(np.concatenate([part[i] for part in self._loads]) for i in range(3)))

    def _file(self, grouped: KeyGroups, answer: Answer, bucket: int) -> None:
        task, moment, state = self._task, self._task.moment, self._task.state
        sizes = np.zeros(len(grouped.ids))
        if len(answer.kept):
            keys = grouped.keys.take(pa.array(answer.kept_groups))
            rows = pa.record_batch([keys, *answer.kept.columns], schema=self._schema)
            shelf = make_shelf(rows, np.full(len(rows), moment.batch, np.int64), moment.interval)
            sizes = np.bincount(answer.kept_groups, minlength=len(sizes)) * (rows.nbytes / len(rows))
            swallowed = files_to_merge(self._deltas(), len(rows)) if bucket == 0 else []
            if swallowed:
                shelf = compact_shelves([*(self._open(file) for file in swallowed), shelf], task.operator)
                self.report.gone = [file.name for file in swallowed]
            attempt = f"{self._attempt}-{bucket}"
            self.report.added.append(state.write(shelf, moment, task.plan, self._executor, attempt))
        self._loads.append((grouped.ids, np.asarray(answer.work, np.float64), sizes))

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
                yield from _some(operator.close(turn_of(grouped, self._all_of(seen, grouped), operator, moment)))
        if _overrides(operator, "expire"):
            leaving = task.before.leaving(now, operator.window)
            for interval in sorted({file.interval for file in leaving}):
                kept_in = [file for file in leaving if file.interval == interval]
                for grouped in self._mine(kept_in):
                    turn = turn_of(grouped, self._all_of(kept_in, grouped), operator, task.moment)
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

    def _all_of(self, files: Sequence[StateFile], grouped: KeyGroups) -> Iterator[tuple[Shelf, Bools | None]]:
        owners: dict[int, Ints] = {}
        for file in files:
            wanted = keys_in_file(file, self._task.plans, grouped.ids, owners)
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


def _shelves_of(task: KeyedTask) -> dict[str, Shelf]:
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
