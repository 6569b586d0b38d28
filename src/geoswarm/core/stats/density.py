"""How many queries meet each cell, and how many an event there may match, in four updates a query however large it is.

A query adds one to every cell of its box; written as differences that is its four corners, and two running sums give
the cells back. `triostat.py` has the statistics by partition.
"""

import numpy as np

from geoswarm.core.arrays.jit import Array, Floats, Ints, kernel
from geoswarm.core.space.grid import CellBox, Grid


class Density:
    def __init__(self, grid: Grid) -> None:
        self._corners = np.zeros((grid.rows + 1, grid.columns + 1), np.int64)
        self._cells: Ints | None = None

    def add(self, boxes: CellBox, by: int = 1) -> None:
        """`by` -1 removes queries."""
        if len(boxes.row0):
            _mark(self._corners, boxes, np.full(len(boxes.row0), by, np.int64))
            self._cells = None

    def of_cells(self) -> Ints:
        if self._cells is None:
            self._cells = self._corners.cumsum(axis=0).cumsum(axis=1)[:-1, :-1].ravel()
        return self._cells


def expected_matches(grid: Grid, rects: Floats, counts: Floats) -> Floats:
    """By cell, how many subscriptions an event there is expected to meet, if each rectangle, (n, 4), stands for so many
    as its count: a rectangle covers a part of the cells that it meets."""
    west, south, east, north = np.ascontiguousarray(rects.T)
    boxes = grid.cover(west, south, east, north)
    met = (boxes.row1 - boxes.row0 + 1) * (boxes.col1 - boxes.col0 + 1)
    cell = (grid.xmax - grid.xmin) / grid.columns * (grid.ymax - grid.ymin) / grid.rows
    covered = np.minimum(1.0, (east - west) * (north - south) / cell / np.maximum(1, met))
    corners = np.zeros((grid.rows + 1, grid.columns + 1))
    _mark(corners, boxes, counts * covered)
    of_cells: Floats = np.maximum(0.0, corners.cumsum(axis=0).cumsum(axis=1)[:-1, :-1].ravel())
    return of_cells


@kernel
def _mark(corners: Array, boxes: CellBox, by: Array) -> None:
    for i in range(len(boxes.row0)):
        corners[boxes.row0[i], boxes.col0[i]] += by[i]
        corners[boxes.row1[i] + 1, boxes.col0[i]] -= by[i]
        corners[boxes.row0[i], boxes.col1[i] + 1] -= by[i]
        corners[boxes.row1[i] + 1, boxes.col1[i] + 1] += by[i]
