"""Messages of Kafka that tasks parse themselves, where they route them: through Spark go the bytes of their values.

A DataFrame of `sources.py` that nobody has changed is noted here with the one that it is made of, before anything is
parsed. The stream then reads that one, of the same topic and with the same offsets, and the tasks parse
(`run/message_reading.py`). In all other cases, Spark does.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from geoswarm.errors import GeoswarmError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.flow.stages.task import Body
from geoswarm.run.columns import PLAIN, Columns
from geoswarm.run.kafka_client import MessageRange, read_ranges
from geoswarm.run.message_formats import JSON_MESSAGES, MessageFormat
from geoswarm.run.message_reading import PLACE, VALUE
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.task_files import has_simple_columns

_LOG = logging.getLogger(__name__)
_VALUE, _PARTITION, _OFFSET = (
    StructField(VALUE, BinaryType()),
    StructField(PLACE[0], IntegerType()),
    StructField(PLACE[1], LongType()),
)


class MessagesOf(NamedTuple):
    """The messages behind a DataFrame of `sources.py`."""

    values: DataFrame
    """The stream of their values alone."""
    options: dict[str, str]
    """Those that Spark's reader was given."""
    columns: pa.Schema
    """Those of the DataFrame, and MALFORMED."""
    failures: list[str]
    """Why messages could not be read in this process; then it is not tried again."""
    names: Columns = PLAIN
    """What the messages call the columns."""
    form: MessageFormat = JSON_MESSAGES

    def rows(self, values: DataFrame) -> SparkRows:
        """The rows in the values of a batch, parsed by the tasks that receive them."""
        fields = [_VALUE, _PARTITION, _OFFSET] if self.names.makes_ids else [_VALUE]
        return SparkRows(values, StructType(fields)).map(_parsing(self.columns, self.names, self.form), self.columns)

    def table(self, values: pa.ChunkedArray) -> pa.Table:
        """The same, parsed in this process."""
        chunks = (pa.record_batch([chunk], names=[VALUE]) for chunk in values.chunks)
        batches = [self.form.read(chunk, self.columns, self.names) for chunk in chunks]
        return pa.Table.from_batches(batches, self.columns)

    def tables(self, ranges: Sequence[MessageRange]) -> Iterator[pa.Table] | None:
        """The rows of these messages, read in this process; None if only Spark can: because it must not mind messages
        that are gone, or its client has settings that ours does not know."""
        if not ranges:
            return iter(())
        options = {name.casefold(): value.casefold() for name, value in self.options.items()}
        if self.failures or options.get("failondataloss") == "false":
            return None
        try:
            values = read_ranges(self.options, ranges)
        except GeoswarmError as why:
            self.failures.append(str(why))
            _LOG.warning("Spark reads the operations from now on, and keeps the events of their batches: %s", why)
            return None
        return iter([self.table(pa.chunked_array([values]))])

    def with_columns(self, columns: pa.Schema) -> "MessagesOf":
        return self._replace(columns=columns.append(pa.field(MALFORMED, pa.string())))


_noted: WeakKeyDictionary[DataFrame, tuple[DataFrame, dict[str, str], Columns, MessageFormat]] = WeakKeyDictionary()
"""The stream of values that a DataFrame is made of, the options of its reader, what messages call its columns, and what
they are."""


def note_messages(
    frame: DataFrame,
    values: DataFrame,
    options: dict[str, str],
    names: Columns = PLAIN,
    form: MessageFormat = JSON_MESSAGES,
) -> DataFrame:
    """The same DataFrame."""
    _noted[frame] = values, options, names, form
    return frame


def messages_of(frame: DataFrame | None) -> MessagesOf | None:
    """The messages that tasks may parse instead of Spark; None if they may not. Spark parses columns that are neither
    numbers nor texts nor times, and times without a zone where the session's is not UTC."""
    if frame is None or frame not in _noted or not has_simple_columns(frame):
        return None
    columns = to_arrow_schema(StructType([field for field in frame.schema if field.name != MALFORMED]), timezone="UTC")
    values, options, names, form = _noted[frame]
    return MessagesOf(values, options, pa.schema([]), [], names, form).with_columns(columns)


def _parsing(columns: pa.Schema, names: Columns, form: MessageFormat) -> Body:
    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (form.read(batch, columns, names) for batch in batches)

    return run
