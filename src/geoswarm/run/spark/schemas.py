"""Check the schemas of a user's DataFrames, before the stream starts.

A column that is missing or of a type that cannot be converted without guessing is an error here; a bad value in a good
column is a dead letter later.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from geoswarm.config import SubIdKind
from geoswarm.core.subscriptions import attributes as columns
from geoswarm.errors import SchemaError
from geoswarm.flow import conform
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.flow.validate import check_operation_ids
from geoswarm.model import EVENT, SUB_ID
from geoswarm.run.made_ids import EVENT_ID
from geoswarm.run.source_times import TS, TsUnit, check_unit, read_times, timed
from geoswarm.run.spark.rows import SparkRows

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_NUMBERS = (*_INTEGERS, FloatType, DoubleType, DecimalType)
_TIMES = (TimestampType, TimestampNTZType, DateType)


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's. Every column may be null: such a row is a dead letter, not an error."""
    return StructType([StructField(field.name, from_arrow_type(field.type)) for field in schema])


SPARK_EVENT, SPARK_OPERATION = spark_schema(EVENT), spark_schema(columns.OPERATION)
_ACCEPTED: dict[type[DataType], tuple[type[DataType], ...]] = {
    LongType: _INTEGERS,
    DoubleType: _NUMBERS,
    TimestampType: _TIMES,
    StringType: (StringType,),
    BinaryType: (BinaryType, StringType),  # WKB, or as text WKT or GeoJSON
}
_TEXT_ID = StructField(SUB_ID.name, StringType())
_OPERATION_OF: dict[SubIdKind, StructType] = {
    "integer": SPARK_OPERATION,
    "text": StructType([_TEXT_ID if field.name == SUB_ID.name else field for field in SPARK_OPERATION]),
}
ORDER = "_order"
"""A column by which operations of one batch are put back into the order they came in."""


TS_UNIT = "geoswarm_ts_unit"
"""In the metadata of the column `ts`: what its numbers or texts mean, which tasks read."""


def ts_unit_of(frame: DataFrame) -> TsUnit | None:
    found = {field.name: field.metadata for field in frame.schema}.get(TS, {}).get(TS_UNIT)
    return check_unit(found)


BY_TASKS = "geoswarm_by_tasks"
"""In the metadata of a column that the tasks make that read the rows: then Spark cannot read them instead."""


def made_by_tasks(frame: DataFrame) -> list[str]:
    """What they make, in words."""
    return [field.metadata[BY_TASKS] for field in frame.schema if BY_TASKS in field.metadata]


def event_columns(frame: DataFrame) -> pa.Schema:
    """The columns of events as tasks give them, from a DataFrame as it is; refuses what cannot work."""
    return conform.conform_events(timed(_arrow_schema_of(frame, frame.schema), ts_unit_of(frame)))


def conform_events(frame: DataFrame) -> DataFrame:
    """The required columns in the engine's types, then every other column as it is. Numbers and texts that are times
    are left for the tasks (`read_ts`)."""
    event_columns(frame)
    is_raw = not isinstance(frame.schema[TS].dataType, _TIMES)
    as_they_are = {TS} if is_raw else set[str]()
    if isinstance(frame.schema[EVENT_ID].dataType, StringType):
        as_they_are.add(EVENT_ID)
    required = [F.col(field.name) if field.name in as_they_are else _cast(frame, field) for field in SPARK_EVENT]
    extra = [name for name in frame.columns if name not in SPARK_EVENT.names]
    return frame.select(*required, *(F.col(f"`{name}`") for name in extra))


def conform_operations(frame: DataFrame, ids: SubIdKind = "integer") -> DataFrame:
    """All columns of operations; those that the source does not have are null. Where ids are texts, so is `sub_id`."""
    if SUB_ID.name in frame.columns:
        check_operation_ids(_arrow_schema_of(frame, frame.select(SUB_ID.name).schema).field(0).type, ids)
    required = [column.name for column in columns.OPERATION_COLUMNS if column.is_required]
    chosen = [_column(frame, field, required=field.name in required) for field in _OPERATION_OF[ids]]
    extra = [name for name in frame.columns if name not in (*SPARK_OPERATION.names, MALFORMED, ORDER)]
    if extra:
        raise SchemaError(f"operations have unknown columns: {columns.unknown_columns(extra)}")
    kept = [F.col(name) for name in (MALFORMED, ORDER) if name in frame.columns]
    return frame.select(*chosen, *kept)


def read_ts(rows: SparkRows, columns: pa.Schema, unit: TsUnit | None) -> SparkRows:
    """Rows of conformed events in `columns`, of which `ts` may still be a number or a text."""
    if pa.types.is_timestamp(rows.schema.field(TS).type):
        return rows
    marked = columns if MALFORMED in columns.names else columns.append(pa.field(MALFORMED, pa.string()))

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (conform.cast_columns(read_times(batch, unit), marked) for batch in batches)

    return rows.map(run, marked)


def validated_schema(events: StructType) -> StructType:
    """The columns that events have once they are validated."""
    return StructType([field for field in events if field.name != MALFORMED])


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of validated events, as tasks see them."""
    return _arrow_schema_of(frame, validated_schema(frame.schema))


def _arrow_schema_of(frame: DataFrame, schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone=frame.sparkSession.conf.get("spark.sql.session.timeZone"))


def _column(frame: DataFrame, wanted: StructField, *, required: bool) -> Column:
    """A column of operations in the type that it must have."""
    given = {field.name: field for field in frame.schema}.get(wanted.name)
    if given is None and required:
        raise SchemaError(
            f"operations have no column {wanted.name}, only {', '.join(frame.columns)}: "
            f"add it, for example with .withColumnRenamed(..., '{wanted.name}')"
        )
    accepted = (*_INTEGERS, StringType) if wanted == _TEXT_ID else _ACCEPTED[type(wanted.dataType)]
    if given is not None and not isinstance(given.dataType, accepted):
        names = " or ".join(t().simpleString() for t in accepted if t is not DecimalType)
        raise SchemaError(
            f"column {wanted.name} of operations is {given.dataType.simpleString()}, wanted is {names}: cast it"
        )
    return _cast(frame, wanted)


def _cast(frame: DataFrame, wanted: StructField) -> Column:
    """The column in the type that it must have; null where the frame does not have it."""
    column = F.col(f"`{wanted.name}`") if wanted.name in frame.columns else F.lit(None)
    return column.cast(wanted.dataType).alias(wanted.name)
