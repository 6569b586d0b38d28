"""The loops that match points against one level of one segment. Arrays only; `flow/match/match.py` checks and packs.

Points come sorted by Z-order code, so the position in a level's keys only ever moves forward: a gallop finds the
next key in a step or two.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, SubIds, ZCodes, kernel, read_only
from geoswarm.core.index.cells import Level

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


@kernel
def gallop(keys: ZCodes, at: int, wanted: int) -> int:
    """The first position from `at` on whose key is not below `wanted`."""
    step = 1
    while at + step < len(keys) and keys[at + step] < wanted:
        step *= 2
    low, high = at + step // 2, min(at + step, len(keys))
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
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
def match_level(
    points: Points, shift: int, level: Level, records: Records, now_us: int, hits: Hits, done: SearchProgress
) -> SearchProgress:
    """Test every entry of each point's cell at one level, `shift` being the bits by which its codes are shorter.

    A candidate is written before it is tested, and the next one overwrites it if it is no hit: no branch depends on the
    outcome, which no processor can predict. The search continues from `done` and stops at a point whose cell might not
    fit into the room that is left; `wanted` is then the room that it needs."""
    keys, starts, entries, rects = level.keys, level.starts, level.entries, records.rects
    all_live = len(records.dead) == 0 and len(records.expires_us) == 0
    at, n, i, wanted = int(np.int64(0)), done.hits, done.points, np.int64(0)
    while i < len(points.codes) and at < len(keys):
        key = points.codes[i] >> shift
        if keys[at] < key:
            at = gallop(keys, at, key)
        if at < len(keys) and keys[at] == key:
            begin, end = np.int64(starts[at]), np.int64(starts[at + 1])
            if n + end - begin > len(hits.subs):
                wanted = n + end - begin
                break
            x, y, before = points.x[i], points.y[i], n
            for e in range(begin, end):
                s = entries[e]
                hits.subs[n] = s
                n += (rects[s, 0] <= x) & (x <= rects[s, 2]) & (rects[s, 1] <= y) & (y <= rects[s, 3])
            if not all_live:
                tested, n = n, before
                for h in range(before, tested):
                    hits.subs[n] = hits.subs[h]
                    n += is_live(hits.subs[h], records, now_us)
        hits.ends[i] = n
        i += 1
    if wanted == 0:
        hits.ends[i:] = n
        i = len(points.codes)
    for h in range(done.hits, n):
        hits.subs[h] = records.ids[hits.subs[h]]
    return SearchProgress(i, n, int(wanted))


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
