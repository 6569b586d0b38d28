"""Combine events and operations into one Spark stream, and convert each micro-batch for the pipeline."""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from geoswarm.run.offsets import OffsetLog
from geoswarm.run.pipeline import Batch
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.schemas import ORDER, arrow_schema

ARROW = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # With any lower limit Spark measures the batch after every row, a quarter of what the whole hop costs.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
"""The size of the batches that Spark sends to workers: 128 MB at 2 kB per event."""
EVENT_COLUMN, OPERATION_COLUMN = "event", "operation"
OPERATIONS_SOURCE = 1
"""The position of operations among the stream's sources, in Spark's log."""


def combine(events: DataFrame, operations: DataFrame | None) -> DataFrame:
    """One stream of both, so that one micro-batch holds the operations and the events that they precede."""
    if operations is None:
        return events.select(F.struct("*").alias(EVENT_COLUMN))
    no_event = F.lit(None).cast(events.schema).alias(EVENT_COLUMN)
    no_operation = F.lit(None).cast(operations.schema).alias(OPERATION_COLUMN)
    return events.select(F.struct("*").alias(EVENT_COLUMN), no_operation).unionAll(
        operations.select(no_event, F.struct("*").alias(OPERATION_COLUMN))
    )


def batch_of(frame: DataFrame, batch_id: int, offsets: OffsetLog) -> Batch:
    set_arrow_limits(frame)
    events = frame.where(F.col(OPERATION_COLUMN).isNull()) if OPERATION_COLUMN in frame.columns else frame
    events = events.select(f"{EVENT_COLUMN}.*")
    operations = partial(_operations, frame, batch_id, offsets)
    return Batch(batch_id, SparkRows(events), arrow_schema(events), operations, offsets.digest(batch_id))


def set_arrow_limits(frame: DataFrame) -> None:
    """Set the size of Arrow batches in the query's own session; the user's session does not change."""
    for key, value in ARROW.items():
        frame.sparkSession.conf.set(key, value)


def _operations(frame: DataFrame, batch_id: int, offsets: OffsetLog) -> Iterator[pa.Table]:
    """The operations of a batch. Spark reads the whole batch for it, events too: its optimizer cannot see into it."""
    if OPERATION_COLUMN not in frame.columns or not offsets.has_new(batch_id, OPERATIONS_SOURCE):
        return
    table = frame.where(F.col(OPERATION_COLUMN).isNotNull()).select(f"{OPERATION_COLUMN}.*").toArrow()
    if ORDER in table.schema.names:  # the sort is stable: rows of one file stay in order
        table = table.take(pc.sort_indices(table[ORDER])).drop_columns([ORDER])
    if len(table):
        yield table
