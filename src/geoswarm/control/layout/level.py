"""The first plan of many fixed partitions: equally many points in each, and several neighbours for each executor.

`weighted.py` cuts the map; here its parts are dealt. Where points are towns on an island, equal shares of the map would
give the sea to half of the executors, and the skew coefficient alone would not describe the load (Distributor §4.6:
3/16 with 3 of 16 executors "would represent completely balanced partitions").
"""

from dataclasses import replace

import numpy as np

from geoswarm.control.layout.weighted import weighted_plan
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import PlanError


def level(grid: Grid, executors: int, points: Floats, *, partitions_per_executor: int = 16) -> Plan:
    """A plan of epoch 0 from points (n, 2), x and y, within the bounds."""
    if executors < 1 or partitions_per_executor < 1:
        raise PlanError(f"{executors} executors of {partitions_per_executor} partitions: use at least 1 of 1")
    cells = grid.locate(points[:, 0], points[:, 1])
    counts = np.bincount(cells, minlength=grid.cells).astype(np.float64)
    drawn = weighted_plan(grid, executors * partitions_per_executor, counts)
    share = -(-len(drawn.partitions) // executors)  # there may be fewer cells than partitions
    owned = tuple(replace(p, executor=i // share) for i, p in enumerate(drawn.partitions))
    return replace(drawn, executors=executors, partitions=owned)
