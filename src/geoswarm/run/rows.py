"""Rows on their way through the stages, on any runner: tasks of Arrow batches that are mapped, exchanged and written.

The pipeline (`pipeline.py`) is written against this; `spark/rows.py` runs it on Spark and `process_rows.py` in this
process. Nothing runs before the result is read, and reading it twice runs it twice, except within `keep`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.flow.observe import TaskName
from geoswarm.flow.stages.task import Body, ExecutorBody

RUNS_MAX = 1000
"""Runs of rows of one executor that are handed on one by one; single rows, which may be more, are sorted first."""


class Rows(ABC):
    is_in_process: bool = False
    """Whether all tasks run in this process, one after the other."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns that tasks receive."""

    @property
    @abstractmethod
    def name_task(self) -> Callable[[], TaskName]:
        """Names the task that calls it. It travels to tasks."""

    @abstractmethod
    def runner_cpu_us(self, tasks: Collection[TaskName]) -> dict[TaskName, int]:
        """The CPU time that the runner itself spent on these tasks, beyond what they measure; without those of which
        it does not know."""

    # -- through the stages

    @abstractmethod
    def map(self, body: Body, schema: pa.Schema) -> "Rows":
        """Apply `body` to the batches of each task; the result has the columns of `schema`."""

    @abstractmethod
    def tasks_for(self, executors: int) -> int:
        """The tasks that serve so many executors: no more than run at once, since each task takes time to start."""

    @abstractmethod
    def exchange(self, tasks: int, task_of: Sequence[int] = ()) -> "Rows":
        """Send each row to the task that serves the executor in its column `executor`: `task_of[executor]`, or without
        it `executor` modulo `tasks`."""

    @abstractmethod
    def union(self, other: "Rows") -> "Rows":
        """The tasks of both; their columns are the same."""

    @abstractmethod
    def numbers(self, count: int) -> "Rows":
        """The numbers 0 to `count` - 1 in one column, over tasks of the same runner."""

    @abstractmethod
    def select(self, names: Sequence[str]) -> "Rows": ...

    @abstractmethod
    def add_constant(self, name: str, value: int | bool) -> "Rows": ...

    # -- out

    @abstractmethod
    def run(self) -> None:
        """Run every task, and discard the rows."""

    @abstractmethod
    def keep(self) -> AbstractContextManager[None]:
        """A context in which tasks run once, however often the result is read."""

    @abstractmethod
    def to_arrow(self) -> pa.Table: ...

    @abstractmethod
    def write_parquet(self, folder: str) -> None:
        """Write files into a folder that does not exist yet."""

    @abstractmethod
    def write_kafka(self, key_by: Sequence[str], options: Mapping[str, str], headers: Mapping[str, str]) -> None:
        """Send one JSON message per row, keyed by the first of these columns that exists and is not null."""

    @abstractmethod
    def native(self) -> Any:
        """The argument of a user's function: a DataFrame on Spark, an Arrow table in one process."""


# -- bodies that any runner may use


def select_columns(names: Sequence[str], schema: pa.Schema) -> tuple[Body, pa.Schema]:
    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (batch.select(names) for batch in batches)

    return run, pa.schema([schema.field(name) for name in names])


def add_column(name: str, value: int | bool, schema: pa.Schema) -> tuple[Body, pa.Schema]:
    """A column with the same number, or truth value, in every row."""
    kind = pa.bool_() if isinstance(value, bool) else pa.int64()
    field = pa.field(name, kind, nullable=False)

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (batch.append_column(field, pa.array(np.full(len(batch), value), kind)) for batch in batches)

    return run, schema.append(field)


def for_each_executor(
    body: ExecutorBody, executors: int, tasks: int, cpu_s: Callable[[], float], turn: int = 0
) -> Body:
    """The body of a task that serves several executors, from one for a single executor. All rows are there before the
    first executor begins; an executor without rows has its turn, too. What receiving them took, by the clock `cpu_s`,
    is divided by bytes. The executor that comes first takes a sixth longer, while caches and memory are cold, so with
    every `turn` it is another one."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if tasks == executors:
            yield from body(number, batches, 0.0)
            return
        began_s = cpu_s()
        arrived: dict[int, list[pa.RecordBatch]] = {executor: [] for executor in range(number, executors, tasks)}
        for batch in batches:
            for executor, rows in by_executor(batch):
                arrived[executor].append(rows)
        size = {executor: sum(part.nbytes for part in parts) for executor, parts in arrived.items()}
        second_per_byte = (cpu_s() - began_s) / max(1, sum(size.values()))
        served = list(arrived)
        first = turn % max(1, len(served))
        for executor in served[first:] + served[:first]:
            yield from body(executor, iter(arrived[executor]), second_per_byte * size[executor])

    return run


def by_executor(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each executor, in order, in one part or several; parcels, of which there are few, are not copied."""
    if not len(batch):
        return
    executors = batch.column("executor").to_numpy()
    if np.count_nonzero(np.diff(executors)) > RUNS_MAX:
        order = np.argsort(executors, kind="stable")
        batch, executors = batch.take(pa.array(order)), executors[order]
    begins = np.flatnonzero(np.diff(executors, prepend=-1))
    for begin, end in zip(begins, np.append(begins[1:], len(executors)), strict=True):
        yield int(executors[begin]), batch.slice(begin, end - begin)


def discard(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())


def conform_batches(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Check the columns of batches, as a runner does that sends them to other processes."""
    for batch in batches:
        yield batch if batch.schema.equals(schema) else batch.cast(schema)
