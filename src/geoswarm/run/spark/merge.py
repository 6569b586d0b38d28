"""The merger on Spark: where an event may be in several parcels, its rows meet and go out as one.

Only such batches have this stage (`BatchTask.splits_events`); else an event visits one executor and is whole.
PS2Stream §III-B.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX
from geoswarm.flow.exchange import unpack
from geoswarm.flow.merge import apart, as_pairs, joined, match_schema
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.route_terms import COPIES, EVENT, numbered
from geoswarm.model import SUB_IDS
from geoswarm.run.spark.tasks import BatchTask


def merged(rows: DataFrame, matches: StructType, task: BatchTask) -> DataFrame:
    sent = match_schema(numbered(task.events), "arrays")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted, halves = LoadReport(), []
        for parcel in (parcel for batch in batches for parcel in unpack(batch, sent)):
            counted.in_transit -= len(parcel.events)
            alone = pc.equal(parcel.events.column(COPIES.name), 1)
            yield from _shaped(parcel.events.filter(alone), task)
            halves.append(parcel.events.filter(pc.invert(alone)))
        for some in _buckets(halves):
            whole = joined(some)
            counted.repeated += sum(map(_matched, some)) - _matched(whole)
            yield from _shaped(whole, task)
        task.report("merge", TaskContext.get().partitionId(), counted)  # type: ignore[union-attr]

    return rows.mapInArrow(run, matches)


def _buckets(halves: list[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """All rows of an event in one, and none too large to be put together."""
    count = 1 + sum(part.nbytes for part in halves) // GATHERED_BYTES_MAX
    numbers = [part.column(EVENT.name).to_numpy() for part in halves]
    for bucket in range(count):
        some = [
            part if count == 1 else part.filter(pa.array(n % count == bucket))
            for part, n in zip(halves, numbers, strict=True)
        ]
        if sum(map(len, some)):
            yield some


def _matched(rows: pa.RecordBatch) -> int:
    """Events that met something; where objects are followed there are others, too."""
    return int(np.count_nonzero(np.diff(rows.column(SUB_IDS.name).offsets.to_numpy())))


def _shaped(rows: pa.RecordBatch, task: BatchTask) -> Iterator[pa.RecordBatch]:
    rows = rows.drop_columns([EVENT.name, COPIES.name])
    if not len(rows):
        return
    if task.shape == "arrays":
        yield rows
    else:
        yield from as_pairs(apart(rows))
