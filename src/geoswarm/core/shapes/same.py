"""Which rows of a `Shapes` have the same shape: the first of them that was asked for stands for all.

Many subscribe to the same district, and what was found for one of them holds for the others. Rows are compared when
they are asked for first, vertex by vertex, with the one that has the same number of vertices and the same few of them;
of two shapes that differ although these are the same, only one is found again, which costs time and nothing else.
"""

import threading
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel

LOOKED_AT = 4
"""Vertices of a shape, at equal distances, by which one that may be the same is found."""


class _Rows(NamedTuple):
    """The arrays of a `Shapes`. `metres` is empty where no row is a circle."""

    parts: Ints
    rings: Ints
    vertices: Ints
    xy: Floats
    metres: Floats


class SameShapes:
    """What is known of a `Shapes`; any thread may ask."""

    def __init__(self, parts: Ints, rings: Ints, vertices: Ints, xy: Floats, metres: Floats) -> None:
        self._rows = _Rows(parts, rings, vertices, xy, metres)
        self._firsts = np.full(len(parts) - 1, -1, np.int64)
        self._first_with: dict[bytes, int] = {}
        self._lock = threading.Lock()

    def firsts(self, rows: Ints) -> Ints:
        """For each row the one that stands for it, which has the same shape."""
        found: Ints = self._firsts[rows]
        if (found < 0).any():
            with self._lock:
                self._look_at(np.unique(rows[self._firsts[rows] < 0]))
            found = self._firsts[rows]
        return found

    def _look_at(self, rows: Ints) -> None:
        marks = _marks(rows, self._rows)
        known = self._first_with
        like = np.array([known.setdefault(mark.tobytes(), row) for mark, row in zip(marks, rows.tolist(), strict=True)])
        self._firsts[rows] = np.where(_are_equal(rows, like, self._rows), like, rows)


@kernel
def _marks(rows: Ints, shapes: _Rows) -> Floats:
    """The number of vertices of each row, its radius, and some of its vertices."""
    marks = np.zeros((len(rows), 2 + 2 * LOOKED_AT))
    for i in range(len(rows)):
        begin, end = _vertices_of(rows[i], shapes)
        marks[i, 0] = end - begin
        marks[i, 1] = shapes.metres[rows[i]] if len(shapes.metres) else 0.0
        if begin < end:
            for k in range(LOOKED_AT):
                v = begin + (end - begin) * k // LOOKED_AT
                marks[i, 2 + 2 * k], marks[i, 3 + 2 * k] = shapes.xy[v, 0], shapes.xy[v, 1]
    return marks


@kernel
def _vertices_of(row: int, shapes: _Rows) -> tuple[int, int]:
    first, last = shapes.rings[shapes.parts[row]], shapes.rings[shapes.parts[row + 1]]
    return shapes.vertices[first], shapes.vertices[last]


@kernel
def _are_equal(some: Ints, others: Ints, shapes: _Rows) -> Bools:
    """Whether rows have the same parts of the same rings of the same vertices, pair by pair."""
    equal = np.empty(len(some), np.bool_)
    for i in range(len(some)):
        equal[i] = some[i] == others[i] or _is_equal(some[i], others[i], shapes)
    return equal


@kernel
def _is_equal(one: int, other: int, shapes: _Rows) -> bool:
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
