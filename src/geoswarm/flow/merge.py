"""What each event met, as the rows that go out: one per event with an array, or one per pair.

Every (event, subscription) pair appears once: an event is routed to one executor, and a live subscription rests in one
segment. When events start to visit several executors (keywords, PS2Stream §III-B), their halves meet here.
"""

import numpy as np
import pyarrow as pa

from geoswarm.flow.match.match import Met
from geoswarm.model import SUB_ID, SUB_IDS


def match_schema(events: pa.Schema, matches: str) -> pa.Schema:
    """The schema of what goes out: the event's own columns, then its subscriptions."""
    return events.append(SUB_IDS if matches == "arrays" else SUB_ID)


def as_arrays(met: Met) -> pa.RecordBatch:
    """One row per event that met something."""
    counts = np.diff(met.offsets)
    rows = np.flatnonzero(counts)
    events = met.events if len(rows) == len(counts) else met.events.take(pa.array(rows))
    offsets = np.append(met.offsets[:-1][rows], met.offsets[-1]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(met.subs), type=SUB_IDS.type)
    return pa.record_batch([*events.columns, lists], schema=match_schema(events.schema, "arrays"))


def as_pairs(met: Met) -> pa.RecordBatch:
    """One row per event and subscription."""
    rows = np.repeat(np.arange(len(met.events)), np.diff(met.offsets))
    events = met.events.take(pa.array(rows))
    return pa.record_batch([*events.columns, pa.array(met.subs)], schema=match_schema(events.schema, "pairs"))
