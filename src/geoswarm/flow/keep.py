"""Keep events for queries about the past: in Z-order, with the boxes of their blocks, as the arrays of a file.

The task that routes the events keeps them. It sees each event once, whatever the plan: where terms are divided an event
is matched in several places, or in none. `store/kept/` has the files, `flow/recall.py` finds events in them again.
SWARM §5.2.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import xy
from geoswarm.core.arrays.jit import Array, Bytes
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.blocks import blocks_of
from geoswarm.core.index.cells import CODE_MAX, codes_of, frame_of
from geoswarm.core.space.grid import Grid
from geoswarm.flow.match.areas import areas_of
from geoswarm.flow.sound import SOUND, drop_mark
from geoswarm.model import EVENT, GEOMETRY

ROWS, BOXES, TIMES = "rows", "boxes", "times_us"
"""The arrays of a file: an Arrow file, and the blocks of its rows."""
FRAME_BYTES = 1 << 20
"""Room in a file beside its rows: the columns' names and types, twice, and where the rows begin."""
BATCH = pa.field("kept_batch", pa.int64(), nullable=False)
"""The batch of each row, in files that were merged from those of several batches."""


class KeptPart(NamedTuple):
    """A file of kept events, and where and when these lie."""

    name: str
    rows: int
    bytes: int
    box: tuple[float, float, float, float]
    times_us: tuple[int, int]
    """The first and the last time of an event."""
    batch: int | None = None
    """The batch that all its rows are of, if it stands as it was written among files of other batches."""

    @classmethod
    def of(cls, written: Sequence[Any]) -> "KeptPart":
        """From JSON, where it is a list; those of earlier versions have no batch."""
        name, rows, size, box, times_us, *batch = written
        return cls(name, rows, size, tuple(box), tuple(times_us), *batch)


def choose_columns(events: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """The columns that are kept: those of every event, and the chosen ones that there are; None: all."""
    if columns is None:
        return events
    chosen = (*EVENT.names, *columns, SOUND.name) if GEOMETRY.name in columns else (*EVENT.names, *columns)
    return events.select([name for name in events.schema.names if name in chosen])


def sort_by_place(events: pa.RecordBatch, grid: Grid) -> pa.RecordBatch:
    """Events in Z-order."""
    return events.take(pa.array(sort_order(codes_of(*xy(events), frame_of(grid)), CODE_MAX)))


def arrays_of_rows(events: pa.RecordBatch, grid: Grid) -> dict[str, Array]:
    """The arrays of a file, from events in Z-order, which may still have the mark of sound areas; at least one."""
    low, high = xy(events), xy(events)
    areas = areas_of(events, grid)
    if areas is not None:
        low, high = (low[0].copy(), low[1].copy()), (high[0].copy(), high[1].copy())
        for axis in range(2):  # x and y of an area lie in it, unless the event had others
            low[axis][areas.rows] = np.minimum(low[axis][areas.rows], areas.boxes[:, axis])
            high[axis][areas.rows] = np.maximum(high[axis][areas.rows], areas.boxes[:, axis + 2])
    blocks = blocks_of(low, high, events.column("ts").cast(pa.int64()).to_numpy())
    return {ROWS: _as_file(drop_mark(events)), BOXES: blocks.boxes, TIMES: blocks.times_us}


def _as_file(rows: pa.RecordBatch) -> Bytes:
    """An Arrow file, in memory that is claimed once: a buffer that grows is copied again and again."""
    room = pa.ipc.get_record_batch_size(rows) + FRAME_BYTES
    buffer = pa.allocate_buffer(room, resizable=True)
    with pa.FixedSizeBufferWriter(buffer) as sink:
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_batch(rows)
        size = sink.tell()
    return np.frombuffer(buffer, np.uint8)[:size]


def part_of(name: str, size: int, rows: int, arrays: dict[str, Array]) -> KeptPart:
    boxes, times_us = arrays[BOXES], arrays[TIMES]
    low, high = boxes[:, :2].min(axis=0).tolist(), boxes[:, 2:].max(axis=0).tolist()
    span_us = int(times_us[:, 0].min()), int(times_us[:, 1].max())
    return KeptPart(name, rows, size, (*low, *high), span_us)
