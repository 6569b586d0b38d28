"""Combine events and operations into one Spark stream, and convert each micro-batch for the pipeline."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from geoswarm.run.offsets import OffsetLog
from geoswarm.run.pipeline import Batch
from geoswarm.run.rows import Rows
from geoswarm.run.spark.driver_rows import Driver, DriverRows
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.schemas import ORDER
from geoswarm.run.spark.task_files import FilesOf

ARROW = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # With any lower limit Spark measures the batch after every row, a quarter of what the whole hop costs.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
"""The size of the batches that Spark sends to workers: 128 MB at 2 kB per event."""
EVENT_COLUMN, OPERATION_COLUMN = "event", "operation"
EVENTS_SOURCE, OPERATIONS_SOURCE = 0, 1
"""Their positions among the stream's sources, in Spark's log, if each has one. A user's DataFrame may have several."""
LAST_SOURCE = -1
"""The position of operations that come from one folder, whatever the events come from."""


def combine(events: DataFrame, operations: DataFrame | None) -> DataFrame:
    """One stream of both, so that one micro-batch holds the operations and the events that they precede."""
    if operations is None:
        return events.select(F.struct("*").alias(EVENT_COLUMN))
    no_event = F.lit(None).cast(events.schema).alias(EVENT_COLUMN)
    no_operation = F.lit(None).cast(operations.schema).alias(OPERATION_COLUMN)
    return events.select(F.struct("*").alias(EVENT_COLUMN), no_operation).unionAll(
        operations.select(no_event, F.struct("*").alias(OPERATION_COLUMN))
    )


class Stream(NamedTuple):
    """A stream of both, and what its batches are made of beside Spark's rows."""

    offsets: OffsetLog
    columns: pa.Schema
    """Of events, once they are validated."""
    events: FilesOf | None
    """The files of the events, where tasks read them; None where Spark does."""
    operations: FilesOf | None
    driver: Driver | None = None
    """Runs small batches of files; None where tasks run all."""
    has_operations: bool = True
    """Known beforehand: asking Spark for the columns of a batch takes milliseconds."""

    def batch(self, frame: DataFrame, batch_id: int) -> Batch:
        set_arrow_limits(frame)
        content, operations = self.offsets.digest(batch_id), partial(self._operations, frame, batch_id)
        return Batch(batch_id, self._events(frame, batch_id), self.columns, operations, content)

    def _events(self, frame: DataFrame, batch_id: int) -> Rows:
        files = self.offsets.files(batch_id, EVENTS_SOURCE) if self.events is not None else None
        if self.events is not None and files is not None and self.events.can_read(files):
            if self.driver is not None and self.driver.takes(files):
                return DriverRows.read(frame.sparkSession, self.events, files)
            return self.events.rows(frame.sparkSession, files)
        events = frame.where(F.col(OPERATION_COLUMN).isNull()) if OPERATION_COLUMN in frame.columns else frame
        return SparkRows(events.select(f"{EVENT_COLUMN}.*"))

    def _operations(self, frame: DataFrame, batch_id: int) -> Iterator[pa.Table]:
        """The operations of a batch. Where Spark reads them, it reads the events of the batch with them: its optimizer
        cannot see into it."""
        if not self.has_operations or not self.offsets.has_new(batch_id, OPERATIONS_SOURCE):
            return
        files = self.offsets.files(batch_id, LAST_SOURCE) if self.operations is not None else None
        if self.operations is not None and files is not None:
            yield from self.operations.tables(files)
            return
        table = frame.where(F.col(OPERATION_COLUMN).isNotNull()).select(f"{OPERATION_COLUMN}.*").toArrow()
        if ORDER in table.schema.names:  # the sort is stable: rows of one file stay in order
            table = table.take(pc.sort_indices(table[ORDER])).drop_columns([ORDER])
        if len(table):
            yield table


def set_arrow_limits(frame: DataFrame) -> None:
    """Set the size of Arrow batches in the query's own session; the user's session does not change."""
    for key, value in ARROW.items():
        frame.sparkSession.conf.set(key, value)
