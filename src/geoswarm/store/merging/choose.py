"""Which segments are worth rewriting as one.

The merge is size-tiered: only segments of like size are merged, so a subscription is rewritten a logarithmic number of
times, and segments grow geometrically up to `segment_subs_max`. No batch waits for a merge, so segments are large, and
100 million subscriptions are a handful of them.
"""

from collections.abc import Mapping, Sequence

from geoswarm.config import Tuning
from geoswarm.core.arrays.buffers import STRINGS_BYTES_MAX
from geoswarm.core.arrays.merged_rows import SOURCES_MAX
from geoswarm.core.subscriptions.attributes import USER
from geoswarm.store.segments.segment import Segment, SegmentEntry

WHOLE_SUBS_MAX = 2_000_000
"""Subscriptions of a segment that has shapes or conditions. It is merged in memory, at about a kilobyte each."""
WORDED_SUBS_MAX = 6_000_000
"""Subscriptions of a segment that has words and neither. Its index is built in memory, at about 300 bytes each."""
WORDED_DELTA_SUBS = 100_000
"""Segments with words and more subscriptions are merged when a load ends, however few there are. Words are looked up in
each segment, their lists are shorter there, and matches have to be put together: with five segments of a million in the
place of one of 5 million, an event cost twice as much (docs/decisions/26). A stream leaves them: it would rewrite
millions again and again."""
LIKE = 4
"""A segment is merged with smaller ones if it has at most so many times as many subscriptions as all of them."""


def choose_segments(
    entries: Sequence[SegmentEntry],
    segments: Mapping[str, Segment],
    now_us: int,
    tuning: Tuning,
    subs_max: int,
    *,
    settles: bool = False,
) -> list[SegmentEntry]:
    """The segments to merge into one of at most `subs_max`, if any: the smallest of like size if there are too many,
    else the largest of those that are mostly dead. Where a load `settles`, also large ones with words."""
    small = [e for e in entries if e.subs <= size_max(segments[e.name], subs_max) // 2]
    if len(small) > tuning.deltas_max:
        chosen = _smallest(small, segments, subs_max)
        if len(chosen) > 1:
            return chosen
    if settles:
        worded = [e for e in entries if e.subs > WORDED_DELTA_SUBS and segments[e.name].text is not None]
        chosen = _smallest(worded, segments, subs_max)
        if len(chosen) > 1 and _are_alike(chosen[-1], chosen[:-1]):
            return chosen
    is_rotten = (e for e in entries if e.dead > tuning.dead_share_max * e.subs or now_us >= e.stale_us)
    rotten = [e for e in is_rotten if e.subs <= subs_max]
    return [max(rotten, key=lambda e: e.subs)] if rotten else []


def size_max(held: Segment, subs_max: int) -> int:
    """Subscriptions that a segment may have; one with more than half as many is merged no more."""
    if held.is_plain:
        return subs_max
    return min(subs_max, WORDED_SUBS_MAX if held.merges_in_pieces else WHOLE_SUBS_MAX)


def _smallest(entries: Sequence[SegmentEntry], segments: Mapping[str, Segment], subs_max: int) -> list[SegmentEntry]:
    """The smallest of some segments, as many as are of like size and can become one; the first two need not be."""
    ordered = sorted(entries, key=lambda e: (e.subs - e.dead, e.name))
    chosen = ordered[:1]
    for entry in ordered[1:]:
        if (len(chosen) > 1 and not _are_alike(entry, chosen)) or not _fit([*chosen, entry], segments, subs_max):
            break
        chosen.append(entry)
    return chosen


def _are_alike(entry: SegmentEntry, smaller: Sequence[SegmentEntry]) -> bool:
    return entry.subs - entry.dead <= LIKE * sum(e.subs - e.dead for e in smaller)


def _fit(chosen: Sequence[SegmentEntry], segments: Mapping[str, Segment], subs_max: int) -> bool:
    """Whether some segments can become one."""
    names_bytes = sum(segments[e.name][USER].names.nbytes for e in chosen)
    most = min(size_max(segments[e.name], subs_max) for e in chosen)
    return sum(e.subs for e in chosen) <= most and names_bytes <= STRINGS_BYTES_MAX and len(chosen) <= SOURCES_MAX
