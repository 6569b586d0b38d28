"""Routes each event to the partition of its cell, and so to its executor, or to one of those it is spread over.

Within a partition the events are in Z-order, which the matcher needs: sorting here, while the columns are gathered
anyway, saves it there. SWARM §4.1.1: O(1) per point.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from geoswarm.core.arrays.batches import xy
from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.cells import CODE_MAX, codes_of, frame_of
from geoswarm.core.keys.hashing import key_ids
from geoswarm.core.space.grid import column_of, row_of
from geoswarm.core.space.plan import ExecutorIds, Plan, Slots

SlotKeys = npt.NDArray[np.uint32]  # slots, unsigned as the radix sort needs its keys


class Parcel(NamedTuple):
    """The events of one partition, in Z-order; or rows of another `kind` (`exchange.py`)."""

    partition: int
    executor: int
    events: pa.RecordBatch
    kind: int = 0


def route(events: pa.RecordBatch, plan: Plan, *, is_sorted: bool = False) -> Iterator[Parcel]:
    """`events` have been validated. Every event is in exactly one parcel. They may be in Z-order already."""
    if not len(events):
        return
    x, y = xy(events)
    slots = locate_slots(x, y, plan.grid.frame, plan.slot_of_cell)
    order = np.arange(len(events))
    if not is_sorted:
        order = sort_order(codes_of(x, y, frame_of(plan.grid)), CODE_MAX)
    yield from split_into_parcels(events, order, slots[order], plan)


def split_into_parcels(events: pa.RecordBatch, rows: Ints, slots: SlotKeys, plan: Plan) -> Iterator[Parcel]:
    """Send row `rows[i]` to `slots[i]`; a row may go to several. Within a parcel rows keep their order."""
    turns, lanes = plan.turns, _lanes_of(events, rows, slots, plan)
    order = sort_order(lanes, len(turns.slot) - 1)
    gathered = events.take(pa.array(rows[order]))
    sizes = np.bincount(lanes, minlength=len(turns.slot))
    ends = np.cumsum(sizes)
    for lane in np.flatnonzero(sizes):
        part = gathered.slice(ends[lane] - sizes[lane], sizes[lane])
        yield Parcel(plan.partitions[turns.slot[lane]].id, int(turns.owner[lane]), part)


def executors_of(events: pa.RecordBatch, plan: Plan) -> ExecutorIds:
    """The executor of each event, in arrival order, by which the row exchange shuffles."""
    slots = locate_slots(*xy(events), plan.grid.frame, plan.slot_of_cell)
    return plan.turns.owner[_lanes_of(events, np.arange(len(events)), slots, plan)]


def _lanes_of(events: pa.RecordBatch, rows: Ints, slots: SlotKeys, plan: Plan) -> SlotKeys:
    """The lane of each event, which is the way of one parcel: the first turn of a slot and an owner. Within a slot that
    is spread, the turn is chosen by the event's values, not by its place in the batch: a task that Spark runs again may
    read its events in another order, and must send each where it sent it before."""
    if not plan.is_spread:
        return slots
    turns, mixed = plan.turns, np.zeros(len(events), np.uint64)
    for name in ("event_id", "x", "y"):
        column = events.column(name)
        mixed ^= (key_ids(column) if pa.types.is_string(column.type) else column.to_numpy()).view(np.uint64)
        mixed *= np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads every bit to the upper ones
        mixed ^= mixed >> np.uint64(29)
    chosen = (mixed[rows] >> np.uint64(32)) % turns.counts[slots].astype(np.uint64)
    return turns.lane[turns.first_of_slot[slots] + chosen.astype(np.int32)].astype(np.uint32)


@kernel
def locate_slots(x: Floats, y: Floats, frame: Floats, slot_of_cell: Slots) -> SlotKeys:
    columns = int(frame[4])
    slots = np.empty(len(x), np.uint32)
    for i in range(len(x)):
        slots[i] = slot_of_cell[row_of(y[i], frame) * columns + column_of(x[i], frame)]
    return slots
