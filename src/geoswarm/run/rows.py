"""Rows on their way through the stages, on any runner: tasks of Arrow batches that are mapped, exchanged and written.

The pipeline (`pipeline.py`) is written against this; `spark/rows.py` runs it on Spark and `local/rows.py` in this
process. Nothing runs before the result is read, and reading it twice runs it twice, except within `keep`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from geoswarm.flow.observe import TaskName
from geoswarm.flow.stages.task import Body


class Rows(ABC):
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
    def exchange(self, tasks: int) -> "Rows":
        """Send each row to the task whose number is in its column `executor`."""

    @abstractmethod
    def union(self, other: "Rows") -> "Rows":
        """The tasks of both; their columns are the same."""

    @abstractmethod
    def numbers(self, count: int) -> "Rows":
        """The numbers 0 to `count` - 1 in one column, over tasks of the same runner."""

    @abstractmethod
    def select(self, names: Sequence[str]) -> "Rows": ...

    @abstractmethod
    def add_constant(self, name: str, value: int) -> "Rows": ...

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
    def write_kafka(self, key_by: Sequence[str], options: Mapping[str, str]) -> None:
        """Send one JSON message per row, keyed by the first of these columns that exists and is not null."""

    @abstractmethod
    def native(self) -> Any:
        """The argument of a user's function: a DataFrame on Spark, an Arrow table in one process."""
