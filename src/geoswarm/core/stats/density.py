"""How many queries meet each cell, kept up to date in four updates a query however large it is.

A query adds one to every cell of its box; written as differences that is its four corners, and two running sums give
the cells back. `triostat.py` has the statistics by partition.
"""

import numpy as np

from geoswarm.core.arrays.jit import Ints, kernel
from geoswarm.core.space.grid import CellBox, Grid


class Density:
    def __init__(self, grid: Grid) -> None:
        self._corners = np.zeros((grid.rows + 1, grid.columns + 1), np.int64)
        self._cells: Ints | None = None

    def add(self, boxes: CellBox, by: int = 1) -> None:
        """`by` -1 removes queries."""
        if len(boxes.row0):
            _mark(self._corners, boxes, by)
            self._cells = None

    def of_cells(self) -> Ints:
        if self._cells is None:
            self._cells = self._corners.cumsum(axis=0).cumsum(axis=1)[:-1, :-1].ravel()
        return self._cells


@kernel
def _mark(corners: Ints, boxes: CellBox, by: int) -> None:
    for i in range(len(boxes.row0)):
        corners[boxes.row0[i], boxes.col0[i]] += by
        corners[boxes.row1[i] + 1, boxes.col0[i]] -= by
        corners[boxes.row0[i], boxes.col1[i] + 1] -= by
        corners[boxes.row1[i] + 1, boxes.col1[i] + 1] += by
