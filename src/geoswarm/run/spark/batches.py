"""Combine events and operations into one Spark stream, and convert each micro-batch for the pipeline."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from geoswarm.config import SubIdKind
from geoswarm.errors import SchemaError, StreamError
from geoswarm.flow.conform import without_malformed
from geoswarm.run.columns import check_declared_ids
from geoswarm.run.message_reading import VALUE
from geoswarm.run.offsets import OffsetLog
from geoswarm.run.pipeline import Batch
from geoswarm.run.rows import Rows
from geoswarm.run.source_times import TsUnit
from geoswarm.run.spark.driver_rows import Driver, DriverRows
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.schemas import (
    ORDER,
    conform_events,
    conform_operations,
    event_columns,
    made_by_tasks,
    read_ts,
    ts_unit_of,
)
from geoswarm.run.spark.task_files import FilesOf, files_of
from geoswarm.run.spark.task_messages import MessagesOf, messages_of
from geoswarm.run.undeclared import SAMPLE_EVENTS, LeftOut, first_lines

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
"""The position of operations that come from one folder or one reader of Kafka, whatever the events come from."""


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
    events: FilesOf | MessagesOf | None
    """What tasks read or parse themselves; None where Spark does."""
    operations: FilesOf | MessagesOf | None
    ts_unit: TsUnit | None = None
    driver: Driver | None = None
    """Runs small batches of files; None where tasks run all."""
    has_operations: bool = True
    """Known beforehand: asking Spark for the columns of a batch takes milliseconds."""
    left_out: LeftOut | None = None
    """Says which fields of events are left out; None: nobody is told."""

    @classmethod
    def of(
        cls, events: DataFrame, operations: DataFrame | None, where: str, ids: SubIdKind = "integer"
    ) -> tuple["Stream", DataFrame]:
        """The stream, whose log is in the folder `where`, and the DataFrame of it that Spark is to run. `ids` are those
        of subscriptions."""
        conformed = conform_events(events)
        columns = without_malformed(event_columns(events))
        came: FilesOf | MessagesOf | None = files_of(events) or messages_of(events)
        made = made_by_tasks(events)
        if came is None and made:
            raise SchemaError(
                f"{' and '.join(made)} can be made by the tasks that read the events alone, and here Spark must read "
                "them: use the source as it comes from gs.sources, plain types of columns, and UTC as the session's "
                'time zone; or leave out event_id = "made", extra = "all" and the format'
            )
        dotted = [name for name in columns.names if "." in name]
        if came is None and dotted:
            raise SchemaError(f"column {dotted[0]!r} has a dot in its name, which Spark cannot hand over: rename it")
        asked: FilesOf | MessagesOf | None = files_of(operations) or messages_of(operations)
        unit = ts_unit_of(events)
        stream = cls(OffsetLog(where), columns, came and came.with_columns(columns), asked, unit)
        rows_of_operations = conform_operations(operations, ids) if operations is not None else None
        if asked is not None and (isinstance(asked, MessagesOf) or asked.kind != "parquet"):
            check_declared_ids(asked.names.sub_id, ids)
        if asked is None and operations is not None and made_by_tasks(operations):
            raise SchemaError(
                f"{made_by_tasks(operations)[0]} are not read by Spark: use the source as it comes from gs.sources, "
                "and UTC as the session's time zone; or leave out the format"
            )
        return stream, combine(
            came.values if isinstance(came, MessagesOf) else conformed,
            asked.values if isinstance(asked, MessagesOf) else rows_of_operations,
        )

    @contextmanager
    def batch(self, frame: DataFrame, batch_id: int) -> Iterator[Batch]:
        """The batch, for as long as it runs."""
        set_arrow_limits(frame)
        content, operations = self.offsets.digest(batch_id), partial(self._operations, frame, batch_id)
        try:
            yield Batch(batch_id, self._events(frame, batch_id), self.columns, operations, content)
        finally:
            if frame.is_cached:
                frame.unpersist()

    def _events(self, frame: DataFrame, batch_id: int) -> Rows:
        if isinstance(self.events, FilesOf):
            made = self.events.names.made
            files = self.offsets.files(batch_id, EVENTS_SOURCE, numbers=bool(made))
            if files and self.events.kind == "json" and self.left_out is not None and self.left_out.is_due:
                self.left_out.look(first_lines(files), self.events.names, self.events.columns, str(self.events.folder))
            if files is not None and self.events.can_read(files):
                if self.driver is not None and self.driver.takes(files):
                    return DriverRows.read(frame.sparkSession, self.events, files)
                return self.events.rows(frame.sparkSession, files)
            if made:
                raise StreamError(
                    f"{' and '.join(made)} of batch {batch_id} cannot be made, since only Spark can read its files, or "
                    "its log of them: write them without Hadoop's compression or columns in names of folders, to a "
                    'path that this machine reaches; or leave out event_id = "made" and extra = "all"'
                )
        events = frame.where(F.col(OPERATION_COLUMN).isNull()) if OPERATION_COLUMN in frame.columns else frame
        events = events.select(f"{EVENT_COLUMN}.*")
        if isinstance(self.events, MessagesOf):
            can_say = self.left_out is not None and self.left_out.is_due and self.events.form.name == "json"
            if self.left_out is not None and can_say and self.offsets.has_new(batch_id, EVENTS_SOURCE):
                sample: Any = events.select(VALUE).limit(SAMPLE_EVENTS).toArrow()
                topic = self.events.options.get("subscribe", "of several")
                self.left_out.look(sample[VALUE].to_pylist(), self.events.names, self.events.columns, f"topic {topic}")
            return self.events.rows(events)
        return read_ts(SparkRows(events), self.columns, self.ts_unit)

    def _operations(self, frame: DataFrame, batch_id: int) -> Iterator[pa.Table]:
        """The operations of a batch, from where its source has them. Only if that is not known are all rows of the
        batch searched; then they are kept, so that no event is read twice."""
        if not self.has_operations or not self.offsets.has_new(batch_id, OPERATIONS_SOURCE):
            return
        found = self._from_source(batch_id)
        if found is None:
            frame.persist()
            rows = frame.where(F.col(OPERATION_COLUMN).isNotNull()).select(f"{OPERATION_COLUMN}.*").toArrow()
            found = iter([self.operations.table(rows[VALUE]) if isinstance(self.operations, MessagesOf) else rows])
        for table in found:
            if ORDER in table.schema.names:  # the sort is stable: rows of one file stay in order
                table = table.take(pc.sort_indices(table[ORDER])).drop_columns([ORDER])
            if len(table):
                yield table

    def _from_source(self, batch_id: int) -> Iterator[pa.Table] | None:
        """The operations of a batch, read in this process; None if Spark must."""
        if isinstance(self.operations, FilesOf):
            files = self.offsets.files(batch_id, LAST_SOURCE)
            return None if files is None else self.operations.tables(files)
        if isinstance(self.operations, MessagesOf):
            ranges = self.offsets.ranges(batch_id, LAST_SOURCE)
            return None if ranges is None else self.operations.tables(ranges)
        return None


def set_arrow_limits(frame: DataFrame) -> None:
    """Set the size of Arrow batches in the query's own session; the user's session does not change."""
    for key, value in ARROW.items():
        frame.sparkSession.conf.set(key, value)
