"""How many events of a batch fall into each cell, counted before anything is routed.

Only a strategy that draws a plan for every batch needs it. The batch is read once more, and areas are parsed, since
most of them have no x and y.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.flow.dead_letters import DeadLetters, Triage
from geoswarm.flow.stages.task import Body
from geoswarm.flow.validate_areas import has_areas, validate_areas
from geoswarm.model import GEOMETRY

CELL_COUNTS = pa.schema([pa.field("cell", pa.int32()), pa.field("events", pa.int64())])
PLACED_BY = ("event_id", "x", "y", GEOMETRY.name)
"""The columns from which the place of an event is found."""


def count_cells(grid: Grid) -> Body:
    """Events outside the world, or without a place, are not counted."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = np.zeros(grid.cells, np.int64)
        for batch in batches:
            if has_areas(batch):
                batch = validate_areas(batch, grid, Triage(batch, DeadLetters("event", -1)))
            x, y = (_numbers(batch.column(side)) for side in ("x", "y"))
            inside = (x >= grid.xmin) & (x <= grid.xmax) & (y >= grid.ymin) & (y <= grid.ymax)  # false for NaN, too
            met, counts = np.unique(grid.locate(x[inside], y[inside]), return_counts=True)
            total[met] += counts
        cells = np.flatnonzero(total)
        yield pa.record_batch([pa.array(cells.astype(np.int32)), pa.array(total[cells])], schema=CELL_COUNTS)

    return run


def sum_cells(counted: pa.Table, grid: Grid) -> Ints:
    cells, counts = (counted.column(name).to_numpy() for name in CELL_COUNTS.names)
    return np.bincount(cells, counts, grid.cells).astype(np.int64)


def _numbers(column: pa.Array) -> Floats:
    numbers: Floats = column.to_numpy(zero_copy_only=False)  # a null becomes NaN
    return numbers
