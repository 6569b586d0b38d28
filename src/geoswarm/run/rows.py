"""Rows on their way through the stages, whoever runs them: tasks of Arrow batches, mapped, exchanged, then written.

The pipeline (`pipeline.py`) is written against this; `spark/rows.py` runs it on Spark and `local/rows.py` in this
process. Nothing runs before somebody asks for the result, and asking twice runs it twice, unless within `keep`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from geoswarm.flow.stages.task import Body


class Rows(ABC):
    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns as tasks see them."""

    # -- through the stages

    @abstractmethod
    def map(self, body: Body, schema: pa.Schema) -> "Rows":
        """What each task makes of its batches, in columns of `schema`."""

    @abstractmethod
    def exchange(self, tasks: int) -> "Rows":
        """Each row to the task whose number is in its column `executor`."""

    @abstractmethod
    def union(self, other: "Rows") -> "Rows":
        """Tasks of both; the columns are the same."""

    @abstractmethod
    def numbers(self, count: int) -> "Rows":
        """Rows 0 to `count` - 1 in one column of integers, over tasks of the same runner."""

    @abstractmethod
    def select(self, names: Sequence[str]) -> "Rows": ...

    @abstractmethod
    def add_constant(self, name: str, value: int) -> "Rows": ...

    # -- out

    @abstractmethod
    def run(self) -> None:
        """Run every task, and keep nothing."""

    @abstractmethod
    def keep(self) -> AbstractContextManager[None]:
        """Within it, tasks run once, however often the result is asked for."""

    @abstractmethod
    def to_arrow(self) -> pa.Table: ...

    @abstractmethod
    def write_parquet(self, folder: str) -> None:
        """Into files of a folder that does not exist yet."""

    @abstractmethod
    def write_kafka(self, key_by: Sequence[str], options: Mapping[str, str]) -> None:
        """One JSON message per row, keyed by the first of these columns that is there and not null."""

    @abstractmethod
    def native(self) -> Any:
        """What a function of the user's gets: a DataFrame on Spark, an Arrow table in one process."""
