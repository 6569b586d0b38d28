"""The loops that match points against one level of one segment. Arrays only; `match.py` checks and packs.

Points come sorted by Z-order code, so the position in a level's keys only ever moves forward: a gallop finds the
next key in a step or two, and the entries it leads to are still in the cache from the point before.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.flow.match.index import Level
from geoswarm.jit import Bytes, Floats, Ints, Ordinals, SubIds, ZCodes, kernel


class Points(NamedTuple):
    codes: ZCodes  # ascending
    x: Floats
    y: Floats

    def between(self, start: int, end: int) -> "Points":
        return Points(self.codes[start:end], self.x[start:end], self.y[start:end])


class Records(NamedTuple):
    """What a segment knows of its subscriptions, by ordinal."""

    rects: Floats  # (n, 4): xmin, ymin, xmax, ymax
    ids: SubIds
    expires_us: Ints  # empty: none of them expires
    dead: Bytes  # bitmap of the cancelled; empty: none is


class Hits(NamedTuple):
    points: Ordinals
    subs: SubIds


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
def match_level(points: Points, shift: int, level: Level, records: Records, now_us: int, hits: Hits) -> int:
    """Test every entry of each point's cell at one level, `shift` being the bits by which its codes are shorter.
    Returns the number of hits, of which the first `len(hits.points)` are written: a caller whose room was too small
    knows how much it needs."""
    at, n, room = 0, 0, len(hits.points)
    rects = records.rects
    for i in range(len(points.codes)):
        key = points.codes[i] >> shift
        at = gallop(level.keys, at, key)
        if at == len(level.keys):
            break
        if level.keys[at] != key:
            continue
        x, y = points.x[i], points.y[i]
        for e in range(level.starts[at], level.starts[at + 1]):
            s = level.entries[e]
            inside = (rects[s, 0] <= x) & (x <= rects[s, 2]) & (rects[s, 1] <= y) & (y <= rects[s, 3])
            if inside and is_live(s, records, now_us):
                if n < room:
                    hits.points[n] = i
                    hits.subs[n] = records.ids[s]
                n += 1
    return n


@kernel
def group_by_point(hits: Hits, points: int) -> tuple[Ints, SubIds]:
    """(offsets, subs): the subscriptions of point i are subs[offsets[i]:offsets[i + 1]]."""
    offsets = np.zeros(points + 1, np.int64)
    for h in range(len(hits.points)):
        offsets[hits.points[h] + 1] += 1
    for i in range(points):
        offsets[i + 1] += offsets[i]
    at = offsets[:-1].copy()
    subs = np.empty(len(hits.subs), np.int64)
    for h in range(len(hits.points)):
        i = hits.points[h]
        subs[at[i]] = hits.subs[h]
        at[i] += 1
    return offsets, subs
