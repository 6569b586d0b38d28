"""What searches of an index take and return, and the loop that puts the hits of several searches together.

Points come sorted by Z-order code, so a search only ever moves forward. The searches are those of `cell_kernels.py`,
`regions.py` and `flow/match/word_match.py`; `flow/match/match.py` calls them.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, SubIds, ZCodes, inner, kernel, read_only

NO_EXPIRY: Ints = np.empty(0, np.int64)
NONE_DEAD: Bytes = np.empty(0, np.uint8)


class Points(NamedTuple):
    codes: ZCodes  # ascending
    x: Floats
    y: Floats

    @classmethod
    def of(cls, codes: ZCodes, x: Floats, y: Floats) -> "Points":
        return cls(read_only(codes), read_only(x), read_only(y))

    def between(self, start: int, end: int) -> "Points":
        return Points(self.codes[start:end], self.x[start:end], self.y[start:end])


class Records(NamedTuple):
    """The subscriptions of a segment, by ordinal."""

    rects: Floats  # (n, 4): xmin, ymin, xmax, ymax
    ids: SubIds
    expires_us: Ints  # empty: none of them expires
    dead: Bytes  # bitmap of cancelled subscriptions; empty: none is cancelled

    @classmethod
    def of(cls, rects: Floats, ids: SubIds, expires_us: Ints = NO_EXPIRY, dead: Bytes = NONE_DEAD) -> "Records":
        return cls(read_only(rects), read_only(ids), read_only(expires_us), read_only(dead))


class Hits(NamedTuple):
    """The subscriptions of point i are subs[ends[i - 1]:ends[i]]."""

    ends: Ints
    subs: SubIds

    def longer(self, room: int) -> "Hits":
        grown = np.empty(room, np.int64)
        grown[: len(self.subs)] = self.subs
        return Hits(self.ends, grown)


class SearchProgress(NamedTuple):
    """How far a search has come."""

    points: int
    hits: int
    wanted: int  # room for hits that the next point may need; 0: the search is complete


@inner
def is_live(ordinal: int, records: Records, now_us: int) -> bool:
    if len(records.dead) > 0 and (records.dead[ordinal >> 3] >> (ordinal & 7)) & 1:
        return False
    return len(records.expires_us) == 0 or records.expires_us[ordinal] > now_us


@kernel
def are_live(ordinals: Ints, records: Records, now_us: int) -> Bools:
    live = np.ones(len(ordinals), np.bool_)
    if len(records.dead) == 0 and len(records.expires_us) == 0:
        return live
    for i in range(len(ordinals)):
        live[i] = is_live(ordinals[i], records, now_us)
    return live


@kernel
def interleave(begins: Ints, ends: Ints, subs: SubIds, pairs: Ints) -> SubIds:
    """The hits of several searches of the same points, point by point. Those of search c are subs[begins[c]:], up to
    ends[c, i] for point i; `pairs` counts all hits up to each point."""
    merged, n = np.empty(pairs[-1], np.int64), np.uint64(0)
    at = begins[:-1].copy()
    for i in range(len(pairs)):
        for c in range(len(at)):
            # Unsigned, because numba checks whether a signed index is negative.
            for h in range(np.uint64(at[c]), np.uint64(ends[c, i])):
                merged[n] = subs[h]
                n += np.uint64(1)
            at[c] = ends[c, i]
    return merged
