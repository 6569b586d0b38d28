"""Turns matches into the rows that go out: one for each event with an array, or one for each pair.

Every (event, subscription) pair appears once: a live subscription is in one segment, and where terms are divided it is
found by one of them only. An event that was sent to several executors for its terms comes back in several rows;
`join_rows` makes them one again (the merger of PS2Stream §III-B).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import cuts, row_bytes
from geoswarm.core.arrays.jit import Bools
from geoswarm.errors import StreamError
from geoswarm.flow.match.match import MatchRun
from geoswarm.model import EVENT, SUB_ID, SUB_IDS

OUTPUT_BYTES_MAX = 64 << 20
"""Bytes of one batch of pairs; an Arrow column of text may hold 2 GB."""


def match_schema(events: pa.Schema, matches: str) -> pa.Schema:
    """The schema of matches: the event's own columns, then its subscriptions."""
    return events.append(SUB_IDS if matches == "arrays" else SUB_ID)


def as_arrays(met: MatchRun, every: bool = False) -> Iterator[pa.RecordBatch]:
    """One row for each event that met a subscription; with `every`, for each event."""
    counts = np.diff(met.offsets)
    rows = np.arange(len(counts)) if every else np.flatnonzero(counts)
    if not len(rows):
        return
    events = met.events if len(rows) == len(counts) else met.events.take(pa.array(rows))
    offsets = np.append(met.offsets[:-1][rows], met.offsets[-1]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(met.subs), type=SUB_IDS.type)
    yield pa.record_batch([*events.columns, lists], schema=match_schema(events.schema, "arrays"))


def join_rows(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Joins rows of `as_arrays`, with the column `_event`: one row for each event, with all its subscriptions."""
    rows = pa.concat_batches([part for part in parts if len(part)] or parts[:1])
    numbers = rows.column("_event").to_numpy()
    order = np.argsort(numbers, kind="stable")
    rows = rows.take(pa.array(order))
    first = np.ones(len(rows), np.bool_)
    first[1:] = numbers[order][1:] != numbers[order][:-1]
    _check_numbers(rows, first)
    lists = rows.column(SUB_IDS.name)
    starts = lists.offsets.to_numpy()
    offsets = np.append(starts[:-1][first], starts[-1]).astype(np.int32)
    whole = pa.ListArray.from_arrays(pa.array(offsets), lists.values, type=SUB_IDS.type)
    events = rows.filter(pa.array(first))
    return events.set_column(events.schema.get_field_index(SUB_IDS.name), SUB_IDS, whole)


def _check_numbers(rows: pa.RecordBatch, first: Bools) -> None:
    """Events are numbered in the order of rows. A task that Spark runs again may read them in another order, if the
    stream promises none; then two events have one number."""
    again = np.flatnonzero(~first)
    for name in EVENT.names:
        values = rows.column(name)
        if not values.take(pa.array(again)).equals(values.take(pa.array(again - 1))):
            raise StreamError(
                "a task that was run again met its events in another order, so their matches cannot be put together: "
                "the batch is run again; sort the stream by event_id, or keep shuffles out of it, if this comes back"
            )


def split_arrays(rows: pa.RecordBatch) -> MatchRun:
    """The inverse of `as_arrays`."""
    lists = rows.column(SUB_IDS.name)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return MatchRun(rows.drop_columns([SUB_IDS.name]), offsets - offsets[0], lists.flatten().to_numpy())


def as_pairs(met: MatchRun, bytes_max: int = OUTPUT_BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """One row for each event and subscription, in batches of about `bytes_max`: a long text is repeated in each row."""
    rows = np.repeat(np.arange(len(met.events)), np.diff(met.offsets))
    schema = match_schema(met.events.schema, "pairs")
    for first, end in cuts(row_bytes(met.events)[rows], bytes_max):
        events = met.events.take(pa.array(rows[first:end]))
        yield pa.record_batch([*events.columns, pa.array(met.subs[first:end])], schema=schema)
