"""Ids for events that have none: made from where the source has the event, so a batch that is read again has the same.

                 63 bits, so an id is never negative
    files        │ number of the file, 28 │ place in the file, 35 │
    tables       │ number of the table, 28 │ row, 35              │
    Kafka        │ partition, 16 │ offset, 47                     │

Files are numbered in the order in which the stream took them, by its log, whatever they are called. The place is the
number of the row; in JSON lines the byte at which its line begins, since a task may begin anywhere in a file. No two
rows of a stream have the same id: what has no room in these bits is refused, and never wraps around.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints
from geoswarm.errors import StreamError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run.stream_log import StreamLogReader, TakenFile

MADE: Literal["made"] = "made"
"""What `event_id` is set to where ids are to be made."""
EVENT_ID = "event_id"
FILE_BITS, PLACE_BITS = 28, 35
"""A file a second for eight years, each of 34 thousand million rows, or 32 GiB of JSON."""
PARTITION_BITS, OFFSET_BITS = 16, 47
"""Any cluster's partitions, each with a million messages a second for four years."""


def place_ids(batch: pa.RecordBatch, number: int, places: Ints) -> pa.RecordBatch:
    """The batch with an `event_id` for each row, of the file or table with this number."""
    assert 0 <= number < 1 << FILE_BITS
    over = f"it is at place {{}} of its file, and made ids have room for {1 << PLACE_BITS:,}: cut such files"
    return _with_ids(batch, (number << PLACE_BITS) + places, places >> PLACE_BITS != 0, places, over)


def message_ids(batch: pa.RecordBatch, partitions: pa.Array, offsets: pa.Array) -> pa.RecordBatch:
    """The same for messages of one topic."""
    part, offset = (np.asarray(column, np.int64) for column in (partitions, offsets))
    over = f"its partition or its offset, {{}}, is beyond {1 << PARTITION_BITS:,} or {1 << OFFSET_BITS:,}, for which "
    over += "made ids have room: name a column event_id"
    beyond = (part >> PARTITION_BITS != 0) | (offset >> OFFSET_BITS != 0)
    return _with_ids(batch, (part << OFFSET_BITS) + offset, beyond, offset, over)


def _with_ids(batch: pa.RecordBatch, ids: Ints, beyond: Ints, places: Ints, why: str) -> pa.RecordBatch:
    """Rows beyond what the ids have room for are malformed, and say why."""
    at = batch.schema.get_field_index(EVENT_ID)
    made = batch.set_column(at, pa.field(EVENT_ID, pa.int64()), pa.array(ids, mask=beyond if beyond.any() else None))
    if not beyond.any():
        return made
    texts = batch.column(MALFORMED).to_pylist()
    for row in np.flatnonzero(beyond).tolist():
        texts[row] = texts[row] or "no id can be made for it: " + why.format(places[row])
    at = batch.schema.get_field_index(MALFORMED)
    return made.set_column(at, pa.field(MALFORMED, pa.string()), pa.array(texts, pa.string()))


class FileNumbers:
    """Numbers the files of a source of one stream, in the order of its log."""

    def __init__(self) -> None:
        self._step, self._before = 0, 0
        """A step, and the files of all steps before it."""

    def number(self, log: StreamLogReader, source: int, after: int, files: Sequence[TakenFile]) -> list[TakenFile]:
        """The files with their numbers; they are all of the steps behind `after`, in the order of the log."""
        first = after + 1
        if first < self._step:
            self._step, self._before = 0, 0
        if first > self._step:
            self._before += len(log.files(source, self._step - 1, after))
            self._step = first
        return [file._replace(number=self._before + place) for place, file in enumerate(files)]


def check_room(files: Sequence[TakenFile]) -> None:
    """Raises StreamError if there are more files than made ids can tell apart."""
    most = max((file.number for file in files), default=0)
    if most >= 1 << FILE_BITS:
        raise StreamError(
            f"this stream has taken {most + 1:,} files, and made ids have room for {1 << FILE_BITS:,}: begin a new "
            "checkpoint, or name a column event_id"
        )
