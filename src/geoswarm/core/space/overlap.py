"""Which partitions a rectangle of cells meets, for many rectangles at once.

A point needs none of this: `Plan.route` finds its one partition. SWARM §4.1.1, Algorithm 1 (queryOverlap), corrected.

The paper keeps a stack of cells to visit. From a partition that it finds it goes on to the cell right of it and the
cell below it, and it turns back at every partition found before. So a partition found from one cell is never left
from another, and partitions behind it can be missed:

        ┌───┬───┬───┐    A puts B's upper cell and C on the stack. C comes off first and leads to B's
        │ A │   │ D │    lower cell, from there to E. Then B's upper cell comes off, but B is known: D,
        ├───┤ B ├───┤    right of it, is missed. This happens to about 5 % of random rectangles on random
        │ C │   │ E │    plans of some thirty partitions (`tests/core/space/test_overlap.py`).
        └───┴───┴───┘

This file keeps the idea of skipping from border to border, but walks in strips: along a row from border to border,
then down to the first row in which a partition of this row has ended. A partition is reported at its top-left corner
clipped to the rectangle. The walk passes there exactly once, so there is nothing to remember: a strip cannot jump
over a corner, because the cell above it belongs to a partition that ends there.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Ints, kernel
from geoswarm.core.space.grid import CellBox
from geoswarm.core.space.plan import Plan, Slots
from geoswarm.errors import InputError


class Overlap(NamedTuple):
    """Rectangle i meets slots[offsets[i] : offsets[i + 1]], each once, top to bottom and left to right."""

    offsets: Ints
    slots: Slots


def overlap(plan: Plan, boxes: CellBox) -> Overlap:
    box = CellBox(*(np.ascontiguousarray(side, np.int64) for side in boxes))
    grid = plan.grid
    inside = (box.row0 >= 0) & (box.row0 <= box.row1) & (box.row1 < grid.rows)
    inside &= (box.col0 >= 0) & (box.col0 <= box.col1) & (box.col1 < grid.columns)
    if not np.all(inside):
        bad = int(np.argmin(inside))
        raise InputError(
            f"{np.count_nonzero(~inside)} of {len(inside)} rectangles are empty or leave the grid of "
            f"{grid.rows} rows and {grid.columns} columns, such as number {bad} "
            f"(rows {box.row0[bad]}..{box.row1[bad]}, "
            f"columns {box.col0[bad]}..{box.col1[bad]}): clip them to the bounds and use `Grid.cover`"
        )
    return Overlap(*_walk(box, plan.slot_of_cell, plan.borders, grid.columns))


@kernel
def _walk(box: CellBox, slot_of_cell: Slots, borders: Ints, columns: int) -> tuple[Ints, Slots]:
    count = len(box.row0)
    offsets = np.zeros(count + 1, np.int64)
    found = np.empty(max(16, 2 * count), np.int32)  # most rectangles are small and meet one or two partitions
    total = 0
    for i in range(count):
        top, left, bottom, right = box.row0[i], box.col0[i], box.row1[i], box.col1[i]
        row = top
        while row <= bottom:
            row_next = bottom + 1
            column = left
            while column <= right:
                slot = slot_of_cell[row * columns + column]
                if row == max(top, borders[slot, 0]):  # entered at its left border: its corner
                    if total == len(found):
                        grown = np.empty(2 * total, np.int32)
                        for k in range(total):  # to assign a slice takes two seconds to compile
                            grown[k] = found[k]
                        found = grown
                    found[total] = slot
                    total += 1
                row_next = min(row_next, borders[slot, 2] + 1)
                column = borders[slot, 3] + 1
            row = row_next
        offsets[i + 1] = total
    return offsets, found[:total].copy()
