"""A coarse grid of 64 × 64 blocks, dealt to executors by load: PS2Stream's grid partitioning (§VI-B).

The paper partitions the set of cells and does not describe how. Here they follow the Z-order curve and are cut into
runs (`deal.py`): dealt one by one they would be as balanced, but subscriptions would be copied at every border.
"""

import numpy as np

from geoswarm.control.layout.blocks import BLOCKS
from geoswarm.control.layout.deal import deal_boxes
from geoswarm.control.layout.load_model import COSTS, Costs
from geoswarm.control.layout.places import expect
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.core.space.grid import Grid, zcode
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import Box


def grid_cells(grid: Grid, executors: int, sample: TextSample, *, costs: Costs = COSTS) -> Plan:
    """A plan of epoch 0. A map with fewer than 64 cells on a side has one block for each cell."""
    expect(grid, executors, sample)
    rows, columns = (np.unique(np.arange(BLOCKS + 1) * length // BLOCKS) for length in (grid.rows, grid.columns))
    blocks = sorted((zcode(r, c), r, c) for r in range(len(rows) - 1) for c in range(len(columns) - 1))
    boxes = [Box(int(rows[r]), int(columns[c]), int(rows[r + 1]) - 1, int(columns[c + 1]) - 1) for _, r, c in blocks]
    return deal_boxes(executors, sample, boxes, costs)
