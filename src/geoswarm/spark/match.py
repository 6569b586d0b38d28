"""unpack, match, observe and merge on Spark: the stage behind the exchange. One task is one executor."""

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from geoswarm.flow.batches import gather
from geoswarm.flow.exchange import unpack
from geoswarm.flow.match.match import Searchable, match
from geoswarm.flow.merge import as_arrays, as_pairs
from geoswarm.flow.observe import LoadReport, PartitionLoad, count_points
from geoswarm.flow.route import Parcel, route
from geoswarm.spark.tasks import BatchTask


def matched(exchanged: DataFrame, events: StructType, task: BatchTask) -> DataFrame:
    """The matches: the event's own columns and `sub_ids`, or `sub_id` when pairs are asked for."""
    if task.tuning.matches == "arrays":
        subscriptions = StructField("sub_ids", ArrayType(LongType()), nullable=False)
    else:
        subscriptions = StructField("sub_id", LongType(), nullable=False)
    schema = StructType([*events.fields, subscriptions])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted = LoadReport()
        segments = task.subscriptions()  # off the clock: whichever partition comes first would pay for opening them
        for parcel in _parcels(batches, task):
            yield from _serve(parcel, segments, task, counted)
        task.report("match", TaskContext.get().partitionId(), counted)  # type: ignore[union-attr]

    return exchanged.mapInArrow(run, schema)


def _parcels(batches: Iterator[pa.RecordBatch], task: BatchTask) -> Iterator[Parcel]:
    if task.tuning.exchange == "packed":
        for batch in batches:
            yield from unpack(batch, task.events)
    else:
        for batch in gather(batches, task.tuning.route_rows_max):
            yield from route(batch.drop_columns(["executor"]), task.plan())


def _serve(
    parcel: Parcel, segments: list[Searchable], task: BatchTask, counted: LoadReport
) -> Iterator[pa.RecordBatch]:
    shape = as_arrays if task.tuning.matches == "arrays" else as_pairs
    began_s = time.thread_time()
    if task.counts_points:
        counted.add_stat(parcel.partition, count_points(parcel.events, task.plan(), parcel.partition))
    for met in match(
        parcel.events,
        segments,
        task.grid,
        task.manifest.now_us,
        rows_max=task.tuning.match_rows_max,
        pairs_max=task.tuning.match_pairs_max,
    ):
        out = list(shape(met))
        matched_events = int(np.count_nonzero(np.diff(met.offsets)))
        cpu_us = int((time.thread_time() - began_s) * 1e6)
        load = PartitionLoad(parcel.executor, len(met.events), matched_events, len(met.subs), cpu_us)
        counted.add(parcel.partition, load)
        yield from out
        began_s = time.thread_time()
