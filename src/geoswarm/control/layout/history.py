"""The first plan from a sample of points and rectangles: one partition per executor, all of almost equal cost.

It is drawn once, offline; the strategies of `control/balance/` follow the stream. SWARM §6 names it "static grid based
on history" and states only that the cost model divides 400 k points and 200 k queries so that executors cost almost the
same. Cutting the costliest repeatedly cannot do that: half of a partition costs an eighth, since N, Q and R all halve.
So for k executors the map is cut into parts for k/2 and for the rest, with the cube roots of their costs in the same
ratio:

        22
      11  11         each cut is the best of all rows and columns, by the exact counts of the sample
     5  6 5  6
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.core.space.partition import Axis, Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import Box, TrioStat
from geoswarm.errors import InputError, PlanError


class _Counts(NamedTuple):
    """The points and queries of the sample in one part of the map."""

    box: Box
    rows: Ints
    columns: Ints
    queries: CellBox

    def within(self, box: Box) -> "_Counts":
        inside = (self.rows >= box.row0) & (self.rows <= box.row1)
        inside &= (self.columns >= box.col0) & (self.columns <= box.col1)
        meets = (self.queries.row0 <= box.row1) & (self.queries.row1 >= box.row0)
        meets &= (self.queries.col0 <= box.col1) & (self.queries.col1 >= box.col0)
        queries = CellBox(*(side[meets] for side in self.queries))
        return _Counts(box, self.rows[inside], self.columns[inside], queries)

    def stat(self) -> TrioStat:
        stat = TrioStat.empty(self.box)
        stat.add_points(self.rows, self.columns)
        stat.add_queries(self.queries)
        stat.close_round()
        return stat


def history(grid: Grid, executors: int, points: Floats, rects: Floats) -> Plan:
    """A plan of epoch 0 from points (n, 2), x and y, and rects (n, 4), xmin, ymin, xmax, ymax, all in the bounds."""
    if executors < 1:
        raise PlanError(f"{executors} executors cannot own {grid.cells} cells: use at least 1")
    if points.ndim != 2 or points.shape[1] != 2 or rects.ndim != 2 or rects.shape[1] != 4:
        raise InputError(f"a sample has points {points.shape} and rects {rects.shape}: use (n, 2) and (n, 4)")
    rows, columns = np.divmod(grid.locate(points[:, 0], points[:, 1]).astype(np.int64), grid.columns)
    whole = Box(0, 0, grid.rows - 1, grid.columns - 1)
    parts = _divide(_Counts(whole, rows, columns, grid.cover(*rects.T)), min(executors, grid.cells))
    partitions = tuple(Partition(i, *box, executor=i) for i, box in enumerate(parts))
    return Plan(epoch=0, grid=grid, executors=executors, partitions=partitions, next_partition_id=len(partitions))


def _divide(counts: _Counts, shares: int) -> list[Box]:
    if shares == 1:
        return [counts.box]
    # With hardly more cells than executors, only an uneven division may have room for all.
    cuts = _cuts(counts, shares, {shares // 2, shares - shares // 2}) or _cuts(counts, shares, range(1, shares))
    _, _, axis, after, first_shares = min(cuts)
    box = counts.box
    if axis == "row":
        first, second = box._replace(row1=after), box._replace(row0=after + 1)
    else:
        first, second = box._replace(col1=after), box._replace(col0=after + 1)
    return _divide(counts.within(first), first_shares) + _divide(counts.within(second), shares - first_shares)


def _cuts(counts: _Counts, shares: int, befores: Iterable[int]) -> list[tuple[float, float, Axis, int, int]]:
    """The best cut for each axis and number of shares before it: the cube root of the cost of a share in the worse
    half; then, for ties, how far the cut is from an even one. Cuts with too few cells on a side are left out."""
    box, stat = counts.box, counts.stat()
    height, width = box.row1 - box.row0 + 1, box.col1 - box.col0 + 1
    found: list[tuple[float, float, Axis, int, int]] = []
    axes: tuple[tuple[Axis, int, int, int], ...] = (
        ("row", box.row0, height, width),
        ("column", box.col0, width, height),
    )
    for axis, start, length, across in axes:
        places = np.arange(1, length)
        before, behind = (np.cbrt(half.cost) for half in stat.halves(axis))
        for shares_before in befores:
            shares_behind = shares - shares_before
            worst = np.maximum(before / shares_before, behind / shares_behind)
            uneven = np.abs(places / length - shares_before / shares) + (length < across)
            enough = (places * across >= shares_before) & ((length - places) * across >= shares_behind)
            if enough.any():
                at = int(np.lexsort((uneven, np.where(enough, worst, np.inf)))[0])
                found.append((float(worst[at]), float(uneven[at]), axis, start + at, shares_before))
    return found
