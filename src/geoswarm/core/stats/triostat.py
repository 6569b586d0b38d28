"""TrioStat: the cost of a partition, and of its halves for every possible cut, from a few numbers for each row.

It keeps no points and no queries; `control/balance/` decides by it. `redraw.py` computes it for changed partitions;
`aqwa.py` is the centralised rival. Thesis ch. 3; SWARM §3 (cost model), §4.2 (Algorithm 2).

Three *collectors* count what arrives during a round, five *statistics* are brought up to date when it closes:

    N'      points that fell into this row             N          points in this row and those before it, fading
    Q'      queries that begin in this row             Q          live queries that begin in this row or before it
    spanQ'  queries that reach it from the row before  R          points and queries of the last round, up to this row
                                                       spanQ      live queries that reach it from the row before
                                                       preSpanQ'  those of the last round that did

and the same for columns. A query that begins outside the partition begins in its first row or column. So the queries
that meet the rows behind `sp` are all but those that begin up to `sp`, plus those that reach across the border:
Q(last) - Q(sp) + spanQ(sp + 1).

Every number is a sum over points and queries, so the statistics of two tasks for a partition add up line by line: each
task starts `empty`, and only one of them has the older rounds.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel
from geoswarm.core.space.grid import CellBox
from geoswarm.core.space.partition import Axis, Partition
from geoswarm.errors import CorruptState, InputError

N_NEW, Q_NEW, SPAN_NEW, N, Q, R, SPAN, PRE_SPAN = range(8)
LINES = 8
FADE = 0.5
"""The share of older points that remains when a round closes (SWARM §4.2.2)."""
NUMBERS_PER_EXECUTOR = 2
"""Numbers that an executor reports to the coordinator each round: Num(C(m)) and R(m) (thesis §6.2)."""


class Box(NamedTuple):
    """A rectangle of cells, last row and column included."""

    row0: int
    col0: int
    row1: int
    col1: int

    @classmethod
    def of(cls, partition: Partition) -> "Box":
        return cls(partition.row0, partition.col0, partition.row1, partition.col1)

    @property
    def cells(self) -> int:
        return (self.row1 - self.row0 + 1) * (self.col1 - self.col0 + 1)


class Trio(NamedTuple):
    """N points, Q queries, R points and queries of the last round."""

    n: float
    q: float
    r: float

    @property
    def cost(self) -> float:
        """N·Q·R, the numerator of C(p); its denominator R(S) is the same for all partitions."""
        return self.n * self.q * self.r


class Trios(NamedTuple):
    """N, Q and R as arrays, one entry for each place of a cut."""

    n: Floats
    q: Floats
    r: Floats

    @property
    def cost(self) -> Floats:
        return self.n * self.q * self.r


@dataclass(frozen=True, eq=False)
class TrioStat:
    box: Box
    by_row: Floats
    """Eight lines, one entry per row: N', Q', spanQ', N, Q, R, spanQ, preSpanQ'. N may be a fraction."""
    by_column: Floats

    @classmethod
    def empty(cls, place: Partition | Box) -> "TrioStat":
        box = Box.of(place) if isinstance(place, Partition) else place
        rows, columns = box.row1 - box.row0 + 1, box.col1 - box.col0 + 1
        return cls(box, np.zeros((LINES, rows)), np.zeros((LINES, columns)))

    def add_points(self, rows: Ints, columns: Ints) -> None:
        """Absolute rows and columns of points, all within the partition. Two updates a point."""
        by_row = self._tally(rows, self.box.row0, self.box.row1)
        self.by_column[N_NEW] += self._tally(columns, self.box.col0, self.box.col1)
        self.by_row[N_NEW] += by_row  # last, so that a point outside changes nothing

    def add_queries(self, boxes: CellBox) -> None:
        """Queries that arrived, by the cells that they cover; those that miss the partition are ignored."""
        for lines, (begins, spans) in zip(self.axes, self.count_queries(boxes), strict=True):
            lines[Q_NEW] += begins
            lines[SPAN_NEW] += spans

    def remove_queries(self, boxes: CellBox, arrived_now: Bools | bool = False) -> None:
        """Queries that were cancelled or have expired.

        Where `arrived_now`, the query came since the last close and is removed from the collectors. Any other is
        removed from Q and spanQ at once. R and preSpanQ' keep it until the next close, since it may have arrived in
        the last round.
        """
        now = np.broadcast_to(np.asarray(arrived_now, np.bool_), np.shape(boxes.row0))
        fresh, older = (self.count_queries(CellBox(*(np.asarray(s)[which] for s in boxes))) for which in (now, ~now))
        for lines, (begins, spans) in zip(self.axes, fresh, strict=True):
            lines[Q_NEW] -= begins
            lines[SPAN_NEW] -= spans
        for lines, (begins, spans) in zip(self.axes, older, strict=True):
            lines[Q] -= np.cumsum(begins)
            lines[SPAN] -= spans

    def __add__(self, other: "TrioStat") -> "TrioStat":
        if self.box != other.box:
            raise InputError(f"statistics of {self.box} and {other.box} differ in place: use `redraw.unite_stats`")
        return TrioStat(self.box, self.by_row + other.by_row, self.by_column + other.by_column)

    def close_round(self) -> None:
        """Add the collectors to the statistics, and start them again at zero. Older points fade first."""
        _close(self.by_row, self.by_column)

    @property
    def trio(self) -> Trio:
        """N, Q and R of the whole partition, as of the last close."""
        return Trio(*self.by_row[N : R + 1, -1].tolist())

    @property
    def cost(self) -> float:
        return self.trio.cost

    def halves(self, axis: Axis) -> tuple[Trios, Trios]:
        """N, Q and R before and after each place of a cut; entry i is the cut after the i-th row or column."""
        s = self.lines(axis)
        n, q, r = s[N, :-1], s[Q, :-1], s[R, :-1]
        return Trios(n, q, r), Trios(s[N, -1] - n, s[Q, -1] - q + s[SPAN, 1:], s[R, -1] - r + s[PRE_SPAN, 1:])

    def halves_at(self, axis: Axis, after: int) -> tuple[Trio, Trio]:
        """The same for the one cut after the absolute row or column `after`, in O(1)."""
        s = self.lines(axis)
        at = after - (self.box.row0 if axis == "row" else self.box.col0)
        if not 0 <= at < s.shape[1] - 1:
            raise InputError(f"{self.box} has no cut behind {axis} {after}: choose one of its {axis}s but the last")
        n, q, r = float(s[N, at]), float(s[Q, at]), float(s[R, at])
        whole, span, pre_span = self.trio, float(s[SPAN, at + 1]), float(s[PRE_SPAN, at + 1])
        return Trio(n, q, r), Trio(whole.n - n, whole.q - q + span, whole.r - r + pre_span)

    @property
    def axes(self) -> tuple[Floats, Floats]:
        return self.by_row, self.by_column

    def lines(self, axis: Axis) -> Floats:
        return self.by_row if axis == "row" else self.by_column

    @property
    def numbers(self) -> int:
        """How many numbers are stored: eight for every row and column."""
        return self.by_row.size + self.by_column.size

    def count_queries(self, boxes: CellBox) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """For each axis: how many queries begin in each row or column, and how many reach it from the one before."""
        sides = CellBox(*(np.ascontiguousarray(side, np.int64) for side in boxes))
        begun = _count_begins(sides, *self.box)  # one pass over the queries, without temporary arrays
        return (begun[0], begun[1]), (begun[2], begun[3])

    def to_bytes(self) -> bytes:
        """Lines of zeros are left out: a task that saw only points sends one line per axis."""
        used = np.flatnonzero(self.by_row.any(axis=1) | self.by_column.any(axis=1))
        head = np.array([*self.box, np.left_shift(1, used).sum()], np.int64)
        return head.tobytes() + self.by_row[used].tobytes() + self.by_column[used].tobytes()

    @classmethod
    def from_bytes(cls, written: bytes) -> "TrioStat":
        if len(written) < 40 or len(written) % 8:
            raise CorruptState(f"a statistic of {len(written)} bytes is cut short: count its round again")
        *corners, mask = np.frombuffer(written, np.int64, 5).tolist()
        stat, body = cls.empty(Box(*corners)), np.frombuffer(written, np.float64, offset=40)
        used = [i for i in range(LINES) if mask >> i & 1]
        rows, columns = stat.by_row.shape[1], stat.by_column.shape[1]
        if len(body) != len(used) * (rows + columns):
            raise CorruptState(
                f"a statistic has {len(body)} of {len(used) * (rows + columns)} numbers: count its round again"
            )
        stat.by_row[used] = body[: len(used) * rows].reshape(-1, rows)
        stat.by_column[used] = body[len(used) * rows :].reshape(-1, columns)
        return stat

    def _tally(self, places: Ints, first: int, last: int) -> Ints:
        if len(places) and not (first <= places.min() and places.max() <= last):
            outside = np.count_nonzero((places < first) | (places > last))
            raise InputError(f"{outside} of {len(places)} points lie outside {self.box}: route them by the plan first")
        return np.bincount(places - first, minlength=last - first + 1)


@kernel
def _close(by_row: Floats, by_column: Floats) -> None:
    _close_axis(by_row)
    _close_axis(by_column)


@kernel
def _close_axis(lines: Floats) -> None:
    points = begins = 0.0
    for i in range(lines.shape[1]):
        points += lines[N_NEW, i]
        begins += lines[Q_NEW, i]
        lines[N, i] = lines[N, i] * FADE + points
        lines[Q, i] += begins
        lines[R, i] = points + begins
        lines[SPAN, i] += lines[SPAN_NEW, i]
        lines[PRE_SPAN, i] = lines[SPAN_NEW, i]
        lines[N_NEW, i] = lines[Q_NEW, i] = lines[SPAN_NEW, i] = 0.0


@kernel
def _count_begins(
    boxes: CellBox, top: int, left: int, bottom: int, right: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """For each row: ranges that begin in it, and that reach it from the one before; the same for columns."""
    row_begins, row_ends = np.zeros(bottom - top + 1), np.zeros(bottom - top + 1)
    col_begins, col_ends = np.zeros(right - left + 1), np.zeros(right - left + 1)
    for i in range(len(boxes.row0)):
        row0, row1 = max(boxes.row0[i], top) - top, min(boxes.row1[i], bottom) - top
        col0, col1 = max(boxes.col0[i], left) - left, min(boxes.col1[i], right) - left
        if row0 <= row1 and col0 <= col1:
            row_begins[row0] += 1.0
            row_ends[row1] += 1.0
            col_begins[col0] += 1.0
            col_ends[col1] += 1.0
    return row_begins, _spans(row_begins, row_ends), col_begins, _spans(col_begins, col_ends)


@kernel
def _spans(begins: Floats, ends: Floats) -> Floats:
    """How many ranges began before each place and did not end before it."""
    spans, open_here = np.zeros(len(begins)), 0.0
    for i in range(1, len(begins)):
        open_here += begins[i - 1] - ends[i - 1]
        spans[i] = open_here
    return spans
