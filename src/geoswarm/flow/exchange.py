"""How parcels travel: one row each, with the events as a single Arrow buffer.

The shuffle then moves a few large rows instead of millions of small ones, and the receiver reads the buffer without
copying it. Both sides know the schema, so the buffer carries none.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from geoswarm.flow.route import Parcel

PACKED = pa.schema(
    [
        pa.field("executor", pa.int32(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),  # one of the numbers below
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
EVENT_PARCEL, SUBSCRIPTION_PARCEL, PASSING_PARCEL, NARROW_PARCEL = range(4)
"""Kinds of parcels: events of the partition, or rows of keys; its subscriptions, sent to its events; rows that go out
unchanged; rows of keys without the columns that follow from the others."""


def pack_parcels(parcels: Iterator[Parcel]) -> pa.RecordBatch:
    executors, partitions, kinds, ends = [], [], [], [0]
    payloads = pa.BufferOutputStream()
    for parcel in parcels:
        executors.append(parcel.executor)
        partitions.append(parcel.partition)
        kinds.append(parcel.kind)
        payloads.write(parcel.events.serialize())
        ends.append(payloads.tell())
    offsets = pa.py_buffer(np.array(ends, np.int32))
    binary = pa.Array.from_buffers(pa.binary(), len(executors), [None, offsets, payloads.getvalue()])
    numbers = (pa.array(executors, pa.int32()), pa.array(partitions, pa.int32()), pa.array(kinds, pa.int8()))
    return pa.record_batch([*numbers, binary], schema=PACKED)


def unpack_parcels(rows: pa.RecordBatch, events: pa.Schema) -> Iterator[Parcel]:
    for i in range(len(rows)):
        payload = rows.column("payload")[i].as_buffer()
        yield Parcel(
            rows.column("partition")[i].as_py(),
            rows.column("executor")[i].as_py(),
            pa.ipc.read_record_batch(payload, events),
            rows.column("kind")[i].as_py(),
        )
