"""Questions about the past whose answers are large: the files and blocks that a query touches, divided among tasks.

    past_frame(spark, Past("state"), (2.2, 48.8, 2.5, 48.9), keywords="flood").write.parquet("answer")

The meaning and the matcher are those of `run/past.py`, which chooses what is read, as of one committed batch. The
frame is made when it is used: if a file of the chosen ones has been merged into another by then, or forgotten, the job
ends with an error, since what is left would be only a part of the answer.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from geoswarm.core.arrays.jit import Bools
from geoswarm.errors import CorruptState, StateError
from geoswarm.flow.keep import KeptPart
from geoswarm.flow.recall import candidates, matched_events
from geoswarm.run.past import Past, Touched
from geoswarm.run.questions import Rectangle
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.slots import task_slots
from geoswarm.store.kept.reading import KeptReader

TASKS_PER_SLOT = 4
"""Tasks for each that runs at once: some blocks have more events of the region than others."""
TASK_BLOCKS_MIN = 256
"""Blocks of a task, 65,536 events: with fewer, starting it takes longer than its work."""

Piece = tuple[KeptPart, Bools]
"""A file, and which of its blocks are read."""


def past_frame(
    spark: SparkSession,
    past: Past,
    rectangle: Rectangle | None = None,
    *,
    geometry: str | bytes | None = None,
    keywords: str | None = None,
    predicate: str | None = None,
    where: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The events that `Past.query` finds, in no order."""
    touched = past.touch(
        rectangle,
        geometry=geometry,
        keywords=keywords,
        predicate=predicate,
        where=where,
        since=since,
        until=until,
        columns=columns,
    )
    tasks = divide(touched.pieces, TASKS_PER_SLOT * task_slots(spark))

    def read(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in tasks[number]:
            yield from _found(touched, piece)

    return SparkRows.read_by_tasks(spark, len(tasks), read, touched.given).frame


def divide(pieces: Sequence[Piece], tasks_max: int) -> list[list[Piece]]:
    """The pieces of each task, at least one: about as many blocks each, of one file or several."""
    total = sum(int(blocks.sum()) for _, blocks in pieces)
    most = max(TASK_BLOCKS_MIN, -(-total // tasks_max))
    tasks, room = list[list[Piece]]([[]]), most
    for part, blocks in pieces:
        left = np.flatnonzero(blocks)
        while len(left):
            if not room:
                tasks.append([])
                room = most
            mine = np.zeros(len(blocks), np.bool_)
            mine[left[:room]] = True
            tasks[-1].append((part, mine))
            room, left = room - min(room, len(left)), left[room:]
    return tasks


def _found(touched: Touched, piece: Piece) -> Iterator[pa.RecordBatch]:
    part, blocks = piece
    try:
        held = KeptReader(touched.storage).open(part)
    except CorruptState as why:
        raise StateError(
            f"the file {part.name} of kept events is not there any more ({why}): it was merged into another, or "
            "forgotten, since the frame was made, so the answer would have gaps: make the frame again and use it at "
            "once, or keep more"
        ) from why
    found = candidates(held, blocks, touched.query, touched.first_kept)
    events = matched_events([touched.columns.empty_table(), found], touched.query, touched.grid)
    if events is not None:
        yield from events.select(touched.given.names).to_batches()
