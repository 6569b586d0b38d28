"""The merger: where an event may be in several parcels, its rows are joined into one.

Only such batches have this stage (`BatchTask.splits_events`); otherwise an event goes to one executor.
PS2Stream §III-B.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX
from geoswarm.flow.aggregates.count import EventCounter
from geoswarm.flow.exchange import unpack_parcels
from geoswarm.flow.merge import as_arrays, as_pairs, join_rows, match_schema, split_arrays
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.route_terms import COPIES, EVENT_NUMBER, travel_schema
from geoswarm.flow.stages.aggregates import event_counter, send_counted
from geoswarm.flow.stages.task import BatchTask, Body
from geoswarm.model import SUB_IDS


def merge_parts(task: BatchTask) -> Body:
    sent = match_schema(travel_schema(task.events), "arrays")

    def run(executor: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted, halves, counter = LoadReport(), [], event_counter(task)
        for parcel in (parcel for batch in batches for parcel in unpack_parcels(batch, sent)):
            counted.in_transit -= len(parcel.events)
            alone = pc.equal(parcel.events.column(COPIES.name), 1)
            yield from _shape(parcel.events.filter(alone), task, counter)
            halves.append(parcel.events.filter(pc.invert(alone)))
        for some in _buckets(halves):
            whole = join_rows(some)
            counted.repeated += sum(map(_count_matched, some)) - _count_matched(whole)
            yield from _shape(whole, task, counter)
        if counter is not None:
            send_counted(task, "merge", executor, counter)
            counted.late = counter.late
        task.state.report("merge", executor, counted)

    return run


def _buckets(halves: list[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Groups of rows: all rows of an event are in one, and none is too large to be concatenated."""
    count = 1 + sum(part.nbytes for part in halves) // GATHERED_BYTES_MAX
    numbers = [part.column(EVENT_NUMBER.name).to_numpy() for part in halves]
    for bucket in range(count):
        some = [
            part if count == 1 else part.filter(pa.array(n % count == bucket))
            for part, n in zip(halves, numbers, strict=True)
        ]
        if sum(map(len, some)):
            yield some


def _count_matched(rows: pa.RecordBatch) -> int:
    """Events that met a subscription; where objects are followed there are others, too."""
    return int(np.count_nonzero(np.diff(rows.column(SUB_IDS.name).offsets.to_numpy())))


def _shape(rows: pa.RecordBatch, task: BatchTask, counter: EventCounter | None) -> Iterator[pa.RecordBatch]:
    rows = rows.drop_columns([EVENT_NUMBER.name, COPIES.name])
    if not len(rows):
        return
    if counter is not None:
        left = counter.take(split_arrays(rows))
        yield from as_arrays(left, every=task.follows) if task.shape == "arrays" else as_pairs(left)
    elif task.shape == "arrays":
        yield rows
    else:
        yield from as_pairs(split_arrays(rows))
