"""Regions that are polygons and circles: the cells by which they are found, and the exact test after that.

A region is entered in cells of the quadtree of `cells.py` (`core/shapes/cover.py`): *core* cells lie inside it, and a
point there is a hit; in *boundary* cells the point itself is tested (`core/shapes/points.py`). A subscription that also
asks for words is found by its words, with the rectangle round the region (`words.py`), and tested here afterwards.
Events that are areas find regions by their rectangles (`flow/match/areas.py`). Distributor §4.2.

Each level of the quadtree is three arrays:

    keys      sorted codes of cells that have entries                              [ 3 | 9 | 12 ]
    starts    where a key's entries begin                                          [ 0 | 2 | 3 | 7 ]
    entries   number of the region among the segment's, and whether the cell is core   [ a b | a | c d e f ]
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, Ordinals, SubIds, ZCodes, inner, kernel, read_only
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.cells import CODE_MAX, frame_of
from geoswarm.core.index.kernels import Hits, Points, Records, SearchProgress, are_live, is_live
from geoswarm.core.index.word_tables import as_signed
from geoswarm.core.shapes.cover import cover
from geoswarm.core.shapes.points import Predicate, points_in
from geoswarm.core.shapes.shapes import Shapes
from geoswarm.core.space.grid import Grid
from geoswarm.model import PREDICATES

CONTAINS, WITHIN = PREDICATES.index("contains"), PREDICATES.index("within")
CORE = 1 << 31
"""The bit of an entry whose cell is core; a segment has fewer regions than that."""


class Level(NamedTuple):
    keys: ZCodes
    starts: Ordinals
    entries: Ordinals


RegionCells = dict[int, Level]
"""The levels that have entries, by their number."""


class Regions(NamedTuple):
    """The subscriptions of a segment that have a shape."""

    shapes: Shapes
    ordinals: Ordinals
    """The subscription of each shape; ascending."""
    cells: RegionCells
    """The index of those that are not found by words or by lists."""
    worded: npt.NDArray[np.int64]
    """The numbers of those that are found by words or by lists, in order of the subscription's id."""
    predicates: Bytes = np.empty(0, np.uint8)
    """The predicate of each, as its code in `model.PREDICATES`; empty: all of them intersect."""


def build_regions(grid: Grid, shapes: Shapes, chosen: Bools) -> RegionCells:
    """The index of the chosen shapes; the others cannot be met by a point."""
    numbers = np.flatnonzero(chosen)
    covered = cover(shapes.take(numbers), frame_of(grid))
    entries = np.repeat(numbers, np.diff(covered.starts)).astype(np.uint32)
    entries[covered.core] |= np.uint32(CORE)
    index: RegionCells = {}
    for level in np.unique(covered.levels).tolist():
        here = covered.levels == level
        index[level] = _build_level(covered.codes[here], entries[here], CODE_MAX >> (2 * level))
    return index


def _build_level(keys: ZCodes, entries: Ordinals, key_max: int) -> Level:
    order = sort_order(keys, key_max)
    ascending = keys[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = ascending[1:] != ascending[:-1]
    starts = np.append(np.flatnonzero(first), len(keys)).astype(np.uint32)
    return Level(read_only(ascending[first]), read_only(starts), read_only(entries[order]))


def match_regions(
    points: Points,
    shift: int,
    level: Level,
    regions: Regions,
    records: Records,
    now_us: int,
    hits: Hits,
    done: SearchProgress,
) -> SearchProgress:
    """Like `match_cells` in `cell_kernels.py`, for one level of the cells of regions."""
    found = _gather(points, shift, level, hits, done)
    if done.hits == found.hits:  # as for most levels of a small parcel
        return found
    ordinals, predicates = read_only(regions.ordinals), read_only(regions.predicates)
    near = _sift(points, ordinals, predicates, records, now_us, hits, done, found)
    near.kept[near.tested] = _are_in(regions, points.x, points.y, near.points, near.numbers)
    return SearchProgress(found.points, _keep(near.kept, ordinals, records.ids, hits, done, found), found.wanted)


def _are_in(regions: Regions, x: Floats, y: Floats, points: Ints, numbers: Ints) -> Bools:
    """Whether the region's predicate holds, for each pair (point points[i], region numbers[i])."""
    if not len(regions.predicates):
        return points_in(regions.shapes, x, y, points, numbers)
    codes = regions.predicates[numbers]
    answers: Bools = codes != WITHIN  # no region lies in a point
    for strict in (False, True):
        asked = np.flatnonzero(answers & ((codes == CONTAINS) == strict))
        predicate: Predicate = "contains" if strict else "intersects"
        answers[asked] = points_in(regions.shapes, x, y, points[asked], numbers[asked], predicate)
    return answers


class Near(NamedTuple):
    """Points in cells of regions."""

    kept: Bools
    """Of each, whether the cell decides that it is a hit."""
    tested: Ints
    """Which of them the region itself decides, with their points and numbers of regions."""
    points: Ints
    numbers: Ints


@kernel
def _sift(
    points: Points,
    ordinals: Ordinals,
    predicates: Bytes,
    records: Records,
    now_us: int,
    hits: Hits,
    done: SearchProgress,
    found: SearchProgress,
) -> Near:
    """What of the entries gathered since `done` is a hit, and what may be one."""
    room, rects = found.hits - done.hits, records.rects
    kept, tested = np.empty(room, np.bool_), np.empty(room, np.int64)
    owners, numbers = np.empty(room, np.int64), np.empty(room, np.int64)
    n, begin = 0, done.hits
    for i in range(done.points, found.points):
        x, y = points.x[i], points.y[i]
        for h in range(begin, hits.ends[i]):
            number, is_core = hits.subs[h] & (CORE - 1), hits.subs[h] >= CORE
            s = as_signed(ordinals[number])
            may = is_live(s, records, now_us) and (len(predicates) == 0 or predicates[number] != WITHIN)
            in_box = (rects[s, 0] <= x) & (x <= rects[s, 2]) & (rects[s, 1] <= y) & (y <= rects[s, 3])
            kept[h - done.hits] = may & is_core
            tested[n], owners[n], numbers[n] = h - done.hits, i, number
            n += may & in_box & (not is_core)
        begin = hits.ends[i]
    return Near(kept, tested[:n], owners[:n], numbers[:n])


@kernel
def _keep(kept: Bools, ordinals: Ordinals, ids: SubIds, hits: Hits, done: SearchProgress, found: SearchProgress) -> int:
    """Leave the ids of hits only, in place of entries; returns where they end."""
    n, begin = done.hits, done.hits
    for i in range(done.points, found.points):
        end = hits.ends[i]
        for h in range(begin, end):
            hits.subs[n] = ids[ordinals[hits.subs[h] & (CORE - 1)]]
            n += kept[h - done.hits]
        hits.ends[i], begin = n, end
    return n


@inner
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
def _gather(points: Points, shift: int, level: Level, hits: Hits, done: SearchProgress) -> SearchProgress:
    """Every entry of each point's cell."""
    at, n, i, wanted = 0, done.hits, done.points, np.int64(0)
    while i < len(points.codes) and at < len(level.keys):
        key = points.codes[i] >> shift
        if level.keys[at] < key:
            at = gallop(level.keys, at, key)
        if at < len(level.keys) and level.keys[at] == key:
            begin, end = np.int64(level.starts[at]), np.int64(level.starts[at + 1])
            if n + end - begin > len(hits.subs):
                wanted = n + end - begin
                break
            for e in range(begin, end):
                hits.subs[n] = level.entries[e]
                n += 1
        hits.ends[i] = n
        i += 1
    if wanted == 0:
        hits.ends[i:] = n
        i = len(points.codes)
    return SearchProgress(i, n, int(wanted))


def outside(points: Points, owner: Ints, subs: SubIds, regions: Regions, records: Records, now_us: int) -> Bools:
    """Which pairs (point, subscription), found by words, have a point that is not in the region."""
    ids = records.ids[regions.ordinals[regions.worded]]
    place = np.searchsorted(ids, subs)
    place[place == len(ids)] = 0
    mine = np.flatnonzero(ids[place] == subs)
    numbers = regions.worded[place[mine]]
    alive = are_live(regions.ordinals[numbers].astype(np.int64), records, now_us)  # or the id is in a later segment
    mine, numbers = mine[alive], numbers[alive]
    wrong = np.zeros(len(subs), np.bool_)
    wrong[mine] = ~_are_in(regions, points.x, points.y, owner[mine], numbers)
    return wrong
