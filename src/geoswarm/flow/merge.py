"""What each event met, as the rows that go out: one per event with an array, or one per pair.

Every (event, subscription) pair appears once: an event is routed to one executor, and a live subscription rests in one
segment. When events start to visit several executors (keywords, PS2Stream §III-B), their halves meet here.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from geoswarm.flow.match.match import Met
from geoswarm.model import SUB_ID, SUB_IDS

OUTPUT_BYTES_MAX = 64 << 20
"""Of one batch of pairs; an Arrow column of text may hold 2 GB."""


def match_schema(events: pa.Schema, matches: str) -> pa.Schema:
    """The schema of what goes out: the event's own columns, then its subscriptions."""
    return events.append(SUB_IDS if matches == "arrays" else SUB_ID)


def as_arrays(met: Met) -> Iterator[pa.RecordBatch]:
    """One row per event that met something."""
    counts = np.diff(met.offsets)
    rows = np.flatnonzero(counts)
    if not len(rows):
        return
    events = met.events if len(rows) == len(counts) else met.events.take(pa.array(rows))
    offsets = np.append(met.offsets[:-1][rows], met.offsets[-1]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(met.subs), type=SUB_IDS.type)
    yield pa.record_batch([*events.columns, lists], schema=match_schema(events.schema, "arrays"))


def as_pairs(met: Met, bytes_max: int = OUTPUT_BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """One row per event and subscription, in batches of about `bytes_max`: a long text is repeated in each row."""
    rows = np.repeat(np.arange(len(met.events)), np.diff(met.offsets))
    step = max(1, bytes_max * len(met.events) // max(1, met.events.nbytes))
    schema = match_schema(met.events.schema, "pairs")
    for start in range(0, len(rows), step):
        events = met.events.take(pa.array(rows[start : start + step]))
        yield pa.record_batch([*events.columns, pa.array(met.subs[start : start + step])], schema=schema)
