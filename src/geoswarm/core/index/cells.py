"""The index of the rectangles of one segment: a grid at every scale, and the subscriptions of each cell.

Built once from rectangles, never changed. The world is cut into 2^16 × 2^16 cells at level 0, and into cells of twice
the side at each level above. A rectangle is entered at the finest level whose cells are as wide and as high as itself,
so it meets at most 4 of them, and the cell that a point is looked up in is about the size of what it may find:

    level 0  ▪▪▪▪▪▪▪▪     level 3  ┌───┬───┐      a point visits its one cell at each level
                                   │ ▄▄│▄  │      that has entries, and tests what it finds
                                   ├─▀▀┼▀──┤
                                   └───┴───┘

This grid is not the plan's: how finely work is divided has nothing to do with how densely subscriptions lie. Cells are
numbered along the Z-order curve, so 8 × 8 of them, a block, are one range of 64 codes. All levels share the arrays:

    tops      every 16th block                       [ 2 | 91 ]                       `kernels.py` looks here first,
    blocks    ascending, padded to 16 by level       [ 2 | 5 | 7 ... | 91 | 92 ... ]  then among 16 in one cache line,
    bits      which cells have entries, cells before [ 0010 0100, 0 | 1000 0000, 2 ]  then whether the cell has any,
    starts    where the entries of a cell begin      [ 0 | 2 | 3 | 7 ]                which they are,
    entries   subscription and box (`cell_boxes.py`) [ a b | a | c d e f ]            and which of them may be hits

Most of the work is waiting for memory, so few lines of it are read, and each step depends on one before it only.
PS2Stream §IV-D keeps one grid per worker. Subscriptions that ask for words are in `words.py` instead, regions that are
no rectangles in `regions.py`.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bytes, Floats, Ints, Ordinals, Packed, ZCodes, kernel, read_only
from geoswarm.core.arrays.radix import sort_with
from geoswarm.core.index.cell_boxes import STEPS, STEPS_LOG2, side_of, steps_x, steps_y
from geoswarm.core.index.word_tables import as_signed
from geoswarm.core.space.grid import Grid, column_of, row_of, zcode

LEVELS = 17
"""The number of levels: at level 16 the world is one cell."""
ENTRIES_MAX = 4
"""Entries of one subscription: about 3 on average, 24 bytes."""
CODE_MAX = (1 << 32) - 1
BLOCK_LOG2 = 6
"""The bits of a cell's code within its block."""
BLOCK_SIDE = 8
GROUP_LOG2 = 4
GROUP = 1 << GROUP_LOG2
"""Blocks in a cache line."""
NO_BLOCK = CODE_MAX
"""Fills up the last group of a level."""


class CellIndex(NamedTuple):
    """Files name the arrays like these fields: an array with a new meaning needs a new name."""

    frame: Floats  # of the grid at level 0
    levels: Ints  # that have entries
    level_starts: Ints  # in `tops`
    tops: Ordinals
    blocks: Ordinals
    bits: Packed  # (blocks, 2)
    starts: Ordinals
    entries: Packed

    def renumber(self, ordinals: Ints | Ordinals) -> "CellIndex":
        """The same cells, with `ordinals[s]` in place of subscription s."""
        numbers = ordinals[self.entries >> np.uint64(32)].astype(np.uint64)
        return self._replace(entries=read_only(numbers << np.uint64(32) | self.entries & np.uint64(CODE_MAX)))


def frame_of(grid: Grid) -> Floats:
    """The index's own grid over the same world."""
    side = 1 << (LEVELS - 1)
    return Grid(grid.xmin, grid.ymin, grid.xmax, grid.ymax, columns=side, rows=side).frame


def build(grid: Grid, rects: Floats) -> CellIndex:
    """`rects` is (n, 4): xmin, ymin, xmax, ymax, within the grid's bounds."""
    frame = frame_of(grid)
    boxes, levels, counts = _choose(read_only(rects), frame)
    keys, entries = _enter(boxes, levels, counts)
    ends = np.cumsum(counts)
    for level in np.flatnonzero(counts).tolist():
        here = slice(int(ends[level] - counts[level]), int(ends[level]))
        keys[here], entries[here] = sort_with(keys[here], entries[here], CODE_MAX >> (2 * level))
    used = np.flatnonzero(counts)
    starts, tops, blocks, bits, cell_starts = tables_of(keys, np.append(ends[used] - counts[used], len(keys)))
    return CellIndex(
        read_only(frame),
        read_only(used),
        read_only(starts),
        read_only(tops),
        read_only(blocks),
        read_only(bits),
        read_only(cell_starts),
        read_only(entries),
    )


@kernel
def codes_of(x: Floats, y: Floats, frame: Floats) -> ZCodes:
    """The level 0 cell of each point."""
    codes = np.empty(len(x), np.uint32)
    for i in range(len(x)):
        codes[i] = zcode(row_of(y[i], frame), column_of(x[i], frame))
    return codes


@kernel
def _choose(rects: Floats, frame: Floats) -> tuple[Ints, Bytes, Ints]:
    """Each rectangle in steps (left, top, right, bottom), its level, and the entries of each level."""
    boxes, levels = np.empty((len(rects), 4), np.int64), np.empty(len(rects), np.uint8)
    counts = np.zeros(LEVELS, np.int64)
    for i in range(len(rects)):
        left, top = steps_x(rects[i, 0], frame), steps_y(rects[i, 3], frame)
        right, bottom = steps_x(rects[i, 2], frame), steps_y(rects[i, 1], frame)
        level, longer = 0, max(right - left, bottom - top)
        while longer > STEPS << level:
            level += 1
        boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3] = left, top, right, bottom
        levels[i] = level
        shift = level + STEPS_LOG2
        counts[level] += ((right >> shift) - (left >> shift) + 1) * ((bottom >> shift) - (top >> shift) + 1)
    return boxes, levels, counts


@kernel
def _enter(boxes: Ints, levels: Bytes, counts: Ints) -> tuple[ZCodes, Packed]:
    """The cell and the entry of each rectangle in each of its cells, one level after another."""
    at = np.zeros(LEVELS, np.int64)
    at[1:] = np.cumsum(counts)[:-1]
    keys, entries = np.empty(counts.sum(), np.uint32), np.empty(counts.sum(), np.uint64)
    for i in range(len(levels)):
        level = as_signed(levels[i])
        shift = level + STEPS_LOG2
        left, top, right, bottom = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        for row in range(top >> shift, (bottom >> shift) + 1):
            below = i << 32 | side_of(top, bottom, row, level)
            for column in range(left >> shift, (right >> shift) + 1):
                keys[at[level]] = zcode(row, column)
                entries[at[level]] = below | side_of(left, right, column, level) << 16
                at[level] += 1
    return keys, entries


@kernel
def _count_cells(keys: ZCodes, level_ends: Ints) -> tuple[Ints, int]:
    """The groups before each level, and the cells of all."""
    groups, cells = np.zeros(len(level_ends), np.int64), 0
    for k in range(len(level_ends) - 1):
        blocks = 0
        for i in range(level_ends[k], level_ends[k + 1]):
            fresh = i == level_ends[k]
            cells += fresh or keys[i] != keys[i - 1]
            blocks += fresh or keys[i] >> BLOCK_LOG2 != keys[i - 1] >> BLOCK_LOG2
        groups[k + 1] = groups[k] + (blocks + GROUP - 1) // GROUP
    return groups, cells


@kernel
def tables_of(keys: ZCodes, level_ends: Ints) -> tuple[Ints, Ordinals, Ordinals, Packed, Ordinals]:
    """All but the entries, from the cell of each: `level_starts`, `tops`, `blocks`, `bits` and `starts`."""
    groups, cells = _count_cells(keys, level_ends)
    blocks = np.full(groups[-1] * GROUP, NO_BLOCK, np.uint32)
    bits, starts = np.zeros((len(blocks), 2), np.uint64), np.empty(cells + 1, np.uint32)
    cell = 0
    for k in range(len(level_ends) - 1):
        at = groups[k] * GROUP - 1
        for i in range(level_ends[k], level_ends[k + 1]):
            fresh = i == level_ends[k]
            if not fresh and keys[i] == keys[i - 1]:
                continue
            if fresh or keys[i] >> BLOCK_LOG2 != keys[i - 1] >> BLOCK_LOG2:
                at += 1
                blocks[at], bits[at, 1] = keys[i] >> BLOCK_LOG2, cell
            bits[at, 0] |= np.uint64(1) << np.uint64(keys[i] & 63)
            starts[cell] = i
            cell += 1
    starts[cell] = len(keys)
    return groups, blocks[::GROUP].copy(), blocks, bits, starts
