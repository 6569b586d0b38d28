"""Write a segment: subscriptions in Z-order, the arrays of their attributes, and the index that follows from them.

The new subscriptions of a batch are small and in memory; segments that are merged are not (`merge.py`).
"""

import numpy as np

from geoswarm.core.arrays.jit import Ints
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.cells import CODE_MAX, codes_of, frame_of
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.aggregate import NO_SPEC
from geoswarm.core.subscriptions.attribute_kind import Arrays, Placement
from geoswarm.core.subscriptions.attributes import AGGREGATE, ATTRIBUTES, EXPIRY, MAX_EVENTS, ON, REGION, WHERE
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.core.subscriptions.where import count_conditions
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.model import INSIDE
from geoswarm.store.segments.build_index import derive_index
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, SegmentEntry
from geoswarm.store.storage import Storage


def write_segment(
    storage: Storage,
    grid: Grid,
    name: str,
    subs: Subs,
    dead_share_max: float,
    counts: TermCounts | None = None,
    *,
    durable: bool = True,
) -> SegmentEntry:
    """`subs` has at least one row, each id once, every rectangle within the grid's bounds. `counts` show which of its
    terms are rare in the stream. If it is not `durable`, the caller makes the records so: an index can be built again
    from them."""
    stale_us = stale_at(subs[EXPIRY], dead_share_max)
    records = records_of(grid, subs, counts)
    size = storage.write_arrays(f"{SEGMENTS_FOLDER}/{name}.records", records, durable=durable)
    size += storage.write_arrays(f"{SEGMENTS_FOLDER}/{name}.index", derive_index(grid, records), durable=durable)
    asking = int(np.count_nonzero(subs[ON] != INSIDE)), int(np.count_nonzero(subs[AGGREGATE].codes != NO_SPEC))
    limited = int(np.count_nonzero(subs[MAX_EVENTS]))
    return SegmentEntry(name, len(subs), 0, size, stale_us, *asking, count_conditions(subs[WHERE]), limited)


def records_of(grid: Grid, subs: Subs, counts: TermCounts | None = None) -> Arrays:
    """The arrays of subscriptions, in Z-order."""
    rects = subs[REGION].rects
    corners = codes_of(np.ascontiguousarray(rects[:, 0]), np.ascontiguousarray(rects[:, 3]), frame_of(grid))
    subs = subs.take(sort_order(corners, CODE_MAX))
    by_id = np.argsort(subs.ids)
    placement = Placement(subs.ids, by_id, counts)
    records: Arrays = {"ids": subs.ids, "ids_sorted": subs.ids[by_id], "order_by_id": by_id.astype(np.uint32)}
    for attribute in ATTRIBUTES:
        records |= attribute.write(subs.values[attribute.name], placement)
    return records


def stale_at(expires_us: Ints, dead_share_max: float) -> int:
    """When so large a share of some subscriptions will have expired that their segment is worth rewriting."""
    tolerated = min(int(dead_share_max * len(expires_us)), len(expires_us) - 1)
    return int(np.partition(expires_us, tolerated)[tolerated])
