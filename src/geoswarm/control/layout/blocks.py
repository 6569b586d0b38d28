"""Blocks of the map, by which lists are counted, and what is left of a block's lists where a plan cuts it.

`text_sample.py` asks for it where each executor has lists of its own: an executor with a part of a block has the
subscriptions that meet its part. PS2Stream §IV-D: the cells of a worker's grid-inverted index.
"""

import numpy as np

from geoswarm.core.arrays.jit import Bools, Ints, kernel
from geoswarm.core.space.grid import CellBox
from geoswarm.core.stats.triostat import Box

BLOCKS = 64
"""Lists are counted by blocks, 64 on each side of the map: the granularity of the paper's indexes (§VI-B)."""


def cut_blocks(box: Box, sides: tuple[int, int]) -> Bools:
    """The blocks that the box meets but does not cover."""
    met, covered = np.zeros((2, 2, BLOCKS), np.bool_)
    for axis, (first, last) in enumerate(((box.row0, box.row1), (box.col0, box.col1))):
        number = np.arange(BLOCKS)
        begins, ends = (-(-((number + n) * sides[axis]) // BLOCKS) for n in range(2))  # cells begins .. ends - 1
        met[axis] = (begins <= last) & (ends > first)
        covered[axis] = (begins >= first) & (ends - 1 <= last)
    found: Bools = (met[0][:, None] & met[1]) & ~(covered[0][:, None] & covered[1])
    return found.ravel()


@kernel
def count_in_blocks(queries: Ints, boxes: CellBox, sides: tuple[int, int], wanted: Bools) -> Ints:
    """The number of these subscriptions that meet each of the wanted blocks."""
    found, (rows, columns) = np.zeros(BLOCKS * BLOCKS, np.int64), sides
    for i in queries:
        for row in range(boxes.row0[i] * BLOCKS // rows, boxes.row1[i] * BLOCKS // rows + 1):
            for column in range(boxes.col0[i] * BLOCKS // columns, boxes.col1[i] * BLOCKS // columns + 1):
                if wanted[row * BLOCKS + column]:
                    found[row * BLOCKS + column] += 1
    return found


@kernel
def count_met(queries: CellBox, boxes: Ints, sides: tuple[int, int]) -> Ints:
    """By block, the subscriptions that meet one of the boxes within it."""
    (rows, columns), found = sides, np.zeros(BLOCKS * BLOCKS, np.int64)
    is_met = np.zeros((len(boxes), BLOCKS * BLOCKS), np.bool_)
    for b in range(len(boxes)):
        for row in range(boxes[b, 0] * BLOCKS // rows, boxes[b, 2] * BLOCKS // rows + 1):
            for column in range(boxes[b, 1] * BLOCKS // columns, boxes[b, 3] * BLOCKS // columns + 1):
                is_met[b, row * BLOCKS + column] = True
    meets = np.zeros(len(boxes), np.bool_)
    for i in range(len(queries.row0)):
        any_met = False
        for b in range(len(boxes)):
            meets[b] = queries.row0[i] <= boxes[b, 2] and queries.row1[i] >= boxes[b, 0]
            meets[b] = meets[b] and queries.col0[i] <= boxes[b, 3] and queries.col1[i] >= boxes[b, 1]
            any_met |= meets[b]
        if not any_met:
            continue
        for row in range(queries.row0[i] * BLOCKS // rows, queries.row1[i] * BLOCKS // rows + 1):
            for column in range(queries.col0[i] * BLOCKS // columns, queries.col1[i] * BLOCKS // columns + 1):
                block = row * BLOCKS + column
                for b in range(len(boxes)):
                    if meets[b] and is_met[b, block]:  # three boxes that meet each other have a cell in common
                        found[block] += 1
                        break
    return found


@kernel
def common_numbers(first: Ints, second: Ints) -> Ints:
    """The numbers that are in both; both ascend."""
    found, n, k = np.empty(min(len(first), len(second)), np.int64), 0, 0
    for i in first:
        while k < len(second) and second[k] < i:
            k += 1
        if k < len(second) and second[k] == i:
            found[n] = i
            n += 1
    return found[:n]
