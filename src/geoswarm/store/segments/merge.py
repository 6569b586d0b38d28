"""Merge segments into one, without cancelled and expired subscriptions.

Segments of rectangles are merged in pieces, from mapped files into a file that is written as it is made. What is in
memory is 9 bytes for each subscription, 8 more if some expire, 8 for each cell of one level of the index, and a piece.
If some ask for words, their expressions are merged in memory, and then the index is built from the new records. If
regions are shapes, or subscriptions have conditions, everything is merged in memory. Such segments stay smaller
(`store/merging/choose.py`).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Bools, Bytes, Ordinals, SubIds, ZCodes
from geoswarm.core.arrays.merged_rows import GONE, PIECE_ROWS, MergedRows
from geoswarm.core.index.cells import codes_of, frame_of
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import AGGREGATE, ATTRIBUTES, EXPIRY, MAX_EVENTS, ON
from geoswarm.core.subscriptions.subs import concatenate_subs
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.model import NEVER_US
from geoswarm.store.segments.build_index import derive_index, merge_indexes
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, Segment, SegmentEntry
from geoswarm.store.segments.write import stale_at, write_segment
from geoswarm.store.storage import Storage


def merge_segments(
    storage: Storage,
    grid: Grid,
    name: str,
    sources: Sequence[tuple[Segment, Bytes]],
    now_us: int,
    dead_share_max: float,
    counts: TermCounts | None = None,
) -> SegmentEntry | None:
    """`sources` are segments with the bitmaps of their cancelled subscriptions. None: no subscription is left."""
    live = [(held, held.live(dead, now_us)) for held, dead in sources]
    live = [(held, kept) for held, kept in live if kept.any()]
    if not live:
        return None
    if not all(held.merges_in_pieces for held, _ in live):
        subs = concatenate_subs([held.subs(np.flatnonzero(kept)) for held, kept in live])
        return write_segment(storage, grid, name, subs, dead_share_max, counts)
    segments = [held for held, _ in live]
    codes = [_codes(grid, held, kept) for held, kept in live]
    rows = MergedRows([held.ids for held in segments], [kept for _, kept in live], codes)
    del codes, live
    size = storage.write_pieces(f"{SEGMENTS_FOLDER}/{name}.records", _records(segments, rows, counts))
    size += storage.write_pieces(f"{SEGMENTS_FOLDER}/{name}.index", _index(storage, grid, name, segments, rows))
    following = _count_kept(rows, [held[ON].ordinals for held in segments])
    counting = _count_kept(rows, [held[AGGREGATE].ordinals for held in segments])
    limited = _count_kept(rows, [held[MAX_EVENTS].ordinals for held in segments])
    stale_us = _stale_us(segments, rows, dead_share_max)
    return SegmentEntry(name, len(rows), 0, size, stale_us, following, counting, limited=limited)


def _count_kept(rows: MergedRows, ordinals: Sequence[Ordinals]) -> int:
    """How many of some subscriptions of each segment are kept."""
    return sum(int(np.count_nonzero(places[of] != GONE)) for places, of in zip(rows.places, ordinals, strict=True))


def _codes(grid: Grid, held: Segment, kept: Bools) -> ZCodes:
    """The Z-order codes of the top left corners of some subscriptions."""
    frame, parts = frame_of(grid), [np.empty(0, np.uint32)]
    for begin in range(0, len(kept), PIECE_ROWS):
        rects = held.rects[begin : begin + PIECE_ROWS][kept[begin : begin + PIECE_ROWS]]
        parts.append(codes_of(np.ascontiguousarray(rects[:, 0]), np.ascontiguousarray(rects[:, 3]), frame))
    return np.concatenate(parts)


def _index(storage: Storage, grid: Grid, name: str, segments: Sequence[Segment], rows: MergedRows) -> ArrayPieces:
    if all(held.is_plain for held in segments):
        return merge_indexes([held.index for held in segments if held.index is not None], rows.places)
    arrays = derive_index(grid, storage.map_arrays(f"{SEGMENTS_FOLDER}/{name}.records"))
    return ((field, [array]) for field, array in arrays.items())


def _records(segments: Sequence[Segment], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
    """The same arrays that `write_segment` writes."""
    yield "ids", rows.gather(rows.ids)
    ordinals = list[Ordinals]()
    yield "ids_sorted", _sorted_ids(rows, segments, ordinals)
    yield "order_by_id", ordinals
    for attribute in ATTRIBUTES:
        yield from attribute.merge([held.stored[attribute.name] for held in segments], rows, counts)


def _sorted_ids(rows: MergedRows, segments: Sequence[Segment], ordinals: list[Ordinals]) -> Iterator[SubIds]:
    """The ids in ascending order; their rows are put into `ordinals`."""
    for ids, places in rows.by_id([held.ids_sorted for held in segments], [held.order_by_id for held in segments]):
        ordinals.append(places)
        yield ids


def _stale_us(segments: Sequence[Segment], rows: MergedRows, dead_share_max: float) -> int:
    if not any(len(held.expires_us) for held in segments):
        return NEVER_US
    kept = [EXPIRY.read(held.expires_us, rows.kept(number)) for number, held in enumerate(segments)]
    return stale_at(np.concatenate(kept), dead_share_max)
