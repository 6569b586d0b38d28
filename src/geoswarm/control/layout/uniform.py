"""The first plan when nothing is known about the stream: equal shares of the map.

It uses no sample; other files of this folder do. SWARM §4.1.1: the partition with the largest area is
cut in half across its longer side, both halves under new ids, until each executor has one partition or only
single cells are left. Sides and areas are counted in cells.

The paper does not settle ties. Here the oldest of the largest partitions is cut first, a square is cut into
left and right, and the first half gets one more of an odd number of rows or columns.
"""

import heapq
from dataclasses import replace

from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Axis, Partition
from geoswarm.core.space.plan import Plan
from geoswarm.errors import PlanError


def uniform(grid: Grid, executors: int) -> Plan:
    """A plan of epoch 0. With more executors than cells, some own nothing."""
    if executors < 1:
        raise PlanError(f"{executors} executors cannot own {grid.cells} cells: use at least 1")
    whole = Partition(0, 0, 0, grid.rows - 1, grid.columns - 1, executor=0)
    largest_first = [(-whole.cells, whole.id, whole)]  # ids differ, so partitions are never compared
    next_id = 1
    while len(largest_first) < min(executors, grid.cells):
        _, _, old = heapq.heappop(largest_first)
        axis: Axis = "row" if old.row1 - old.row0 > old.col1 - old.col0 else "column"
        lo, hi = (old.row0, old.row1) if axis == "row" else (old.col0, old.col1)
        for half in old.halves(axis, (lo + hi) // 2, (next_id, next_id + 1)):
            heapq.heappush(largest_first, (-half.cells, half.id, half))
        next_id += 2
    by_id = sorted((p for _, _, p in largest_first), key=lambda p: p.id)
    owned = tuple(replace(p, executor=i, previous_executor=None) for i, p in enumerate(by_id))
    return Plan(epoch=0, grid=grid, executors=executors, partitions=owned, next_partition_id=next_id)
