"""The world cut into columns × rows equal cells. Row 0 is the top row, as in the papers.

A cell has two numbers: its place row by row (`cell`), by which the plan routes, and its place along the Z-order curve
(`zcode`), by which subscriptions are stored: near in space is near on disk, and a square of 2^k × 2^k cells is one
range of codes.

        x →
      y ┌───┬───┬───┐    a border belongs to the cell right of it, or below it, as far as it is a
      ↑ │ 0 │ 1 │ 2 │    number that floats can hold; always to exactly one of the two;
        ├───┼───┼───┤    the world's own right and bottom edge belong to the last cell
        │ 3 │ 4 │ 5 │
        └───┴───┴───┘

Locating is monotone in each coordinate, despite rounding. All exact results depend on that: a point with
x0 <= x <= x1 lies in a column between those of x0 and x1, and a column strictly between them lies wholly inside.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from geoswarm.config import Contract
from geoswarm.core.arrays.jit import CellIds, Floats, Ints, ZCodes, inner, kernel, read_only


class CellBox(NamedTuple):
    """Inclusive ranges of rows and columns, as parallel arrays."""

    row0: Ints
    col0: Ints
    row1: Ints
    col1: Ints


@dataclass(frozen=True)
class Grid:
    xmin: float
    ymin: float
    xmax: float
    ymax: float
    columns: int
    rows: int

    @classmethod
    def of(cls, contract: Contract) -> "Grid":
        return cls(*contract.bounds, columns=contract.columns, rows=contract.rows)

    @property
    def cells(self) -> int:
        return self.columns * self.rows

    @property
    def frame(self) -> Floats:
        """The grid in the form that kernels take: (xmin, ymin, xmax, ymax, columns, rows)."""
        return np.array([self.xmin, self.ymin, self.xmax, self.ymax, self.columns, self.rows], dtype=np.float64)

    def locate(self, x: Floats, y: Floats) -> CellIds:
        """The cell of each point, which must lie within the bounds."""
        return locate(read_only(np.asarray(x, np.float64)), read_only(np.asarray(y, np.float64)), self.frame)

    def cover(self, xmin: Floats, ymin: Floats, xmax: Floats, ymax: Floats) -> CellBox:
        """The cells that each rectangle meets, borders included. The rectangles must lie within the bounds."""
        top_left, bottom_right = self.locate(xmin, ymax), self.locate(xmax, ymin)
        row0, col0 = np.divmod(top_left.astype(np.int64), self.columns)
        row1, col1 = np.divmod(bottom_right.astype(np.int64), self.columns)
        return CellBox(row0, col0, row1, col1)

    def zcodes(self, cells: CellIds) -> ZCodes:
        return zcodes(cells, self.columns)


@inner
def column_of(x: float, frame: Floats) -> int:
    column = int((x - frame[0]) * frame[4] / (frame[2] - frame[0]))  # this order keeps whole borders whole
    return min(column, int(frame[4]) - 1)


@inner
def row_of(y: float, frame: Floats) -> int:
    row = int((frame[3] - y) * frame[5] / (frame[3] - frame[1]))
    return min(row, int(frame[5]) - 1)


@kernel
def locate(x: Floats, y: Floats, frame: Floats) -> CellIds:
    columns = int(frame[4])
    cells = np.empty(len(x), np.int32)
    for i in range(len(x)):
        cells[i] = row_of(y[i], frame) * columns + column_of(x[i], frame)
    return cells


@kernel
def spread_bits(v: int) -> int:
    """abcd -> 0a0b0c0d, for 16 bits."""
    v = (v | (v << 8)) & 0x00FF00FF
    v = (v | (v << 4)) & 0x0F0F0F0F
    v = (v | (v << 2)) & 0x33333333
    return (v | (v << 1)) & 0x55555555


@kernel
def zcode(row: int, column: int) -> int:
    return (spread_bits(row) << 1) | spread_bits(column)


@kernel
def zcodes(cells: CellIds, columns: int) -> ZCodes:
    codes = np.empty(len(cells), np.uint32)
    for i in range(len(cells)):
        codes[i] = zcode(cells[i] // columns, cells[i] % columns)
    return codes
