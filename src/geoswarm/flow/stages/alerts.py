"""Matches as alerts: a row for each event and subscription, which says what happened and whose the subscription is.

Where objects are followed, transitions have found what it is of, since when, and its number in the sequence
(`flow/keyed/transitions.py`); without an object every match is of `inside`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.batches import cuts, row_bytes
from geoswarm.flow.keyed.told_rows import TOLD
from geoswarm.flow.merge import OUTPUT_BYTES_MAX
from geoswarm.flow.stages.task import BatchState, BatchTask, Body
from geoswarm.model import (
    ALERT,
    ALERT_KINDS,
    ENDED_REASON,
    NEVER_US,
    OF_ENDED,
    OF_INSIDE,
    PAYLOAD,
    SILENT,
    SINCE,
    SUB_IDS,
)


def make_alerts(task: BatchTask, rows: pa.Schema) -> tuple[Body, pa.Schema]:
    """`rows` have arrays of subscriptions, and if objects are followed `TOLD`."""
    own = [field for field in rows if field.name not in (SUB_IDS.name, *TOLD.names)]

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from alerts_of(batch, [field.name for field in own], task.state)

    return run, pa.schema([*map(_or_none, own), *ALERT])


def alerts_of(
    rows: pa.RecordBatch, own: Sequence[str], state: BatchState, bytes_max: int = OUTPUT_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """In batches of about `bytes_max`: what an event and a subscription have of their own is repeated in each row."""
    lists, events = rows.column(SUB_IDS.name), rows.select(own)
    subs = lists.flatten()
    if not len(subs):
        return
    ids, number = np.unique(subs.to_numpy(), return_inverse=True)
    users, payloads = state.users(ids), state.payloads(ids)
    event = np.repeat(np.arange(len(rows)), np.diff(lists.offsets.to_numpy()))
    sizes = pc.binary_length(payloads).fill_null(0).to_numpy()
    told = _told(rows, len(subs))
    silent = pc.if_else(pc.equal(told[0], ALERT_KINDS[OF_ENDED]), SILENT, pa.scalar(None, ENDED_REASON.type))
    schema = pa.schema([*map(_or_none, events.schema), *ALERT])
    for first, end in cuts(row_bytes(events)[event] + sizes[number], bytes_max):
        theirs = pa.array(number[first:end])
        columns = [
            *events.take(pa.array(event[first:end])).columns,
            subs[first:end],
            users.take(theirs),
            *(column[first:end] for column in told),
            payloads.take(theirs).cast(PAYLOAD.type),
            silent[first:end],
        ]
        yield pa.record_batch(columns, schema=schema)


def _or_none(field: pa.Field) -> pa.Field:
    """A column of events in alerts, of which some are of no event."""
    return field if field.name == "ts" else field.with_nullable(True)


def _told(rows: pa.RecordBatch, count: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The transition, since when, and the sequence of each alert."""
    names = pa.array(ALERT_KINDS)
    if TOLD.names[0] not in rows.schema.names:
        return names.take(pa.array(np.full(count, OF_INSIDE))), pa.nulls(count, SINCE.type), pa.nulls(count, pa.int64())
    kinds, since_us, sequence = (rows.column(name).flatten() for name in TOLD.names)
    since = pa.array(since_us.to_numpy(), mask=since_us.to_numpy() == NEVER_US).cast(SINCE.type)
    return names.take(kinds), since, pa.array(sequence.to_numpy(), mask=sequence.to_numpy() == 0)
