"""The loops that find the cells of points in `cells.py`, and test the entries there. Arrays only.

    point ──► group of 16 blocks ──► block ──► cell ──► entries ──box──► hits, now and then a doubt ──record──► a hit

What is looked up is scattered over memory, and waiting for memory is most of the work. So some dozens of points take
each step together, in loops whose look-ups do not depend on each other, and ask for what the next step needs. Where the
processor cannot predict an outcome, no branch depends on it.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Ints, Ordinals, Packed, inner, kernel
from geoswarm.core.arrays.prefetch import prefetch
from geoswarm.core.index.cell_boxes import GUARDS, ONES, point_of, steps_x, steps_y
from geoswarm.core.index.cells import BLOCK_LOG2, GROUP, GROUP_LOG2, CellIndex
from geoswarm.core.index.kernels import Hits, Points, Records, SearchProgress, is_live
from geoswarm.core.index.word_tables import as_signed, as_unsigned, is_taken, rank

TURN = 64
"""Points that go from step to step together."""
TURN_ENTRIES = 4096
"""Entries that are tested together, if one point has no more: what is found among them stays in the nearest cache."""
NOWHERE = -1
"""The place of a cell whose block is not in the index."""
ONE = np.uint64(1)


class Lookups(NamedTuple):
    """Where a turn of points looks: a list of entries for each cell that has any, point by point."""

    at: Ints  # by level: the group of the last point
    places: Ints  # by point and level: the cell, as a place in the bits
    lists: Ints  # up to each point
    owners: Ints  # by list: the point
    levels: Ints
    begins: Ints
    ends: Ints
    boxes: Packed  # the point as seen from the cell
    passed: Ints  # entries that passed the test, up to each list


class Found(NamedTuple):
    """Entries that passed the test. Those that turn out to be no hits lose their guard bits."""

    sums: Packed  # of entry and point, as in `cell_boxes.py`
    doubts: Ints  # the positions of those that their records decide
    dropped: Ints  # by point: how many were no hits; zero between turns


@kernel
def lookups_for(index: CellIndex) -> Lookups:
    room = TURN * len(index.levels) + 1
    return Lookups(
        index.level_starts[:-1].copy(),
        np.empty(room, np.int64),
        np.zeros(TURN + 1, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.uint64),
        np.empty(room + 1, np.int64),
    )


@kernel
def found_for(entries: int) -> Found:
    return Found(np.empty(entries, np.uint64), np.empty(entries, np.int64), np.zeros(TURN, np.int64))


@inner
def last_not_above(tops: Ordinals, at: int, end: int, wanted: int) -> int:
    """The last position from `at` on, and before `end`, whose block is not above `wanted`; `at` if there is none."""
    step = 1
    while at + step < end and tops[at + step] <= wanted:
        at += step
        step *= 2
    high = min(at + step, end)
    while at + 1 < high:
        middle = (at + high) // 2
        if tops[middle] <= wanted:
            at = middle
        else:
            high = middle
    return at


@inner
def place_in_group(blocks: Ordinals, group: int, code: int) -> int:
    """The place of a cell in the bits, if its block is in this group, or NOWHERE."""
    first, block, count = as_unsigned(group << GROUP_LOG2), np.uint32(code >> BLOCK_LOG2), np.int64(0)
    for j in range(np.uint64(GROUP)):
        count += blocks[first + j] <= block
    at = as_signed(first) + as_signed(max(count, 1)) - 1
    return (at << BLOCK_LOG2 | code & 63) if blocks[as_unsigned(at)] == block else NOWHERE


@inner
def find_places(turn: Points, index: CellIndex, lookups: Lookups) -> None:
    """The cell of each point at each level."""
    levels, tops, codes = len(index.levels), index.tops, turn.codes
    for k in range(levels):
        shift, end = 2 * index.levels[k], index.level_starts[k + 1]
        low = last_not_above(tops, lookups.at[k], end, as_signed(codes[0]) >> (shift + BLOCK_LOG2))
        high = last_not_above(tops, low, end, as_signed(codes[-1]) >> (shift + BLOCK_LOG2))
        lookups.at[k] = high
        for i in range(len(codes)):
            code, group, groups = as_signed(codes[i]) >> shift, low, high - low + 1
            while groups > 1:
                half = groups >> 1
                group += half * (tops[as_unsigned(group + half)] <= code >> BLOCK_LOG2)
                groups -= half
            lookups.places[as_unsigned(i * levels + k)] = place_in_group(index.blocks, group, code)


@inner
def find_lists(turn: Points, index: CellIndex, lookups: Lookups) -> None:
    """The lists of the cells that have entries, and what the points look like from there."""
    levels, found = len(index.levels), as_unsigned(0)
    for i in range(len(turn.codes)):
        for k in range(levels):
            place = lookups.places[as_unsigned(i * levels + k)]
            known, place = place != NOWHERE, max(place, 0)
            lookups.owners[found], lookups.levels[found] = i, index.levels[k]
            lookups.begins[found] = rank(index.bits, place)
            prefetch(index.starts, lookups.begins[found])
            found += as_unsigned(known & is_taken(index.bits, place))
        lookups.lists[i + 1] = found
    for f in range(found):
        cell, p = as_unsigned(lookups.begins[f]), as_unsigned(lookups.owners[f])
        lookups.begins[f], lookups.ends[f] = index.starts[cell], index.starts[cell + ONE]
        prefetch(index.entries, lookups.begins[f])
        prefetch(index.entries, lookups.ends[f] - 1)
        x, y = steps_x(turn.x[p], index.frame), steps_y(turn.y[p], index.frame)
        lookups.boxes[f] = point_of(x, y, lookups.levels[f])


@inner
def portion_of(first: int, count: int, lookups: Lookups) -> tuple[int, int]:
    """The end of the points, from `first` on, that have TURN_ENTRIES entries together, and one at least; and how many
    entries they have."""
    end, entries = first, as_signed(0)
    while end < count:
        more = entries
        for f in range(lookups.lists[end], lookups.lists[end + 1]):
            more += lookups.ends[f] - lookups.begins[f]
        if more > TURN_ENTRIES and end > first:
            break
        end, entries = end + 1, more
    return end, entries


@inner
def test_entries(first: int, end: int, entries: Packed, lookups: Lookups, found: Found) -> int:
    """The number of entries that pass the test of the points from `first` to `end`. An entry is written before it is
    tested, and the next one overwrites it if it has not passed."""
    passed, guards = as_unsigned(0), np.uint64(GUARDS)
    lookups.passed[lookups.lists[first]] = 0
    for f in range(lookups.lists[first], lookups.lists[end]):
        point = lookups.boxes[f]
        for e in range(as_unsigned(lookups.begins[f]), as_unsigned(lookups.ends[f])):
            total = entries[e] + point
            found.sums[passed] = total
            passed += as_unsigned(total & guards == guards)
        lookups.passed[f + 1] = passed
    return as_signed(passed)


@inner
def drop_misses(
    first: int, passed: int, turn: Points, lookups: Lookups, found: Found, records: Records, now_us: int
) -> None:
    """Look at the records of those that passed, from list `first` on, where the box leaves a doubt, and of all where
    some are cancelled or expire."""
    rects, guards, doubts, f = records.rects, np.uint64(GUARDS), as_unsigned(0), first
    all_live = len(records.dead) == 0 and len(records.expires_us) == 0
    for h in range(as_unsigned(passed)):
        found.doubts[doubts] = h
        sure = (found.sums[h] - np.uint64(ONES)) & guards == guards
        doubts += as_unsigned((not sure) | (not all_live))
    for d in range(doubts):
        h = found.doubts[d]
        while lookups.passed[f + 1] <= h:
            f += 1
        total, p = found.sums[h], as_unsigned(lookups.owners[f])
        s, x, y = total >> np.uint64(32), turn.x[p], turn.y[p]
        hit = (rects[s, 0] <= x) & (x <= rects[s, 2]) & (rects[s, 1] <= y) & (y <= rects[s, 3])
        if not hit or not (all_live or is_live(as_signed(s), records, now_us)):
            found.sums[h] = total & ~guards
            found.dropped[p] += 1


@inner
def keep_hits(passed: int, found: Found, records: Records, hits: Hits, n: int) -> int:
    """Write those that passed and were not dropped, from hit `n` on; returns how many hits there are then."""
    at, guards = as_unsigned(n), np.uint64(GUARDS)
    for h in range(as_unsigned(passed)):
        total = found.sums[h]
        hits.subs[at] = records.ids[total >> np.uint64(32)]
        at += as_unsigned(total & guards != np.uint64(0))
    return as_signed(at)


@inner
def mark_ends(first: int, end: int, lookups: Lookups, found: Found, hits: Hits, n: int) -> None:
    """Where the hits of the points from `first` to `end` end, if those of the first begin at `n`."""
    for i in range(first, end):
        n -= found.dropped[i]
        hits.ends[i] = n + lookups.passed[lookups.lists[i + 1]]
        found.dropped[i] = 0


@kernel
def match_cells(
    points: Points, index: CellIndex, records: Records, now_us: int, hits: Hits, done: SearchProgress
) -> SearchProgress:
    """Test every entry of each point's cells. The search continues from `done` and stops at a point whose hits might
    not fit into the room that is left; `wanted` is then the room that it needs."""
    lookups, found = lookups_for(index), found_for(TURN_ENTRIES)
    n, begin, wanted = done.hits, done.points, as_signed(0)
    while begin < len(points.codes) and wanted == 0:
        to = min(begin + TURN, len(points.codes))
        turn = Points(points.codes[begin:to], points.x[begin:to], points.y[begin:to])
        turn_hits = Hits(hits.ends[begin:to], hits.subs)
        find_places(turn, index, lookups)
        find_lists(turn, index, lookups)
        i = int(np.int64(0))
        while i < to - begin:
            end, entries = portion_of(i, to - begin, lookups)
            if entries > len(found.sums):
                found = found_for(2 * entries)
            passed = test_entries(i, end, index.entries, lookups, found)
            if n + passed > len(hits.subs):
                wanted = n + passed
                break
            drop_misses(lookups.lists[i], passed, turn, lookups, found, records, now_us)
            mark_ends(i, end, lookups, found, turn_hits, n)
            n = keep_hits(passed, found, records, hits, n)
            i = end
        begin += i
    return SearchProgress(begin, n, wanted)
