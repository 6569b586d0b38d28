"""The merger on Spark: where terms are divided, the rows of one event meet and go out as one.

Only such plans have this stage; else an event visits one executor and is whole. PS2Stream §III-B.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from geoswarm.flow.exchange import unpack
from geoswarm.flow.merge import apart, as_pairs, joined, match_schema
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.route_terms import COPIES, EVENT, numbered
from geoswarm.spark.tasks import BatchTask


def merged(rows: DataFrame, matches: StructType, task: BatchTask) -> DataFrame:
    sent = match_schema(numbered(task.events), "arrays")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted, halves = LoadReport(), []
        for parcel in (parcel for batch in batches for parcel in unpack(batch, sent)):
            counted.in_transit -= len(parcel.events)
            alone = pa.compute.equal(parcel.events.column(COPIES.name), 1)
            yield from _shaped(parcel.events.filter(alone), task)
            halves.append(parcel.events.filter(pa.compute.invert(alone)))
        if sum(map(len, halves)):
            whole = joined(halves)
            counted.repeated = sum(map(len, halves)) - len(whole)
            yield from _shaped(whole, task)
        task.report("merge", TaskContext.get().partitionId(), counted)  # type: ignore[union-attr]

    return rows.mapInArrow(run, matches)


def _shaped(rows: pa.RecordBatch, task: BatchTask) -> Iterator[pa.RecordBatch]:
    rows = rows.drop_columns([EVENT.name, COPIES.name])
    if not len(rows):
        return
    if task.tuning.matches == "arrays":
        yield rows
    else:
        yield from as_pairs(apart(rows))
