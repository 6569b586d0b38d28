"""The index of the rectangles of one segment: a grid at every scale, and the subscriptions of each cell.

Built once from rectangles, never changed. The world is cut into 2^16 × 2^16 cells at level 0, and into cells of twice
the side at each level above. A rectangle is entered at the finest level where it meets at most 9 cells, so a city block
costs as many entries as a continent, and the cell that a point is looked up in is about the size of what it may find:

    level 0  ▪▪▪▪▪▪▪▪     level 3  ┌───┬───┐      a point visits its one cell at each level
                                   │ ▄▄│▄  │      that has entries, and tests what it finds
                                   ├─▀▀┼▀──┤
                                   └───┴───┘

This grid is not the plan's: how finely work is divided has nothing to do with how densely subscriptions lie. Each level
is three arrays, and cells are numbered along the Z-order curve, so the code of a cell is a prefix of its children's:

    keys      sorted codes that have entries        [ 3 | 9 | 12 ]
    starts    where a key's entries begin           [ 0 | 2 | 3 | 7 ]
    entries   ordinals of subscriptions             [ a b | a | c d e f ]

PS2Stream §IV-D keeps one grid per worker. Subscriptions that ask for words are in `words.py` instead.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints, Ordinals, ZCodes, kernel, read_only
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.space.grid import Grid, column_of, row_of, zcode

LEVELS = 17
"""The number of levels: at level 16 the world is one cell."""
ENTRIES_MAX = 9
"""Entries of one subscription: about 6 on average, 25 bytes. More would test fewer candidates, at more memory."""
CODE_MAX = (1 << 32) - 1


class Level(NamedTuple):
    keys: ZCodes
    starts: Ordinals
    entries: Ordinals

    def renumber(self, ordinals: Ints | Ordinals) -> "Level":
        """The same cells, with `ordinals[e]` in place of entry e."""
        return self._replace(entries=read_only(ordinals[self.entries].astype(np.uint32, copy=False)))


CellIndex = dict[int, Level]
"""The levels that have entries, by their number."""


def frame_of(grid: Grid) -> Floats:
    """The index's own grid over the same world."""
    side = 1 << (LEVELS - 1)
    return Grid(grid.xmin, grid.ymin, grid.xmax, grid.ymax, columns=side, rows=side).frame


def build(grid: Grid, rects: Floats) -> CellIndex:
    """`rects` is (n, 4): xmin, ymin, xmax, ymax, within the grid's bounds."""
    levels, boxes, counts = _choose(read_only(rects), frame_of(grid))
    index: CellIndex = {}
    for level in np.flatnonzero(counts).tolist():
        keys, ordinals = _enter(level, levels, boxes, int(counts[level]))
        index[level] = build_level(keys, ordinals, CODE_MAX >> (2 * level))
    return index


def build_level(keys: ZCodes, ordinals: Ordinals, key_max: int) -> Level:
    order = sort_order(keys, key_max)
    ascending = keys[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = ascending[1:] != ascending[:-1]
    starts = np.append(np.flatnonzero(first), len(keys)).astype(np.uint32)
    return Level(read_only(ascending[first]), read_only(starts), read_only(ordinals[order]))


@kernel
def codes_of(x: Floats, y: Floats, frame: Floats) -> ZCodes:
    """The level 0 cell of each point."""
    codes = np.empty(len(x), np.uint32)
    for i in range(len(x)):
        codes[i] = zcode(row_of(y[i], frame), column_of(x[i], frame))
    return codes


@kernel
def _choose(rects: Floats, frame: Floats) -> tuple[Ints, Ints, Ints]:
    """The level of each rectangle, the cells it meets there (row0, col0, row1, col1), and the entries per level."""
    levels, boxes = np.empty(len(rects), np.int64), np.empty((len(rects), 4), np.int64)
    counts = np.zeros(LEVELS, np.int64)
    for i in range(len(rects)):
        row0, col0 = row_of(rects[i, 3], frame), column_of(rects[i, 0], frame)
        row1, col1 = row_of(rects[i, 1], frame), column_of(rects[i, 2], frame)
        level = 0
        while (row1 - row0 + 1) * (col1 - col0 + 1) > ENTRIES_MAX:
            row0, col0, row1, col1 = row0 >> 1, col0 >> 1, row1 >> 1, col1 >> 1
            level += 1
        levels[i] = level
        boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3] = row0, col0, row1, col1
        counts[level] += (row1 - row0 + 1) * (col1 - col0 + 1)
    return levels, boxes, counts


@kernel
def _enter(level: int, levels: Ints, boxes: Ints, count: int) -> tuple[ZCodes, Ordinals]:
    keys, ordinals = np.empty(count, np.uint32), np.empty(count, np.uint32)
    at = 0
    for i in range(len(levels)):
        if levels[i] != level:
            continue
        for row in range(boxes[i, 0], boxes[i, 2] + 1):
            for col in range(boxes[i, 1], boxes[i, 3] + 1):
                keys[at] = zcode(row, col)
                ordinals[at] = i
                at += 1
    return keys, ordinals
