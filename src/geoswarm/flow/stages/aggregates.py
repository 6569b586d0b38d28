"""What tasks do for subscriptions with an aggregate: count while they match, and hand what was counted to the executors
that have the state of its keys.

    match ── `send_counted` ──► a file of parcels from each task ── `read_counted` ──► work on keys (`keyed.py`)

The two sides are tasks of different jobs, since the sink of matches runs the first and that of answers the second. So
nothing is exchanged between them: parcels are routed where events are counted, and are read where they are sent to.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from geoswarm.flow.aggregates.count import EventCounter
from geoswarm.flow.stages.keyed import route_keys
from geoswarm.flow.stages.task import BatchState, BatchTask


def event_counter(task: BatchTask) -> EventCounter | None:
    """The counter of a task; None where no subscription counts."""
    return EventCounter(task.state.aggregates, task.watermark_us) if task.counts_events else None


def send_counted(task: BatchTask, stage: str, number: int, counter: EventCounter) -> None:
    """Keep all that a task has counted, for those who have the keys."""
    if task.counting is not None:
        task.state.put_counted(stage, number, route_keys(task.counting)(number, counter.counted()))


def read_counted(state: BatchState, names: Sequence[str], number: int, tasks: int) -> Iterator[pa.RecordBatch]:
    """The parcels for the executors that one of so many tasks serves, from the files with these names."""
    for batch in (batch for name in names for batch in state.counted(name).to_batches()):
        executors = batch.column("executor").to_numpy()
        for place in np.flatnonzero(executors % tasks == number).tolist():
            yield batch.slice(place, 1)
