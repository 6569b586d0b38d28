"""The subscriptions that have ended since the last batch and asked to be told so, with what their last row says; and
those that have begun, and asked who is inside.

A version has those that began, were cancelled or have expired in making it. The batch that runs with it tells them
(`flow/stages/ends.py`), so the version after it begins with none; a replay finds them with the version of its batch.
They are kept whole: the segments that had them may be merged away by then.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.core.subscriptions.attributes import ID, NOTIFY, PAYLOAD, USER
from geoswarm.core.subscriptions.ending import TELLS_ENDED
from geoswarm.core.subscriptions.id_texts import ID_TEXT
from geoswarm.model import ENDS, NEVER_US, TIMESTAMP
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, Segment
from geoswarm.store.storage import Storage

KIND = "ends"
"""The ending of the file's name."""
LAST_ROWS = ENDS.append(pa.field(ID_TEXT, pa.large_string()))
"""Null where ids are integers."""
NOBODY_ENDED = pa.RecordBatch.from_pylist([], schema=LAST_ROWS)
NOBODY_BEGAN: SubIds = np.empty(0, np.int64)


def ends_at(segments: Sequence[Segment], found: Ints, reason: str, now_us: int) -> pa.RecordBatch:
    """The rows of those at some places who asked for them. The end of what has expired is its expiry, of others now."""
    parts = [NOBODY_ENDED]
    for number in np.unique(found[0]).tolist():
        held, ordinals = segments[number], found[1, found[0] == number]
        ordinals = ordinals[NOTIFY.read(held[NOTIFY], ordinals) & TELLS_ENDED > 0]
        if len(ordinals):
            users = held[USER].names.take(pa.array(held[USER].codes[ordinals]))
            payloads = PAYLOAD.read(held[PAYLOAD], ordinals)
            expires_us = held.expires_us[ordinals] if len(held.expires_us) else np.full(len(ordinals), NEVER_US)
            ids, texts, ts_us = held.ids[ordinals], ID.read(held[ID], ordinals), np.minimum(expires_us, now_us)
            parts.append(end_rows(ids, users, payloads, reason, ts_us, texts))
    return pa.concat_batches(parts)


def end_rows(
    ids: SubIds,
    users: pa.StringArray,
    payloads: pa.LargeStringArray,
    reason: str,
    ts_us: Ints,
    texts: pa.LargeStringArray,
) -> pa.RecordBatch:
    columns = [pa.array(ids), users, payloads, pa.repeat(reason, len(ids)), pa.array(ts_us, TIMESTAMP), texts]
    typed = [column.cast(field.type) for column, field in zip(columns, LAST_ROWS, strict=True)]
    return pa.record_batch(typed, schema=LAST_ROWS)


def write_ends(storage: Storage, stem: str, ends: pa.RecordBatch, begun: SubIds) -> str | None:
    """Returns the name of the file; None if nobody is to be told. The checkpoint makes it durable."""
    if not len(ends) and not len(begun):
        return None
    name = f"{stem}.{KIND}"
    rows = np.frombuffer(ends.serialize(), np.uint8)
    storage.write_arrays(f"{SEGMENTS_FOLDER}/{name}", {"rows": rows, "begun": begun}, durable=False)
    return name


def open_ends(storage: Storage, name: str | None) -> tuple[pa.RecordBatch, SubIds]:
    """The last rows, and the ids of those that have begun, ascending."""
    if name is None:
        return NOBODY_ENDED, NOBODY_BEGAN
    arrays = storage.map_arrays(f"{SEGMENTS_FOLDER}/{name}")
    return pa.ipc.read_record_batch(pa.py_buffer(arrays["rows"]), LAST_ROWS), arrays["begun"]
