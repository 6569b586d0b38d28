"""The statistics of partitions after a split, a merge or a new plan. A move changes nothing.

Points are not kept, and queries are stored elsewhere (`store/`), so a redrawn statistic is as exact as in this table:

                           split, along the cut   split, along the other axis      merge, both axes
    N, N'                  exact                  the whole's shape, exact total   exact
    Q, spanQ, all queries
      handed in            exact                  exact                            exact
      not handed in        exact                  the whole's shape, exact total   at most (*)
    R, preSpanQ', Q',
      spanQ'               exact                  the whole's shape, exact total   at most (*)

(*) A query that meets several parts counts once for each.

The next close of a round corrects the last line: it replaces R and preSpanQ' and adds the collectors. With queries
handed in, Q and spanQ are exact after that close, too, even if partitions were redrawn within the round. SWARM §4.2.3
proves the column "along the cut"; the papers do not treat the others.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, kernel
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.core.space.partition import Axis, Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import N_NEW, PRE_SPAN, Q_NEW, SPAN, SPAN_NEW, Box, N, Q, R, TrioStat
from geoswarm.errors import InputError


def split_stat(stat: TrioStat, axis: Axis, after: int, queries: CellBox | None = None) -> tuple[TrioStat, TrioStat]:
    """The statistics before and after the absolute row or column `after`. `queries`: all live ones that meet it."""
    stat.halves_at(axis, after)  # refuses a place where it cannot be cut
    if axis == "row":
        first, second = stat.box._replace(row1=after), stat.box._replace(row0=after + 1)
    else:
        first, second = stat.box._replace(col1=after), stat.box._replace(col0=after + 1)
    return cut_stat(stat, first, queries), cut_stat(stat, second, queries)


def cut_stat(stat: TrioStat, box: Box, queries: CellBox | None = None) -> TrioStat:
    """The statistics of a part of the partition."""
    whole, (by_row, by_column) = stat.box, (lines.copy() for lines in stat.axes)
    if (box.row0, box.row1) != (whole.row0, whole.row1):
        by_row, by_column = _cut_axis(by_row, by_column, box.row0 - whole.row0, box.row1 - whole.row0)
    if (box.col0, box.col1) != (whole.col0, whole.col1):
        by_column, by_row = _cut_axis(by_column, by_row, box.col0 - whole.col0, box.col1 - whole.col0)
    part = TrioStat(box, by_row, by_column)
    return part if queries is None else _recount_queries(part, queries)


def unite_stats(parts: Iterable[TrioStat], queries: CellBox | None = None) -> TrioStat:
    """The statistics of the rectangle that the parts form."""
    pieces = list(parts)
    if not pieces:
        raise InputError("a union of no statistics lies nowhere: name at least one")
    boxes = [p.box for p in pieces]
    row0, col0 = min(b.row0 for b in boxes), min(b.col0 for b in boxes)
    box = Box(row0, col0, max(b.row1 for b in boxes), max(b.col1 for b in boxes))
    filled = sum(b.cells for b in boxes)
    if filled != box.cells:
        raise InputError(
            f"{len(pieces)} statistics fill {filled} of the {box.cells} cells around them: unite what forms a rectangle"
        )
    whole = TrioStat.empty(box)
    for p in pieces:
        whole.by_row[:, p.box.row0 - row0 : p.box.row1 - row0 + 1] += _undo_cumsum(p.by_row)
        whole.by_column[:, p.box.col0 - col0 : p.box.col1 - col0 + 1] += _undo_cumsum(p.by_column)
    for lines in whole.axes:
        lines[N : R + 1] = np.cumsum(lines[N : R + 1], axis=1)
    return whole if queries is None else _recount_queries(whole, queries)


def redraw_stats(
    old: Mapping[int, TrioStat], plan: Plan, queries_of: Mapping[int, CellBox] | None = None
) -> dict[int, TrioStat]:
    """The statistics of each partition of a new plan, from those of the old, whatever changed.

    An id that stays keeps its statistics, the same object. `queries_of` has the live queries that meet each new id.
    """
    borders, held = np.array([s.box for s in old.values()]).reshape(-1, 4), list(old.values())
    drawn: dict[int, TrioStat] = {}
    for p in plan.partitions:
        box, known = Box.of(p), old.get(p.id)
        if known is not None and known.box == box:
            drawn[p.id] = known
            continue
        meets = (borders[:, :2] <= (box.row1, box.col1)).all(axis=1) & (borders[:, 2:] >= box[:2]).all(axis=1)
        pieces = [cut_stat(held[i], _common(held[i].box, box)) for i in np.flatnonzero(meets)]
        filled = sum(piece.box.cells for piece in pieces)
        if filled != box.cells:
            raise InputError(f"old statistics cover {filled} of {box.cells} cells of partition {p.id}: hand in all")
        drawn[p.id] = unite_stats(pieces, None if queries_of is None else queries_of[p.id])
    return drawn


def queries_near(rects: Floats, grid: Grid, partitions: Sequence[Partition]) -> CellBox:
    """The cells of all rectangles (n, 4) that meet one of the partitions, and of a few others."""
    width, height = (grid.xmax - grid.xmin) / grid.columns, (grid.ymax - grid.ymin) / grid.rows
    row0, col0, row1, col1 = np.array([Box.of(p) for p in partitions], np.float64).reshape(-1, 4).T
    # One cell more on each side is safe against rounding. Locating a million rectangles is what takes longest here.
    left, right = grid.xmin + (col0 - 1) * width, grid.xmin + (col1 + 2) * width
    bottom, top = grid.ymax - (row1 + 2) * height, grid.ymax - (row0 - 1) * height
    near = rects[_meets_any(rects, np.stack([left, bottom, right, top], axis=1))]
    return grid.cover(*np.ascontiguousarray(near.T))


def _common(a: Box, b: Box) -> Box:
    return Box(max(a.row0, b.row0), max(a.col0, b.col0), min(a.row1, b.row1), min(a.col1, b.col1))


def _cut_axis(lines: Floats, cross: Floats, first: int, last: int) -> tuple[Floats, Floats]:
    """Entries first..last of the axis that is cut, and the other axis scaled down to what is left."""
    kept = lines[:, first : last + 1].copy()
    if first:
        kept[N] -= lines[N, first - 1]
        kept[Q] += lines[SPAN, first] - lines[Q, first - 1]
        kept[R] += lines[PRE_SPAN, first] - lines[R, first - 1]
        kept[Q_NEW, 0] += kept[SPAN_NEW, 0]  # a query that reached this row now begins in it
        kept[[SPAN_NEW, SPAN, PRE_SPAN], 0] = 0.0
    before, left = _totals(lines), _totals(kept)
    share = np.divide(left, before, out=np.zeros_like(left), where=before != 0)
    scaled: Floats = cross * share[:, None]
    scaled[N : R + 1, -1] = left[N : R + 1]  # rounding must not make the axes disagree
    return kept, scaled


def _totals(lines: Floats) -> Floats:
    """The total of each line; a line that counts spans has the total of the line that counts begins."""
    totals = lines[:, -1].copy()
    totals[[N_NEW, Q_NEW]] = lines[[N_NEW, Q_NEW]].sum(axis=1)
    totals[[SPAN_NEW, SPAN, PRE_SPAN]] = totals[[Q_NEW, Q, R]]
    return totals


def _undo_cumsum(lines: Floats) -> Floats:
    own = lines.copy()
    own[N : R + 1, 1:] -= lines[N : R + 1, :-1]
    return own


def _recount_queries(stat: TrioStat, queries: CellBox) -> TrioStat:
    """Set Q and spanQ such that they are exact once the collectors are added to them."""
    for lines, (begins, spans) in zip(stat.axes, stat.count_queries(queries), strict=True):
        lines[Q] = np.cumsum(begins - lines[Q_NEW])
        lines[SPAN] = spans - lines[SPAN_NEW]
    return stat


@kernel
def _meets_any(rects: Floats, regions: Floats) -> Bools:
    met = np.zeros(len(rects), np.bool_)
    for i in range(len(rects)):
        for k in range(len(regions)):
            across = rects[i, 0] <= regions[k, 2] and rects[i, 2] >= regions[k, 0]
            if across and rects[i, 1] <= regions[k, 3] and rects[i, 3] >= regions[k, 1]:
                met[i] = True
                break
    return met
