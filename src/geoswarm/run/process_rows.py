"""Rows in one process: tasks run in turn, and an exchange hands batches over in memory. The local engine has no others,
and the driver of Spark runs small batches so (`spark/driver_rows.py`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Self

import pyarrow as pa

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX, gather
from geoswarm.flow.observe import TaskName
from geoswarm.flow.stages.task import Body
from geoswarm.run.kafka_sending import SENT, check_options, send_rows
from geoswarm.run.parquet_parts import GROUP_ROWS_MIN, open_part
from geoswarm.run.rows import Rows, add_column, by_executor, conform_batches, select_columns

Batches = Iterator[pa.RecordBatch]
Evaluation = Callable[[], list[Batches]]
"""Starts a run and returns the batches of each task, which are made as they are read."""

ONLY_TASK = TaskName(0, 0)
"""The name of every task: there is no runner that would know them apart."""


class LocalRows(Rows):
    is_in_process = True

    def __init__(self, schema: pa.Schema, evaluate: Evaluation) -> None:
        self._schema, self._evaluate = schema, evaluate
        self._kept: list[list[pa.RecordBatch]] | None = None
        self._keeps = False

    @classmethod
    def of_tasks(cls, schema: pa.Schema, tasks: Sequence[Callable[[], Batches]]) -> Self:
        return cls(schema, lambda: [task() for task in tasks])

    def _derive(self, schema: pa.Schema, evaluate: Evaluation) -> Self:
        """Rows of the same kind that are made of these."""
        return type(self)(schema, evaluate)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def name_task(self) -> Callable[[], TaskName]:
        return lambda: ONLY_TASK

    def runner_cpu_us(self, tasks: Collection[TaskName]) -> dict[TaskName, int]:
        return dict.fromkeys(tasks, 0)  # who reads a task's rows does so in its thread, and is measured with it

    def map(self, body: Body, schema: pa.Schema) -> Self:
        def evaluate() -> list[Batches]:
            return [conform_batches(body(number, task), schema) for number, task in enumerate(self._tasks())]

        return self._derive(schema, evaluate)

    def tasks_for(self, executors: int) -> int:
        return executors  # they cost nothing to start here

    def exchange(self, tasks: int, task_of: Sequence[int] = ()) -> Self:
        def evaluate() -> list[Batches]:
            arrived: list[list[pa.RecordBatch]] = [[] for _ in range(tasks)]
            for batch in (batch for task in self._tasks() for batch in task):
                for executor, part in by_executor(batch):
                    arrived[task_of[executor] if task_of else executor % tasks].append(part)
            return [iter(batches) for batches in arrived]

        return self._derive(self._schema, evaluate)

    def union(self, other: Rows) -> Self:
        assert isinstance(other, LocalRows)
        return self._derive(self._schema, lambda: [*self._tasks(), *other._tasks()])

    def numbers(self, count: int) -> Self:
        batch = pa.record_batch({"id": pa.array(range(count), pa.int64())})
        return self._derive(batch.schema, lambda: [iter([batch])])

    def select(self, names: Sequence[str]) -> Self:
        return self.map(*select_columns(names, self._schema))

    def add_constant(self, name: str, value: int | bool) -> Self:
        return self.map(*add_column(name, value, self._schema))

    def run(self) -> None:
        for task in self._tasks():
            for _ in task:
                pass

    @contextmanager
    def keep(self) -> Iterator[None]:
        self._keeps = True
        try:
            yield
        finally:
            self._keeps, self._kept = False, None

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches([batch for task in self._tasks() for batch in task], self._schema)

    def write_parquet(self, folder: str) -> None:
        Path(folder).mkdir(parents=True)
        with open_part(f"{folder}/part-00000.parquet", self._schema) as writer:
            every = chain.from_iterable(self._tasks())
            for batch in gather(every, GROUP_ROWS_MIN, GATHERED_BYTES_MAX):
                writer.write_batch(batch)

    def write_kafka(self, key_by: Sequence[str], options: Mapping[str, str], headers: Mapping[str, str]) -> None:
        check_options(options)
        self.map(send_rows(options, key_by, headers, self._schema), SENT).run()

    def native(self) -> pa.Table:
        return self.to_arrow()

    def _tasks(self) -> list[Batches]:
        if not self._keeps:
            return self._evaluate()
        if self._kept is None:
            self._kept = [list(task) for task in self._evaluate()]
        return [iter(batches) for batches in self._kept]
