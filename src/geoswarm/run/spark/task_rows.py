"""Rows that tasks read themselves, and hand to each other as messages: Spark starts the tasks and moves the bytes.

Spark SQL has no part in it: nothing is planned, and the JVM takes no Arrow batch apart to put it together again on the
other side of an exchange, row by row. It sees a message for an executor's parcels, in the shuffle of RDDs. Where
somebody wants a DataFrame, where tasks run once for several readers, and where single rows are exchanged, the same
steps are run by Spark SQL (`rows.py`).

    read ─► validate ─► route ─► messages ──shuffle──► parcels ─► match ─► files
    └────── a task of Python's ────────┘   the JVM     └── a task of Python's ─┘
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from typing import Any

import pyarrow as pa
from pyspark import RDD, SparkContext
from pyspark.serializers import FramedSerializer, NoOpSerializer
from pyspark.sql import SparkSession

from geoswarm.flow.exchange import PACKED
from geoswarm.flow.stages.task import Body
from geoswarm.run.rows import Rows, add_column, by_executor, conform_batches, discard, select_columns
from geoswarm.run.spark.rows import ClusterRows, SparkRows, Step

Batches = Iterator[pa.RecordBatch]
NUMBERS = pa.schema([pa.field("id", pa.int64())])


class TaskRows(ClusterRows):
    def __init__(
        self,
        spark: SparkSession,
        schema: pa.Schema,
        feed: Callable[[], "RDD[Any]"],
        plan: Callable[[], SparkRows],
        steps: tuple[Step, ...] = (),
    ) -> None:
        """The batches of `feed` after all `steps`; `plan` makes the same of Spark SQL."""
        self._session, self._schema = spark, schema
        self._feed, self._plan, self._steps = feed, plan, steps
        self._is_kept = False

    @classmethod
    def read(cls, spark: SparkSession, tasks: int, read: Body, schema: pa.Schema) -> "TaskRows":
        """The rows that each of `tasks` tasks reads."""
        return cls(
            spark,
            schema,
            lambda: _no_rows(spark.sparkContext, tasks),
            lambda: SparkRows.read_by_tasks(spark, tasks, read, schema),
            ((read, schema),),
        )

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def _spark(self) -> SparkSession:
        return self._session

    @cached_property
    def by_sql(self) -> SparkRows:
        return self._plan()

    def map(self, body: Body, schema: pa.Schema) -> ClusterRows:
        if self._is_kept:
            return self.by_sql.map(body, schema)
        steps = (*self._steps, (body, schema))
        return TaskRows(self._spark, schema, self._feed, lambda: self.by_sql.map(body, schema), steps)

    def exchange(self, tasks: int, task_of: Sequence[int] = ()) -> ClusterRows:
        if self._is_kept or self.schema != PACKED:
            return self.by_sql.exchange(tasks, task_of)
        return TaskRows(
            self._spark, PACKED, lambda: self._send(tasks, task_of), lambda: self.by_sql.exchange(tasks, task_of)
        )

    def union(self, other: Rows) -> SparkRows:
        return self.by_sql.union(other)

    def numbers(self, count: int) -> ClusterRows:
        tasks = min(count, self._spark.sparkContext.defaultParallelism)
        return TaskRows.read(self._spark, tasks, partial(_numbers, count, tasks), NUMBERS)

    def select(self, names: Sequence[str]) -> ClusterRows:
        return self.map(*select_columns(names, self.schema))

    def add_constant(self, name: str, value: int | bool) -> ClusterRows:
        return self.map(*add_column(name, value, self.schema))

    def run(self) -> None:
        if self._is_kept:
            self.by_sql.run()
        else:
            self._end_with(partial(_run_steps, (*self._steps, (discard, self.schema))), NoOpSerializer())._jrdd.count()

    @contextmanager
    def keep(self) -> Iterator[None]:
        with self.by_sql.keep():
            self._is_kept = True
            try:
                yield
            finally:
                self._is_kept = False

    def to_arrow(self) -> pa.Table:
        if self._is_kept:
            return self.by_sql.to_arrow()
        given = self._end_with(partial(_run_steps, self._steps), BatchSerializer(self.schema))
        return pa.Table.from_batches(given.collect(), self.schema)

    def write_parquet(self, folder: str) -> None:
        self.write_parts(folder)

    def _send(self, tasks: int, task_of: Sequence[int]) -> "RDD[Any]":
        """The parcels as the next tasks receive them."""
        context = self._spark.sparkContext
        java: Any = context._jvm
        sent = self._end_with(partial(_address, self._steps, tasks, task_of), NoOpSerializer())
        pairs = java.PairwiseRDD(sent._jrdd.rdd()).asJavaPairRDD()
        moved = pairs.partitionBy(java.PythonPartitioner(tasks, 0))
        return RDD(java.PythonRDD.valueOfPair(moved), context, BatchSerializer(PACKED))

    def _end_with(self, run: Callable[[int, Any], Iterator[Any]], serializer: Any) -> Any:
        """What `run` makes of the feed, in the form that `serializer` writes."""
        given: Any = self._feed().mapPartitionsWithIndex(run)
        given._jrdd_deserializer = serializer  # for RDDs of its own, PySpark sets it so too
        return given


class BatchSerializer(FramedSerializer):
    """Arrow batches whose columns both sides know."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def dumps(self, obj: pa.RecordBatch) -> Any:
        return obj.serialize()

    def loads(self, obj: bytes) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(pa.py_buffer(obj), self.schema)


def _numbers(count: int, tasks: int, number: int, batches: Batches) -> Batches:
    """The part of a task of the numbers below `count`."""
    deque(batches, maxlen=0)  # Spark drops a worker that leaves its input unread
    yield pa.record_batch([pa.array(range(number, count, tasks), pa.int64())], schema=NUMBERS)


def _run_steps(steps: Sequence[Step], number: int, batches: Batches) -> Batches:
    for body, schema in steps:
        batches = conform_batches(body(number, batches), schema)
    return batches


def _address(
    steps: Sequence[Step], tasks: int, task_of: Sequence[int], number: int, batches: Batches
) -> Iterator[bytes | pa.Buffer]:
    """The parcels that the steps make, each after the number of the task that it is sent to."""
    for batch in _run_steps(steps, number, batches):
        for executor, parcels in by_executor(batch):
            task = task_of[executor] if task_of else executor % tasks
            yield task.to_bytes(8)  # as Spark's partitioner reads it
            yield parcels.serialize()


@lru_cache(maxsize=16)
def _no_rows(context: SparkContext, tasks: int) -> "RDD[Any]":
    """So many tasks without any rows, each of which has its number."""
    return context.parallelize([], tasks)
