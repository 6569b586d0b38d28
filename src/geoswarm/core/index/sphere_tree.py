"""The nearest points on the sphere: a tree of boxes over points in memory, searched best-first.

Points are vectors of length 1. The straight line between two of them, the chord, grows with the way along the sphere,
and a box of vectors knows neither poles nor an antimeridian. Chords decide what is looked at; the distance of a point
is that of circles (`core/shapes/circle.py`), and ties are broken by a rank. Rows come in Z-order, so that neighbours
share boxes:

    level 2                 ┌─────────────┐               a heap has the boxes that were met, nearest first; a box is
    level 1         ┌───────┴───┐   ┌─────┴───┐           opened only if a point of it may be nearer than the k nearest
    level 0       ┌─┴─┐ ┌───┐ ┌─┴─┐ ...                   so far
    points        · · · ·   · · · ·

Kept events are found by the boxes in their files instead (`flow/nearest.py`).
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints, kernel, read_only
from geoswarm.core.shapes.circle import EARTH_M, METRES_MAX, distance_m

LEAF_ROWS = 16
"""Points of a box at level 0."""
FANOUT = 8
"""Boxes of a box above."""
CHORD_SLACK = 1e-12
"""Of the radius, 6 micrometres: far above the rounding of chords and distances (1e-15), which need not agree."""
HEAP_ROOM = 256
"""Boxes that the heap has room for at first."""


class SphereTree(NamedTuple):
    degrees: Floats
    """(n, 2): lon and lat."""
    vectors: Floats
    """(n, 3)."""
    ranks: Ints
    """Of points at one distance, the lowest comes first; no two are the same."""
    low: Floats
    """(boxes, 3): the least of each axis, level 0 first."""
    high: Floats
    level_starts: Ints
    """In `low` and `high`, and their length."""


class _Heap(NamedTuple):
    """Boxes by their distance: a binary heap in the first rows."""

    chords: Floats
    boxes: Ints


def build_tree(x: Floats, y: Floats, ranks: Ints) -> SphereTree:
    """Of points in degrees, at least one, in Z-order."""
    lon, lat = np.radians(x), np.radians(y)
    vectors = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
    low = [np.minimum.reduceat(vectors, np.arange(0, len(x), LEAF_ROWS))]
    high = [np.maximum.reduceat(vectors, np.arange(0, len(x), LEAF_ROWS))]
    while len(low[-1]) > 1:
        starts = np.arange(0, len(low[-1]), FANOUT)
        low.append(np.minimum.reduceat(low[-1], starts))
        high.append(np.maximum.reduceat(high[-1], starts))
    level_starts = np.cumsum([0, *map(len, low)])
    degrees = np.stack([x, y], axis=1)
    parts = (degrees, vectors, ranks.astype(np.int64), np.concatenate(low), np.concatenate(high), level_starts)
    return SphereTree(*map(read_only, parts))


@kernel
def nearest_rows(tree: SphereTree, lon: float, lat: float, k: int, within_m: float) -> tuple[Ints, Floats]:
    """The rows of at most k points, nearest first, none farther than `within_m`; and their distances in metres."""
    phi, lam = np.radians(lat), np.radians(lon)
    ax, ay, az = np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)
    k = min(k, len(tree.ranks))
    rows, metres, found = np.empty(k, np.int64), np.empty(k), int(np.int64(0))
    limit = _square_of(within_m)
    heap = _Heap(np.empty(HEAP_ROOM), np.empty(HEAP_ROOM, np.int64))
    heap.chords[0], heap.boxes[0], size = 0.0, len(tree.low) - 1, int(np.int64(1))
    while size and heap.chords[0] <= limit:
        box = heap.boxes[0]
        size = _pop(heap, size)
        level = np.searchsorted(tree.level_starts, box, "right") - 1
        place = box - tree.level_starts[level]
        if level == 0:
            for row in range(place * LEAF_ROWS, min((place + 1) * LEAF_ROWS, len(tree.ranks))):
                dx, dy, dz = tree.vectors[row, 0] - ax, tree.vectors[row, 1] - ay, tree.vectors[row, 2] - az
                if dx * dx + dy * dy + dz * dz > limit:
                    continue
                far_m = distance_m(lon, lat, tree.degrees[row, 0], tree.degrees[row, 1])
                if far_m > within_m:
                    continue
                if found < k:
                    _climb(rows, metres, tree.ranks, found, row, far_m)
                    found += 1
                elif _is_behind(metres[0], tree.ranks[rows[0]], far_m, tree.ranks[row]):
                    _sink(rows, metres, tree.ranks, k, row, far_m)
                if found == k:
                    limit = min(limit, _square_of(metres[0]))
            continue
        first = tree.level_starts[level - 1] + place * FANOUT
        for child in range(first, min(first + FANOUT, tree.level_starts[level])):
            dx = max(tree.low[child, 0] - ax, ax - tree.high[child, 0], 0.0)
            dy = max(tree.low[child, 1] - ay, ay - tree.high[child, 1], 0.0)
            dz = max(tree.low[child, 2] - az, az - tree.high[child, 2], 0.0)
            chord = dx * dx + dy * dy + dz * dz
            if chord <= limit:
                if size == len(heap.chords):
                    heap = _longer(heap)
                size = _push(heap, size, chord, child)
    return _sort_found(rows, metres, tree.ranks, found)


@kernel
def _square_of(metres: float) -> float:
    """The square of the longest chord that may belong to such a distance."""
    if metres >= METRES_MAX:
        return np.inf
    chord = 2.0 * np.sin(metres / (2.0 * EARTH_M)) + CHORD_SLACK
    return chord * chord  # type: ignore[no-any-return]


@kernel
def _is_behind(metres: float, rank: int, other_m: float, other_rank: int) -> bool:
    return metres > other_m or (metres == other_m and rank > other_rank)


@kernel
def _longer(heap: _Heap) -> _Heap:
    room = len(heap.chords)
    longer = _Heap(np.empty(2 * room), np.empty(2 * room, np.int64))
    longer.chords[:room], longer.boxes[:room] = heap.chords, heap.boxes
    return longer


@kernel
def _push(heap: _Heap, size: int, chord: float, box: int) -> int:
    at = size
    while at and heap.chords[(at - 1) // 2] > chord:
        heap.chords[at], heap.boxes[at] = heap.chords[(at - 1) // 2], heap.boxes[(at - 1) // 2]
        at = (at - 1) // 2
    heap.chords[at], heap.boxes[at] = chord, box
    return size + 1


@kernel
def _pop(heap: _Heap, size: int) -> int:
    """Removes the nearest box."""
    size -= 1
    chord, box, at = heap.chords[size], heap.boxes[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and heap.chords[child + 1] < heap.chords[child]:
            child += 1
        if heap.chords[child] >= chord:
            break
        heap.chords[at], heap.boxes[at] = heap.chords[child], heap.boxes[child]
        at = child
    heap.chords[at], heap.boxes[at] = chord, box
    return size


@kernel
def _climb(rows: Ints, metres: Floats, ranks: Ints, found: int, row: int, far_m: float) -> None:
    """Adds a point to a heap that has the farthest of `found` points first."""
    at = found
    while at:
        above = (at - 1) // 2
        if not _is_behind(far_m, ranks[row], metres[above], ranks[rows[above]]):
            break
        rows[at], metres[at] = rows[above], metres[above]
        at = above
    rows[at], metres[at] = row, far_m


@kernel
def _sink(rows: Ints, metres: Floats, ranks: Ints, size: int, row: int, far_m: float) -> None:
    """Puts a point in the place of the farthest."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _is_behind(
            metres[child + 1], ranks[rows[child + 1]], metres[child], ranks[rows[child]]
        ):
            child += 1
        if not _is_behind(metres[child], ranks[rows[child]], far_m, ranks[row]):
            break
        rows[at], metres[at] = rows[child], metres[child]
        at = child
    rows[at], metres[at] = row, far_m


@kernel
def _sort_found(rows: Ints, metres: Floats, ranks: Ints, found: int) -> tuple[Ints, Floats]:
    """The farthest goes to the end, and again among those that are left."""
    for size in range(found - 1, 0, -1):
        last, last_m = rows[size], metres[size]
        rows[size], metres[size] = rows[0], metres[0]
        _sink(rows, metres, ranks, size, last, last_m)
    return rows[:found], metres[:found]
