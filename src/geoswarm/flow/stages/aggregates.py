"""What tasks do for subscriptions with an aggregate: count while they match, and read what was counted."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from geoswarm.flow.aggregates.count import EventCounter
from geoswarm.flow.aggregates.counted import COUNTED
from geoswarm.flow.stages.task import BatchTask, Body

READ_ROWS_MAX = 262_144
"""Counted rows that go on at once."""


def event_counter(task: BatchTask) -> EventCounter | None:
    """The counter of a task; None where no subscription counts."""
    return EventCounter(task.state.aggregates, task.watermark_us) if task.counts_events else None


def read_counted(task: BatchTask, names: Sequence[str]) -> tuple[Body, pa.Schema]:
    """The rows of the files with these names; the numbers of files are the input."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in (file for batch in batches for file in batch.column(0).to_pylist()):
            if file < len(names):  # a batch in which nothing was counted has a number all the same
                yield from task.state.counted(names[file]).to_batches(max_chunksize=READ_ROWS_MAX)

    return run, COUNTED
