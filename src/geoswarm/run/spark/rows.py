"""Rows on Spark: the stages between two exchanges are one `mapInArrow`, each exchange is one `repartitionById`.

Spark carries parcels, not rows: what a stage gives to the next one stays in the worker, and files are written where the
rows are made. Only a sink that wants a DataFrame gets rows from Spark.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import BooleanType, DataType, LongType, StructField, StructType

from geoswarm.errors import SettingsError
from geoswarm.flow.observe import TaskName
from geoswarm.flow.stages.task import Body
from geoswarm.model import VERSION
from geoswarm.run.kafka_sending import SENT, VERSION_HEADER, check_options, send_rows
from geoswarm.run.message_writing import SentAs
from geoswarm.run.parquet_parts import WRITTEN, keep_only, write_parts
from geoswarm.run.rows import Rows, add_column, conform_batches, discard, select_columns
from geoswarm.run.spark.slots import slots_max
from geoswarm.run.spark.task_times import jvm_cpu_us, name_task

_LOG = logging.getLogger(__name__)
Step = tuple[Body, pa.Schema]
"""A body, and the columns that it gives."""


class ClusterRows(Rows):
    """Rows of tasks that Spark starts: what does not depend on the way in which they reach the next task."""

    @property
    @abstractmethod
    def by_sql(self) -> "SparkRows":
        """The same rows as a plan of Spark SQL."""

    @property
    @abstractmethod
    def _spark(self) -> SparkSession: ...

    @property
    def name_task(self) -> Callable[[], TaskName]:
        return name_task

    def runner_cpu_us(self, tasks: Collection[TaskName]) -> dict[TaskName, int]:
        return jvm_cpu_us(self._spark, tasks)

    def tasks_for(self, executors: int) -> int:
        slots = slots_max(self._spark)
        return executors if slots is None else min(executors, slots)

    def numbers(self, count: int) -> "ClusterRows":
        spark = self._spark
        return SparkRows(spark.range(0, count, 1, min(count, spark.sparkContext.defaultParallelism)))

    def write_parts(self, folder: str) -> None:
        """Write a file from each task into a folder that does not exist yet."""
        open_folder = Path(f"{folder}-open")
        open_folder.mkdir(parents=True)
        written = self.map(write_parts(str(open_folder), self.schema), WRITTEN).to_arrow()
        open_folder.rename(folder)  # from now on an attempt that still runs finds no folder to write to
        keep_only(folder, written.column(WRITTEN.names[0]).to_pylist())

    def write_kafka(self, key_by: Sequence[str], options: Mapping[str, str], headers: Mapping[str, str]) -> None:
        try:
            check_options(options)
        except SettingsError as why:
            _warn_of_spark_writer(str(why))
            self.by_sql.write_kafka_by_spark(key_by, options, headers)
            return
        self.map(send_rows(options, key_by, headers, self.schema), SENT).run()

    def native(self) -> DataFrame:
        return self.by_sql.frame


class SparkRows(ClusterRows):
    def __init__(
        self,
        source: DataFrame,
        columns: StructType | None = None,
        fields: Mapping[str, StructField] | None = None,
        steps: tuple[Step, ...] = (),
    ) -> None:
        """The rows of `source` after all `steps`. `columns` are those of the result, where they are known: asking Spark
        takes a millisecond. `fields` are columns that rows had on their way here: what comes back under such a name,
        and as the same Arrow type, has the Spark type that it had, which Arrow may not know."""
        self._source, self._steps = source, steps
        self._columns = columns or source.schema
        self._fields = {**(fields or {}), **{field.name: field for field in self._columns}}
        self._is_kept = False

    @classmethod
    def read_by_tasks(cls, spark: SparkSession, tasks: int, read: Body, schema: pa.Schema) -> "SparkRows":
        """Rows that come from no stream of Spark's: each of `tasks` tasks reads its own."""
        return cls(spark.range(0, tasks, 1, tasks)).map(read, schema)

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as a DataFrame."""
        if not self._steps:
            return self._source
        steps = self._steps

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            number = TaskContext.get().partitionId()  # type: ignore[union-attr]
            for body, schema in steps:
                batches = conform_batches(body(number, batches), schema)
            yield from batches

        return self._source.mapInArrow(run, self._columns)

    @property
    def schema(self) -> pa.Schema:
        if self._steps:
            return self._steps[-1][1]
        return to_arrow_schema(self._columns, timezone=self._zone)

    @property
    def by_sql(self) -> "SparkRows":
        return self

    def map(self, body: Body, schema: pa.Schema) -> "SparkRows":
        columns = StructType([self._spark_field(field) for field in schema])
        if self._is_kept:
            return SparkRows(self.frame, columns, self._fields, ((body, schema),))
        return SparkRows(self._source, columns, self._fields, (*self._steps, (body, schema)))

    def exchange(self, tasks: int, task_of: Sequence[int] = ()) -> "SparkRows":
        chosen = f"array({', '.join(map(str, task_of))})[executor]" if task_of else f"executor % {tasks}"
        served = self.frame.repartitionById(tasks, F.expr(chosen))
        return SparkRows(served, self._columns, self._fields)

    def union(self, other: Rows) -> "SparkRows":
        assert isinstance(other, ClusterRows)
        beside = other.by_sql
        return SparkRows(self.frame.unionAll(beside.frame), self._columns, {**self._fields, **beside._fields})

    def select(self, names: Sequence[str]) -> "SparkRows":
        if self._steps:
            return self.map(*select_columns(names, self.schema))
        columns = StructType([self._columns[name] for name in names])
        return SparkRows(self.frame.select(*names), columns, self._fields)

    def add_constant(self, name: str, value: int | bool) -> "SparkRows":
        if self._steps:
            return self.map(*add_column(name, value, self.schema))
        kind = BooleanType() if isinstance(value, bool) else LongType()
        columns = StructType([*self._columns, StructField(name, kind, nullable=False)])
        return SparkRows(self.frame.withColumn(name, F.lit(value).cast(kind)), columns, self._fields)

    def run(self) -> None:
        discarded = self.map(discard, self.schema) if self._steps else self
        discarded.frame.write.format("noop").mode("overwrite").save()

    @contextmanager
    def keep(self) -> Iterator[None]:
        self._is_kept = True
        self.frame.persist()
        try:
            yield
        finally:
            self.frame.unpersist()
            self._is_kept = False

    def to_arrow(self) -> pa.Table:
        return self.frame.toArrow()

    def write_parquet(self, folder: str) -> None:
        if not self._steps or not all(self._survives_arrow(field.dataType) for field in self._columns):
            self.frame.write.parquet(folder)
        else:
            self.write_parts(folder)

    def write_kafka_by_spark(
        self, key_by: Sequence[str], options: Mapping[str, str], headers: Mapping[str, str]
    ) -> None:
        """The same, with Spark's writer: where its client has settings that ours does not know, or ours is missing."""
        form = SentAs.of(options)
        if form.name != "json":
            raise SettingsError(
                f"messages in {form.name} are sent by the tasks alone: pip install 'geoswarm[kafka]', and leave out "
                "settings that only Java's client knows"
            )
        # Keyed operators have other columns than matches, and digests have no event.
        named = [F.col(name).cast("string") for name in key_by if name in self.frame.columns]
        key = (F.coalesce(*named) if named else F.lit(None).cast("string")).alias("key")
        value = F.to_json(F.struct("*")).alias("value")
        texts = {name: F.lit(text) for name, text in headers.items()}
        if VERSION in self.frame.columns:
            texts[VERSION_HEADER] = F.col(VERSION)
        pairs = [
            F.struct(F.lit(name).alias("key"), text.cast("string").cast("binary").alias("value"))
            for name, text in texts.items()
        ]
        sent = self.frame.select(key, value, F.array(*pairs).alias("headers"))
        sent.write.format("kafka").options(**options).save()

    def _spark_field(self, field: pa.Field) -> StructField:
        known = self._fields.get(field.name)
        if known is not None and to_arrow_type(known.dataType, timezone=self._zone) == field.type:
            return StructField(field.name, known.dataType, field.nullable)
        return StructField(field.name, from_arrow_type(field.type), field.nullable)

    def _survives_arrow(self, kind: DataType) -> bool:
        """Whether a type comes back from Arrow as it went; others must be written by Spark."""
        return from_arrow_type(to_arrow_type(kind, timezone=self._zone)) == kind

    @property
    def _spark(self) -> SparkSession:
        return self._source.sparkSession

    @cached_property
    def _zone(self) -> str:
        zone = self._spark.conf.get("spark.sql.session.timeZone")
        assert zone is not None
        return zone


@lru_cache(maxsize=16)  # a reason is said once
def _warn_of_spark_writer(why: str) -> None:
    _LOG.warning("Spark writes to Kafka, which takes longer than writing from the tasks: %s", why)
