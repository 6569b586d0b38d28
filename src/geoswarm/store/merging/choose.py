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
"""Subscriptions of a segment that has shapes, words or conditions. It is merged in memory, at about a kilobyte each."""
LIKE = 4
"""A segment is merged with smaller ones if it has at most so many times as many subscriptions as all of them."""


def choose_segments(
    entries: Sequence[SegmentEntry], segments: Mapping[str, Segment], now_us: int, tuning: Tuning, subs_max: int
) -> list[SegmentEntry]:
    """The segments to merge into one of at most `subs_max`, if any: the smallest of like size if there are too many,
    else the largest of those that are mostly dead."""
    small = [e for e in entries if e.subs <= size_max(segments[e.name], subs_max) // 2]
    if len(small) > tuning.deltas_max:
        small.sort(key=lambda e: (e.subs - e.dead, e.name))
        chosen = [small[0]]
        for entry in small[1:]:
            alike = entry.subs - entry.dead <= LIKE * sum(e.subs - e.dead for e in chosen) or len(chosen) < 2
            if not alike or not _fit([*chosen, entry], segments, subs_max):
                break
            chosen.append(entry)
        if len(chosen) > 1:
            return chosen
    is_rotten = (e for e in entries if e.dead > tuning.dead_share_max * e.subs or now_us >= e.stale_us)
    rotten = [e for e in is_rotten if e.subs <= subs_max]
    return [max(rotten, key=lambda e: e.subs)] if rotten else []


def size_max(held: Segment, subs_max: int) -> int:
    """Subscriptions that a segment may have; one with more than half as many is merged no more."""
    return subs_max if held.is_plain else min(subs_max, WHOLE_SUBS_MAX)


def _fit(chosen: Sequence[SegmentEntry], segments: Mapping[str, Segment], subs_max: int) -> bool:
    """Whether some segments can become one."""
    names_bytes = sum(segments[e.name][USER].names.nbytes for e in chosen)
    most = min(size_max(segments[e.name], subs_max) for e in chosen)
    return sum(e.subs for e in chosen) <= most and names_bytes <= STRINGS_BYTES_MAX and len(chosen) <= SOURCES_MAX
