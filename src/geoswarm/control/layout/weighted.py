"""A plan from a weight per cell: one partition per executor, all of almost equal weight.

It needs no sample: the weights can be counts of cells, such as those of a batch before its exchange. For k executors
the map is cut into parts for k/2 and for the rest, at the row or column border that divides the weight best, as a
kd-tree does with medians. A cut cannot go through a cell, so one cell that weighs more than a share stays whole.
"""

import numpy as np

from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import Box
from geoswarm.errors import PlanError


def weighted_plan(grid: Grid, executors: int, weight_of_cell: Floats) -> Plan:
    """A plan of epoch 0. If all weights are 0, areas decide."""
    if executors < 1:
        raise PlanError(f"{executors} executors cannot own {grid.cells} cells: use at least 1")
    weights = weight_of_cell.reshape(grid.rows, grid.columns)
    whole = Box(0, 0, grid.rows - 1, grid.columns - 1)
    parts = _divide(whole, weights, min(executors, grid.cells))
    partitions = tuple(Partition(i, *box, executor=i) for i, box in enumerate(parts))
    return Plan(epoch=0, grid=grid, executors=executors, partitions=partitions, next_partition_id=len(partitions))


def _divide(box: Box, weights: Floats, shares: int) -> list[Box]:
    """Cuts a box into `shares` boxes. `weights` is a view of its cells, so cutting copies nothing."""
    if shares == 1:
        return [box]
    height, width = weights.shape
    worst: tuple[float, int] = (np.inf, 0)
    chosen, shares_before = (0, 0), 0
    for axis, length, across in ((0, height, width), (1, width, height)):
        places = np.arange(1, length)
        # half of the executors, unless one side has too few cells for its half
        counts = np.clip(shares // 2, shares - (length - places) * across, places * across).clip(1, shares - 1)
        if not len(places):
            continue
        before = np.cumsum(weights.sum(axis=1 - axis))
        total = before[-1]
        share = before[:-1] / total if total > 0 else places / length
        off = np.abs(share - counts / shares) + np.abs(counts - shares // 2)  # uneven halves come last
        at = int(np.argmin(off))
        badness = (float(off[at]), int(length < across))  # for ties, across the longer side
        if badness < worst:
            worst, chosen, shares_before = badness, (axis, at), int(counts[at])
    axis, at = chosen
    if axis == 0:
        first, second = box._replace(row1=box.row0 + at), box._replace(row0=box.row0 + at + 1)
        halves = weights[: at + 1], weights[at + 1 :]
    else:
        first, second = box._replace(col1=box.col0 + at), box._replace(col0=box.col0 + at + 1)
        halves = weights[:, : at + 1], weights[:, at + 1 :]
    return _divide(first, halves[0], shares_before) + _divide(second, halves[1], shares - shares_before)
