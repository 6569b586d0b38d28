"""Which segments are worth rewriting as one.

The merge is size-tiered: only segments of like size are merged, so a subscription is rewritten a logarithmic number
of times, and a segment never outgrows `segment_subs_max`, which bounds the pause.
"""

from collections.abc import Sequence

from geoswarm.config import Tuning
from geoswarm.store.segments.segment import SegmentEntry


def segments_to_merge(entries: Sequence[SegmentEntry], now_us: int, tuning: Tuning) -> list[str]:
    """The names of the segments to merge, if any. One group at a time, because the stream waits for it: the smallest of
    like size if there are too many, else the largest of those that are mostly dead."""
    small = sorted(entries, key=lambda e: (e.subs - e.dead, e.name))
    full = [e for e in small if e.subs > tuning.segment_subs_max // 2]
    if len(small) - len(full) > tuning.deltas_max:
        chosen, total = [small[0]], small[0].subs
        for entry in small[1:]:
            like = entry.subs <= 4 * total or len(chosen) < 2
            if not like or total + entry.subs > tuning.segment_subs_max:
                break
            chosen.append(entry)
            total += entry.subs
        if len(chosen) > 1:
            return [e.name for e in chosen]
    rotten = [e for e in entries if e.dead > tuning.dead_share_max * e.subs or now_us >= e.stale_us]
    return [max(rotten, key=lambda e: e.subs).name] if rotten else []
