"""The last step before rows go out, where ids of subscriptions are texts: each number becomes the text that it is of.

Up to here matches, transitions, alerts and answers go by numbers (`core/subscriptions/id_texts.py`). Where ids are
integers, nothing of this runs.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.batches import cuts
from geoswarm.errors import StreamError
from geoswarm.flow.merge import OUTPUT_BYTES_MAX
from geoswarm.flow.stages.task import BatchState, BatchTask, Body
from geoswarm.model import SUB_ID, SUB_IDS

_TEXT_BYTES_MAX = (1 << 31) - 1
"""Of the ids of one event, in a column of Arrow."""


def shown_field(field: pa.Field) -> pa.Field:
    """A column of ids as it goes out."""
    kind = pa.list_(pa.field("element", pa.string())) if pa.types.is_list(field.type) else pa.string()
    return field.with_type(kind)


def show_ids(task: BatchTask, rows: pa.Schema) -> tuple[Body, pa.Schema]:
    """`rows` have `sub_ids`, or `sub_id`."""
    place = rows.get_field_index(SUB_IDS.name if SUB_IDS.name in rows.names else SUB_ID.name)
    shown = rows.set(place, shown_field(rows.field(place)))

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from with_texts(batch, place, shown, task.state)

    return run, shown


def with_texts(
    rows: pa.RecordBatch, place: int, shown: pa.Schema, state: BatchState, bytes_max: int = OUTPUT_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """In batches with about `bytes_max` of texts."""
    column = rows.column(place)
    is_list = pa.types.is_list(column.type)
    ids = column.flatten() if is_list else column
    if not len(rows):
        return
    offsets = column.offsets.to_numpy().astype(np.int64) if is_list else np.arange(len(rows) + 1)
    offsets -= offsets[0]
    coded = ids.dictionary_encode()
    texts = _texts_of(coded.dictionary, state)
    bytes_of = pc.binary_length(texts).to_numpy()[coded.indices.to_numpy()]
    ends = np.append(0, np.cumsum(bytes_of, dtype=np.int64))
    sizes = np.diff(ends[offsets])
    if int(sizes.max()) > _TEXT_BYTES_MAX:
        raise StreamError(
            f"an event has the ids of {np.diff(offsets)[sizes.argmax()]:,} subscriptions, with {sizes.max():,} bytes, "
            'in one row: set [tuning] matches = "pairs"'
        )
    for first, end in cuts(sizes, bytes_max):
        low, high = offsets[first], offsets[end]
        given = texts.take(coded.indices[low:high]).cast(pa.string())
        if is_list:
            lists = pa.array((offsets[first : end + 1] - low).astype(np.int32))
            given = pa.ListArray.from_arrays(lists, given, type=shown.field(place).type)
        columns = rows.slice(first, end - first).columns
        yield pa.record_batch([*columns[:place], given, *columns[place + 1 :]], schema=shown)


def _texts_of(ids: pa.Int64Array, state: BatchState) -> pa.LargeStringArray:
    """The text of each of some distinct ids, in any order."""
    numbers = ids.to_numpy()
    order = np.argsort(numbers)
    texts = state.id_texts(numbers[order])
    if texts.null_count:
        raise StreamError(f"{texts.null_count} subscriptions that matched have no text as id: restore a backup")
    return texts.take(pa.array(np.argsort(order)))
