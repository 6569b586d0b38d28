"""Rows as a Spark DataFrame: each stage is one `mapInArrow`, each exchange one `repartitionById`."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import LongType, StructField, StructType

from geoswarm.flow.observe import TaskName
from geoswarm.flow.stages.task import Body
from geoswarm.run.rows import Rows
from geoswarm.run.spark.task_times import jvm_cpu_us, name_task


class SparkRows(Rows):
    def __init__(
        self, frame: DataFrame, columns: StructType | None = None, fields: Mapping[str, StructField] | None = None
    ) -> None:
        """`columns` are those of the frame, where they are known: asking Spark takes a millisecond. `fields` are
        columns that rows had on their way here: what comes back under such a name, and as the same Arrow type, has the
        Spark type that it had, which Arrow may not know."""
        self.frame = frame
        self._columns = columns or frame.schema
        self._fields = {**(fields or {}), **{field.name: field for field in self._columns}}

    @property
    def schema(self) -> pa.Schema:
        return to_arrow_schema(self._columns, timezone=self._zone)

    @property
    def name_task(self) -> Callable[[], TaskName]:
        return name_task

    def runner_cpu_us(self, tasks: Collection[TaskName]) -> dict[TaskName, int]:
        return jvm_cpu_us(self.frame.sparkSession, tasks)

    def map(self, body: Body, schema: pa.Schema) -> "SparkRows":
        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from body(TaskContext.get().partitionId(), batches)  # type: ignore[union-attr]

        columns = StructType([self._spark_field(field) for field in schema])
        return SparkRows(self.frame.mapInArrow(run, columns), columns, self._fields)

    def exchange(self, tasks: int) -> "SparkRows":
        return SparkRows(self.frame.repartitionById(tasks, "executor"), self._columns, self._fields)

    def union(self, other: Rows) -> "SparkRows":
        assert isinstance(other, SparkRows)
        return SparkRows(self.frame.unionAll(other.frame), self._columns, self._fields)

    def numbers(self, count: int) -> "SparkRows":
        spark = self.frame.sparkSession
        return SparkRows(spark.range(0, count, 1, min(count, spark.sparkContext.defaultParallelism)))

    def select(self, names: Sequence[str]) -> "SparkRows":
        columns = StructType([self._columns[name] for name in names])
        return SparkRows(self.frame.select(*names), columns, self._fields)

    def add_constant(self, name: str, value: int) -> "SparkRows":
        columns = StructType([*self._columns, StructField(name, LongType(), nullable=False)])
        return SparkRows(self.frame.withColumn(name, F.lit(value).cast(LongType())), columns, self._fields)

    def run(self) -> None:
        self.frame.write.format("noop").mode("overwrite").save()

    @contextmanager
    def keep(self) -> Iterator[None]:
        self.frame.persist()
        try:
            yield
        finally:
            self.frame.unpersist()

    def to_arrow(self) -> pa.Table:
        return self.frame.toArrow()

    def write_parquet(self, folder: str) -> None:
        self.frame.write.parquet(folder)

    def write_kafka(self, key_by: Sequence[str], options: Mapping[str, str]) -> None:
        # Keyed operators have other columns than matches, and digests have no event.
        named = [F.col(name).cast("string") for name in key_by if name in self.frame.columns]
        key = (F.coalesce(*named) if named else F.lit(None).cast("string")).alias("key")
        value = F.to_json(F.struct("*")).alias("value")
        self.frame.select(key, value).write.format("kafka").options(**options).save()

    def native(self) -> DataFrame:
        return self.frame

    def _spark_field(self, field: pa.Field) -> StructField:
        known = self._fields.get(field.name)
        if known is not None and to_arrow_type(known.dataType, timezone=self._zone) == field.type:
            return StructField(field.name, known.dataType, field.nullable)
        return StructField(field.name, from_arrow_type(field.type), field.nullable)

    @property
    def _zone(self) -> str:
        zone = self.frame.sparkSession.conf.get("spark.sql.session.timeZone")
        assert zone is not None
        return zone
