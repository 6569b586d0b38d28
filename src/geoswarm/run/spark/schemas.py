"""The schemas of what a user hands over, checked before the stream starts.

A column that is missing or of a type that cannot be converted without guessing is an error here; a bad value in a good
column is a dead letter later.
"""

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

from geoswarm import model
from geoswarm.core.subscriptions import columns
from geoswarm.errors import SchemaError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import GEOMETRY, OBJECT, TEXT

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_NUMBERS = (*_INTEGERS, FloatType, DoubleType, DecimalType)
_TIMES = (TimestampType, TimestampNTZType, DateType)


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's. Every column may be null: such a row is a dead letter, not an error."""
    return StructType([StructField(field.name, from_arrow_type(field.type)) for field in schema])


SPARK_EVENT, SPARK_OPERATION = spark_schema(model.EVENT), spark_schema(columns.OPERATION)
_ACCEPTED: dict[type[DataType], tuple[type[DataType], ...]] = {
    LongType: _INTEGERS,
    DoubleType: _NUMBERS,
    TimestampType: _TIMES,
    StringType: (StringType,),
    BinaryType: (BinaryType, StringType),  # WKB, or as text WKT or GeoJSON
}
ORDER = "_order"
"""A column by which operations of one batch are put back into the order they came in."""
RESERVED = ("sub_id", "sub_ids", "version", "executor", "batch", "_event", "_copies", "_candidates", "_sound")
"""Names that matches use themselves, or that are used on the way to them."""


def conform_events(frame: DataFrame) -> DataFrame:
    """The required columns in the engine's types, then every other column as it came."""
    placed = GEOMETRY.name not in frame.columns  # an area knows where it is
    required = [
        _column(frame, field, "events", required=placed or field.name not in ("x", "y")) for field in SPARK_EVENT
    ]
    extra = [name for name in frame.columns if name not in SPARK_EVENT.names]
    clash = [name for name in extra if name.casefold() in (*RESERVED, *SPARK_EVENT.names)]  # Spark ignores the case
    if clash:
        raise SchemaError(f"events have columns {clash}, which matches use themselves: rename them")
    for field in frame.schema:
        if field.name == TEXT.name and not isinstance(field.dataType, StringType):
            raise SchemaError(
                f"column text of events is {field.dataType.simpleString()}, but keywords are looked for in it: "
                "cast it to string, or rename it"
            )
        if field.name == OBJECT.name and not isinstance(field.dataType, (*_INTEGERS, StringType)):
            raise SchemaError(
                f"column {OBJECT.name} of events is {field.dataType.simpleString()}, but objects are told apart by it: "
                "cast it to bigint or string, or rename it"
            )
        if field.name == GEOMETRY.name and not isinstance(field.dataType, (BinaryType, StringType)):
            raise SchemaError(
                f"column {GEOMETRY.name} of events is {field.dataType.simpleString()}, but it says which area an "
                "event is: send WKB as binary, or WKT or GeoJSON as string; or rename it"
            )
    return frame.select(*required, *(F.col(f"`{name}`") for name in extra))


def conform_operations(frame: DataFrame) -> DataFrame:
    """All columns of an operation; those the source left out are null."""
    required = [column.name for column in columns.OPERATION_COLUMNS if column.is_required]
    chosen = [_column(frame, field, "operations", required=field.name in required) for field in SPARK_OPERATION]
    extra = [name for name in frame.columns if name not in (*SPARK_OPERATION.names, MALFORMED, ORDER)]
    if extra:
        raise SchemaError(f"operations have unknown columns: {columns.unknown_columns(extra)}")
    kept = [F.col(name) for name in (MALFORMED, ORDER) if name in frame.columns]
    return frame.select(*chosen, *kept)


def validated_schema(events: StructType) -> StructType:
    """The columns that events have once they are validated."""
    return StructType([field for field in events if field.name != MALFORMED])


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The same as tasks see it."""
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    return to_arrow_schema(validated_schema(frame.schema), timezone=zone)


def _column(frame: DataFrame, wanted: StructField, what: str, *, required: bool) -> Column:
    held = {field.name: field for field in frame.schema}.get(wanted.name)
    if held is None:
        if required:
            raise SchemaError(
                f"{what} have no column {wanted.name}, only {', '.join(frame.columns)}: "
                f"add it, for example with .withColumnRenamed(..., '{wanted.name}')"
            )
        return F.lit(None).cast(wanted.dataType).alias(wanted.name)
    accepted = _ACCEPTED[type(wanted.dataType)]
    if not isinstance(held.dataType, accepted):
        names = " or ".join(t().simpleString() for t in accepted if t is not DecimalType)
        raise SchemaError(
            f"column {wanted.name} of {what} is {held.dataType.simpleString()}, wanted is {names}: cast it"
        )
    return F.col(f"`{wanted.name}`").cast(wanted.dataType).alias(wanted.name)
