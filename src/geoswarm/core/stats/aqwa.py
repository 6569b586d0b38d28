"""AQWA's statistics, the centralised rival of TrioStat: five numbers for every cell, sent to one machine each round.

The same estimates for any rectangle of cells in O(1), kept by cell instead of by row and column. Thesis §6.2 (Figures
6.2 to 6.4) compares the costs. Strategies use `triostat.py`.

One number counts the cell's points. The other four are an Euler histogram: a query adds one to every cell it covers,
to every border between two of them, right and below, and to every corner between four. Inside any rectangle, what is
left of a query is a rectangle again, and there cells - borders + corners is one, however many cells it covers:

    ┌───┬───┐
    │ 1 - 1 │    4 cells - 4 borders + 1 corner = 1 query
    ├─|─+─|─┤
    │ 1 - 1 │
    └───┴───┘
"""

from dataclasses import dataclass

import numpy as np

from geoswarm.core.arrays.jit import CellIds, Floats, Ints
from geoswarm.core.space.grid import CellBox
from geoswarm.core.stats.triostat import FADE, Box, Trio
from geoswarm.errors import InputError

POINTS, CELLS, RIGHT, BELOW, CORNERS = range(5)
NUMBERS_PER_CELL = 5
"""Numbers that are sent for each cell at the end of a round."""
STORED_PER_CELL = 10
"""Five where they are collected and five where they are summed up, as the thesis counts. The third set of five that is
kept here, for R, is not part of AQWA."""
BYTES_PER_NUMBER = 8


@dataclass(frozen=True, eq=False)
class Aqwa:
    rows: int
    columns: int
    collected: Floats
    """(5, rows, columns): the counts of this round."""
    sums: Floats
    """(5, rows + 1, columns + 1): prefix sums of live queries and of points, which fade."""
    sums_last: Floats
    """The same for the last round alone."""

    @classmethod
    def empty(cls, rows: int, columns: int) -> "Aqwa":
        prefix = (NUMBERS_PER_CELL, rows + 1, columns + 1)
        return cls(rows, columns, np.zeros((NUMBERS_PER_CELL, rows, columns)), np.zeros(prefix), np.zeros(prefix))

    def add_points(self, cells: CellIds) -> None:
        self.collected[POINTS] += np.bincount(cells, minlength=self.rows * self.columns).reshape(self.rows, -1)

    def add_queries(self, boxes: CellBox) -> None:
        self.collected[CELLS:] += self._euler(boxes)

    def remove_queries(self, boxes: CellBox) -> None:
        """Cancelled or expired queries that came in an earlier round; the last round's counts keep them."""
        self.sums[CELLS:, 1:, 1:] -= _prefix(self._euler(boxes))

    def __add__(self, other: "Aqwa") -> "Aqwa":
        if (self.rows, self.columns) != (other.rows, other.columns):
            raise InputError(
                f"statistics of {self.rows} x {self.columns} and {other.rows} x {other.columns} cells: use one grid"
            )
        pairs = zip(self._tables, other._tables, strict=True)
        return Aqwa(self.rows, self.columns, *(a + b for a, b in pairs))

    def close_round(self) -> None:
        self.sums_last[:, 1:, 1:] = _prefix(self.collected)
        self.sums[POINTS] *= FADE
        np.add(self.sums, self.sums_last, out=self.sums)
        self.collected[:] = 0.0

    def read(self, box: Box) -> Trio:
        n, q = _inside(self.sums, box)
        return Trio(n, q, sum(_inside(self.sums_last, box)))

    @property
    def round_bytes(self) -> int:
        """Bytes that all executors together send to the one machine at the end of each round."""
        return NUMBERS_PER_CELL * BYTES_PER_NUMBER * self.rows * self.columns

    @property
    def _tables(self) -> tuple[Floats, Floats, Floats]:
        return self.collected, self.sums, self.sums_last

    def _euler(self, boxes: CellBox) -> Floats:
        """How many queries cover each cell, right border, lower border and lower right corner."""
        row0, col0, row1, col1 = (np.asarray(side, np.int64) for side in boxes)
        tables = np.empty((4, self.rows, self.columns))
        for table, (down, right) in zip(tables, ((0, 0), (0, 1), (1, 0), (1, 1)), strict=True):
            table[:] = self._cover_counts(row0, col0, row1 - down, col1 - right)
        return tables

    def _cover_counts(self, row0: Ints, col0: Ints, row1: Ints, col1: Ints) -> Floats:
        """Marks at the four corners of each rectangle, summed up along both axes; an empty one marks nothing."""
        some = (row0 <= row1) & (col0 <= col1)
        row0, col0, row1, col1 = row0[some], col0[some], row1[some] + 1, col1[some] + 1
        width, size = self.columns + 1, (self.rows + 1) * (self.columns + 1)
        marks = np.zeros(size, np.int64)
        for row, col, sign in ((row0, col0, 1), (row0, col1, -1), (row1, col0, -1), (row1, col1, 1)):
            marks += sign * np.bincount(row * width + col, minlength=size)
        return _prefix(marks.reshape(-1, width).astype(np.float64))[:-1, :-1]


def _prefix(tables: Floats) -> Floats:
    return np.cumsum(np.cumsum(tables, axis=-1), axis=-2)


def _inside(sums: Floats, box: Box) -> tuple[float, float]:
    """Points and queries, from four numbers of each table."""

    def total(table: int, down: int = 0, right: int = 0) -> float:
        s, row0, col0, row1, col1 = sums[table], box.row0, box.col0, box.row1 + 1 - down, box.col1 + 1 - right
        return float(s[row1, col1] - s[row0, col1] - s[row1, col0] + s[row0, col0])

    return total(POINTS), total(CELLS) - total(RIGHT, right=1) - total(BELOW, down=1) + total(CORNERS, 1, 1)
