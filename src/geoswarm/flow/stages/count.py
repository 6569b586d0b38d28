"""How many events of a batch fall into each cell, counted before anything is routed; and a sample of a batch.

Only a strategy that draws a plan for every batch, or a first plan from a batch, needs it. The batch is read once more,
and areas are parsed, since most of them have no x and y.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import some_rows, xy
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.flow.dead_letters import DeadLetters, Triage
from geoswarm.flow.stages.task import Body
from geoswarm.flow.validate_areas import has_areas, validate_areas
from geoswarm.model import GEOMETRY, TEXT

CELL_COUNTS = pa.schema([pa.field("cell", pa.int32()), pa.field("events", pa.int64())])
PLACED_BY = ("event_id", "x", "y", GEOMETRY.name)
"""The columns from which the place of an event is found."""
SAMPLED_EVENTS = pa.schema([("x", pa.float64()), ("y", pa.float64()), TEXT])
BATCH_SAMPLED, SAMPLED_MAX = 2_000, 50_000
"""Events that a sample has of each Arrow batch, and in all."""


def count_cells(grid: Grid) -> Body:
    """Events outside the world, or without a place, are not counted."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = np.zeros(grid.cells, np.int64)
        for batch in batches:
            placed = _placed(batch, grid)
            met, counts = np.unique(grid.locate(*xy(placed)), return_counts=True)
            total[met] += counts
        cells = np.flatnonzero(total)
        yield pa.record_batch([pa.array(cells.astype(np.int32)), pa.array(total[cells])], schema=CELL_COUNTS)

    return run


def sum_cells(counted: pa.Table, grid: Grid) -> Ints:
    cells, counts = (counted.column(name).to_numpy() for name in CELL_COUNTS.names)
    return np.bincount(cells, counts, grid.cells).astype(np.int64)


def sample_events(grid: Grid) -> Body:
    """Some events of each task, evenly spread, with their texts."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            placed = _placed(batch, grid)
            if TEXT.name not in placed.schema.names:
                placed = placed.append_column(TEXT, pa.nulls(len(placed), pa.string()))
            rows = some_rows(len(placed), BATCH_SAMPLED)
            yield placed.select(SAMPLED_EVENTS.names).take(pa.array(rows)).cast(SAMPLED_EVENTS)

    return run


def thin_out(sampled: pa.Table) -> pa.Table:
    """At most `SAMPLED_MAX` rows, evenly spread."""
    return sampled.take(pa.array(some_rows(len(sampled), SAMPLED_MAX)))


def _placed(batch: pa.RecordBatch, grid: Grid) -> pa.RecordBatch:
    """The events that have a place in the world."""
    if has_areas(batch):
        batch = validate_areas(batch, grid, Triage(batch, DeadLetters("event", -1)))
    x, y = (_numbers(batch.column(side)) for side in ("x", "y"))
    inside = (x >= grid.xmin) & (x <= grid.xmax) & (y >= grid.ymin) & (y <= grid.ymax)  # false for NaN, too
    return batch.filter(pa.array(inside))


def _numbers(column: pa.Array) -> Floats:
    numbers: Floats = column.to_numpy(zero_copy_only=False)  # a null becomes NaN
    return numbers
