"""Which rows of a `Shapes` have the same shape: the first of them that was asked for stands for all.

Many subscribe to the same district, and what was found for one of them holds for the others. A row is compared when it
is asked for first: a hash of a few of its vertices says with which others, and then all its vertices are.
"""

import threading
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints, kernel

HASHED = 4
"""Vertices of a shape, at equal distances, that its hash is made of. Shapes of one tiling differ in most of theirs."""
LOOKS_MAX = 32
"""Places in which a row is looked for. Where so many shapes differ that have the hashed vertices in common, it stands
for itself: it is then tested by itself, and nothing is wrong."""
UNKNOWN = -1


class _Rows(NamedTuple):
    """The arrays of a `Shapes`. `metres` is empty where no row is a circle."""

    parts: Ints
    rings: Ints
    vertices: Ints
    xy: Floats
    metres: Floats


class SameShapes:
    """What is known of a `Shapes`, 24 bytes a row; any thread may ask."""

    def __init__(self, parts: Ints, rings: Ints, vertices: Ints, xy: Floats, metres: Floats) -> None:
        self._rows = _Rows(parts, rings, vertices, xy, metres)
        self._firsts = np.full(len(parts) - 1, UNKNOWN, np.int64)
        self._table = np.full(2 * len(self._firsts), UNKNOWN, np.int64)
        """The rows that stand for others, each in the first free place from that of its hash on."""
        self._lock = threading.Lock()

    def firsts(self, rows: Ints) -> Ints:
        """For each row the one that stands for it, which has the same shape."""
        found: Ints = self._firsts[rows]
        if (found == UNKNOWN).any():
            with self._lock:
                _look_up(rows, self._rows, self._firsts, self._table)
            found = self._firsts[rows]
        return found


@kernel
def _look_up(rows: Ints, shapes: _Rows, firsts: Ints, table: Ints) -> None:
    for i in range(len(rows)):
        row = rows[i]
        if firsts[row] != UNKNOWN:
            continue
        firsts[row], mixed = row, _hash(row, shapes)
        for look in range(LOOKS_MAX):
            place = (mixed + np.uint64(look)) % np.uint64(len(table))
            if table[place] == UNKNOWN:
                table[place] = row
                break
            if _are_equal(row, table[place], shapes):
                firsts[row] = table[place]
                break


@kernel
def _hash(row: int, shapes: _Rows) -> np.uint64:
    first, last = shapes.rings[shapes.parts[row]], shapes.rings[shapes.parts[row + 1]]
    begin, end = shapes.vertices[first], shapes.vertices[last]
    mixed = np.uint64(end - begin)
    if len(shapes.metres):
        mixed ^= np.uint64(hash(shapes.metres[row]))
    for k in range(HASHED if begin < end else 0):
        vertex = begin + (end - begin) * k // HASHED
        for axis in range(2):
            mixed = (mixed ^ np.uint64(hash(shapes.xy[vertex, axis]))) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(32)
    return mixed


@kernel
def _are_equal(one: int, other: int, shapes: _Rows) -> bool:
    """Whether two rows have the same parts of the same rings of the same vertices."""
    if len(shapes.metres) and shapes.metres[one] != shapes.metres[other]:
        return False
    part, like = shapes.parts[one], shapes.parts[other]
    count = shapes.parts[one + 1] - part
    if count != shapes.parts[other + 1] - like or not _have_equal_lengths(shapes.rings, part, like, count):
        return False
    ring, like = shapes.rings[part], shapes.rings[like]
    count = shapes.rings[part + count] - ring
    if not _have_equal_lengths(shapes.vertices, ring, like, count):
        return False
    begin, like = shapes.vertices[ring], shapes.vertices[like]
    for v in range(shapes.vertices[ring + count] - begin):
        if shapes.xy[begin + v, 0] != shapes.xy[like + v, 0] or shapes.xy[begin + v, 1] != shapes.xy[like + v, 1]:
            return False
    return True


@kernel
def _have_equal_lengths(offsets: Ints, here: int, there: int, count: int) -> bool:
    for i in range(count):
        if offsets[here + i + 1] - offsets[here + i] != offsets[there + i + 1] - offsets[there + i]:
            return False
    return True
