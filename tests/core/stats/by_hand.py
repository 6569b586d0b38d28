"""Small random worlds of points and rectangles on cells, and the obvious way to count them."""

import numpy as np
from hypothesis import strategies as st

from geoswarm.core.space.grid import CellBox
from geoswarm.core.space.partition import Axis
from geoswarm.core.stats.triostat import Box, Trio, TrioStat

Cell = tuple[int, int]
Rect = tuple[int, int, int, int]


def boxes_of(rects: list[Rect]) -> CellBox:
    return CellBox(*np.array(rects, np.int64).reshape(-1, 4).T)


def arrive(stat: TrioStat, points: list[Cell], rects: list[Rect]) -> None:
    rows, columns = np.array(points, np.int64).reshape(-1, 2).T
    stat.add_points(rows, columns)
    stat.add_queries(boxes_of(rects))


def stat_of(box: Box, points: list[Cell], rects: list[Rect]) -> TrioStat:
    stat = TrioStat.empty(box)
    arrive(stat, points, rects)
    stat.close_round()
    return stat


def by_hand(box: Box, points: list[Cell], live: list[Rect], arrived: list[Rect]) -> Trio:
    """The obvious count, all points new."""

    def count_meeting(rects: list[Rect]) -> int:
        return sum(r[0] <= box.row1 and r[2] >= box.row0 and r[1] <= box.col1 and r[3] >= box.col0 for r in rects)

    n = sum(box.row0 <= row <= box.row1 and box.col0 <= col <= box.col1 for row, col in points)
    return Trio(n, count_meeting(live), n + count_meeting(arrived))


def halves_of(box: Box, axis: Axis, after: int) -> tuple[Box, Box]:
    if axis == "row":
        return box._replace(row1=after), box._replace(row0=after + 1)
    return box._replace(col1=after), box._replace(col0=after + 1)


def cuts_of(box: Box) -> list[tuple[Axis, int]]:
    rows: list[tuple[Axis, int]] = [("row", i) for i in range(box.row0, box.row1)]
    return rows + [("column", i) for i in range(box.col0, box.col1)]


@st.composite
def rects(draw: st.DrawFn, side: int = 12) -> Rect:
    row0, row1 = sorted((draw(st.integers(0, side)), draw(st.integers(0, side))))
    col0, col1 = sorted((draw(st.integers(0, side)), draw(st.integers(0, side))))
    return row0, col0, row1, col1


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Box, list[Cell], list[Rect]]:
    """A partition within a map of 13 x 13 cells, points within it, and rectangles anywhere on the map."""
    box = Box(*draw(rects()))
    point = st.tuples(st.integers(box.row0, box.row1), st.integers(box.col0, box.col1))
    return box, draw(st.lists(point, max_size=30)), draw(st.lists(rects(), max_size=15))
