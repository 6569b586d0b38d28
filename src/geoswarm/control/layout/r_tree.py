"""The leaves of an R-tree, packed by Sort-Tile-Recursive, dealt to executors: PS2Stream's R-tree partitioning (§VI-B).

STR sorts the events by x into slabs with equally many events, and each slab by y into tiles. A plan covers the map
without overlaps, so a leaf here is the whole tile, aligned to cells, and not the bounding rectangle of its events.
Leaves are dealt along the slabs, up one and down the next (`deal.py`).
"""

import math
from itertools import pairwise

import numpy as np

from geoswarm.control.layout.deal import deal_boxes
from geoswarm.control.layout.load_model import COSTS, Costs
from geoswarm.control.layout.places import expect
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.layout.unit import Unit
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import Box

LEAVES_PER_EXECUTOR = 16


def r_tree(grid: Grid, executors: int, sample: TextSample, *, costs: Costs = COSTS) -> Plan:
    """A plan of epoch 0. There are fewer leaves where many events share a cell."""
    expect(grid, executors, sample)
    events = Unit.whole(sample).events
    rows, columns = sample.rows[events], sample.columns[events]
    per_slab = math.ceil(math.sqrt(executors * LEAVES_PER_EXECUTOR))
    slabs = _borders(columns, grid.columns, per_slab)
    boxes: list[Box] = []
    for number, (col0, col1) in enumerate(pairwise(slabs)):
        tiles = _borders(rows[(columns >= col0) & (columns < col1)], grid.rows, per_slab)
        leaves = [Box(a, col0, b - 1, col1 - 1) for a, b in pairwise(tiles)]
        boxes += leaves[::-1] if number % 2 else leaves
    return deal_boxes(executors, sample, boxes, costs)


def _borders(places: Ints, length: int, parts: int) -> list[int]:
    """The begins of parts with equally many events, and the end; without events, parts of equal length."""
    if not len(places):
        places = np.arange(length)
    inner = np.quantile(places, np.arange(1, parts) / parts, method="nearest")
    borders: list[int] = np.unique(np.concatenate([[0], inner, [length]])).astype(int).tolist()
    return borders
