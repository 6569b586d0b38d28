"""Each event to the partition that holds its cell, and through it to that partition's executor.

Within a partition the events leave in Z-order, which is the order the matcher wants them in: sorting once here, while
the columns are gathered anyway, spares it there. SWARM §4.1.1: O(1) per point.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from geoswarm.flow.batches import xy
from geoswarm.flow.match.index import CODE_MAX, codes_of, frame_of
from geoswarm.jit import Floats, kernel
from geoswarm.radix import argsort, sorted_order
from geoswarm.space.grid import column_of, row_of
from geoswarm.space.plan import Plan, Slots

SlotKeys = npt.NDArray[np.uint32]  # slots, unsigned as the radix sort wants its keys


class Parcel(NamedTuple):
    """The events of one partition, in Z-order."""

    partition: int
    executor: int
    events: pa.RecordBatch


def route(events: pa.RecordBatch, plan: Plan) -> Iterator[Parcel]:
    """`events` have passed the guard. Every event is in exactly one parcel."""
    if not len(events):
        return
    x, y = xy(events)
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
    slots = locate_slots(*xy(events), plan.grid.frame, plan.slot_of_cell)
    return plan.executor_of_slot[slots]


@kernel
def locate_slots(x: Floats, y: Floats, frame: Floats, slot_of_cell: Slots) -> SlotKeys:
    columns = int(frame[4])
    slots = np.empty(len(x), np.uint32)
    for i in range(len(x)):
        slots[i] = slot_of_cell[row_of(y[i], frame) * columns + column_of(x[i], frame)]
    return slots
