"""The subscriptions of each partition, as lists without an index.

    spis, sps   every partition that the rectangle round the region meets: a point finds all of them in its own
    rihps       one: that of a cell chosen by the hash of the id
    risps       one: that of the cell of the rectangle's centre

A plan is over cells in all of them, so strategies need not know the pipeline. Lists are made once for each segment and
set of partitions; moving a partition to another executor changes no list. Distributor §4.2.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Array, CellIds, Floats, Ints, SubIds, kernel
from geoswarm.core.arrays.radix import argsort
from geoswarm.core.index.kernels import Records
from geoswarm.core.keys.hashing import scramble
from geoswarm.core.space.overlap import overlap
from geoswarm.core.space.plan import Plan, Slots
from geoswarm.core.text.kernels import Hashes, hash_rows
from geoswarm.flow.match.match import Searchable

BY_SPACE = ("spis", "sps")
"""The pipelines in which every partition that a subscription meets has it."""


class PartitionSubs(NamedTuple):
    """The subscriptions of a segment that one partition has, by id; each id is there once."""

    segment: Searchable
    ordinals: Ints
    """Their ordinals in the segment."""
    ids: SubIds
    rects: Floats
    terms: Hashes
    """The hashes of all words of the segment's conditions; empty: there are none."""

    @classmethod
    def whole(cls, segment: Searchable) -> "PartitionSubs":
        """All of a segment."""
        order = np.argsort(segment.records.ids, kind="stable")
        return cls(segment, order, segment.records.ids[order], segment.records.rects[order], condition_hashes(segment))


class DividedSegment(NamedTuple):
    """One segment, divided: the subscriptions of slot s are rows starts[s]:starts[s + 1]."""

    starts: Ints
    ordinals: Ints
    ids: SubIds
    rects: Floats
    terms: Hashes

    def of(self, slot: int, segment: Searchable) -> PartitionSubs:
        """`segment` is the divided segment in its present state: some subscriptions may have been cancelled since."""
        rows = slice(self.starts[slot], self.starts[slot + 1])
        return PartitionSubs(segment, self.ordinals[rows], self.ids[rows], self.rects[rows], self.terms)


def divide_segment(segment: Searchable, plan: Plan, pipeline: str) -> DividedSegment:
    records = segment.records
    if pipeline in BY_SPACE:
        met = overlap(plan, plan.grid.cover(*np.ascontiguousarray(records.rects.T)))
        ordinals, slots = np.repeat(np.arange(len(records.ids)), np.diff(met.offsets)), met.slots
    else:
        ordinals, slots = np.arange(len(records.ids)), home_slots(records, plan, pipeline)
    by_id = np.argsort(records.ids[ordinals], kind="stable")
    order = argsort(slots.astype(np.uint32), by_id, len(plan.partitions))
    starts = np.concatenate([[0], np.cumsum(np.bincount(slots, minlength=len(plan.partitions)))])
    ordinals = ordinals[order]
    ids, rects = _freeze(records.ids[ordinals]), _freeze(records.rects[ordinals])
    return DividedSegment(starts, _freeze(ordinals), ids, rects, condition_hashes(segment))


def home_slots(records: Records, plan: Plan, pipeline: str) -> Slots:
    """The slot of each subscription, in pipelines where it has only one."""
    if pipeline == "rihps":
        cells = _scatter_ids(records.ids, plan.grid.cells)
    else:
        xmin, ymin, xmax, ymax = records.rects.T
        cells = plan.grid.locate(xmin / 2 + xmax / 2, ymin / 2 + ymax / 2)
    return plan.route(cells)


def slot_of_partition(plan: Plan, partition: int) -> int:
    return int(np.searchsorted(plan.partition_id_of_slot, partition))


def condition_hashes(segment: Searchable) -> Hashes:
    return np.empty(0, np.uint64) if segment.conditions is None else hash_rows(segment.conditions.words)


@kernel
def _scatter_ids(ids: SubIds, cells: int) -> CellIds:
    """A cell for each id; every cell is equally likely, whatever the ids are."""
    chosen = np.empty(len(ids), np.int32)
    for i in range(len(ids)):
        chosen[i] = ((scramble(ids[i]) >> np.uint64(32)) * np.uint64(cells)) >> np.uint64(32)
    return chosen


def _freeze(array: Array) -> Array:
    """Make the array read-only, as those of mapped files are: kernels are then compiled once."""
    array.setflags(write=False)
    return array
