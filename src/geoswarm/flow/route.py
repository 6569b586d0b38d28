"""Each event to the partition that holds its cell, and through it to that partition's executor.

Within a partition the events leave in Z-order, which is the order the matcher wants them in: sorting once here, while
the columns are gathered anyway, spares it there. SWARM §4.1.1: O(1) per point.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.flow.match.index import CODE_MAX, codes_of, frame_of
from geoswarm.jit import Floats, ZCodes, kernel
from geoswarm.radix import argsort, sorted_order
from geoswarm.space.grid import column_of, row_of
from geoswarm.space.plan import Plan, Slots


class Parcel(NamedTuple):
    """The events of one partition, in Z-order."""

    partition: int
    executor: int
    events: pa.RecordBatch


def route(events: pa.RecordBatch, plan: Plan) -> Iterator[Parcel]:
    """`events` have passed the guard. Every event is in exactly one parcel."""
    if not len(events):
        return
    x, y = _floats(events, "x"), _floats(events, "y")
    slots = locate_slots(x, y, plan.grid.frame, plan.slot_of_cell)
    codes = codes_of(x, y, frame_of(plan.grid))
    order = argsort(slots, sorted_order(codes, CODE_MAX), len(plan.partitions) - 1)
    sorted_events = events.take(pa.array(order))
    sizes = np.bincount(slots, minlength=len(plan.partitions))
    ends = np.cumsum(sizes)
    for slot in np.flatnonzero(sizes):
        partition = plan.partitions[slot]
        part = sorted_events.slice(ends[slot] - sizes[slot], sizes[slot])
        yield Parcel(partition.id, partition.executor, part)


def executors_of(events: pa.RecordBatch, plan: Plan) -> Slots:
    """The executor of each event, in the order they came: what the row exchange shuffles by."""
    slots = locate_slots(_floats(events, "x"), _floats(events, "y"), plan.grid.frame, plan.slot_of_cell)
    return plan.executor_of_slot[slots]


def _floats(events: pa.RecordBatch, name: str) -> Floats:
    return np.asarray(events.column(name).to_numpy(), np.float64)


@kernel
def locate_slots(x: Floats, y: Floats, frame: Floats, slot_of_cell: Slots) -> ZCodes:
    columns = int(frame[4])
    slots = np.empty(len(x), np.uint32)
    for i in range(len(x)):
        slots[i] = slot_of_cell[row_of(y[i], frame) * columns + column_of(x[i], frame)]
    return slots


GATHERED_BYTES_MAX = 256 << 20
"""Keeps what one task packs at once far below the 2 GB that an Arrow binary column may hold."""


def gather_batches(batches: Iterator[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    """Fewer, longer batches: a parcel per partition costs the same whether it holds ten events or ten thousand."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += len(batch)
        size += batch.nbytes
        if rows >= rows_max or size >= GATHERED_BYTES_MAX:
            yield _one(held)
            held, rows, size = [], 0, 0
    if rows:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
