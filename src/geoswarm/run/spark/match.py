"""unpack, match and observe on Spark: the stage behind the exchange. One task is one executor.

Which matcher a parcel gets is chosen in `matchers.py`.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from geoswarm.flow.exchange import pack
from geoswarm.flow.match.match import Met
from geoswarm.flow.merge import as_arrays, as_pairs
from geoswarm.flow.observe import SAID_MAX, SAID_OF_TASK_MAX, Load, LoadReport, count_points, some_said
from geoswarm.flow.rivals.route_areas import at_home
from geoswarm.flow.route import Parcel
from geoswarm.flow.route_terms import COPIES, EVENT
from geoswarm.model import TEXT
from geoswarm.run.spark.matchers import matched_parcels
from geoswarm.run.spark.merge import merged
from geoswarm.run.spark.route import PACKED_DDL, Stage
from geoswarm.run.spark.tasks import BatchTask

Shape = Callable[[Met, LoadReport], Iterator[pa.RecordBatch]]


def matched(exchanged: DataFrame, events: StructType, task: BatchTask) -> DataFrame:
    """The matches: the event's own columns and `sub_ids`, or `sub_id` when pairs are asked for. Where objects are
    followed, also the events that met nobody."""
    if task.shape == "arrays":
        subscriptions = StructField("sub_ids", ArrayType(LongType()), nullable=False)
    else:
        subscriptions = StructField("sub_id", LongType(), nullable=False)
    matches = StructType([*events.fields, subscriptions])
    if task.splits_events:  # one may come back in several rows
        to_merger = partial(_to_merger, task.plan().executors, task.follows)
        rows = exchanged.mapInArrow(_stage(task, to_merger), PACKED_DDL)
        return merged(rows.repartitionById(task.plan().executors, "executor"), matches, task)
    shape = partial(as_arrays, every=task.follows) if task.shape == "arrays" else as_pairs
    return exchanged.mapInArrow(_stage(task, lambda met, _: shape(met)), matches)


def _stage(task: BatchTask, shape: Shape) -> Stage:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted = LoadReport()
        asks_for_words = any(segment.text is not None for segment in task.subscriptions())
        served = matched_parcels(batches, task)  # off the clock: whichever partition comes first would pay for it
        executor = TaskContext.get().partitionId()  # type: ignore[union-attr]
        for parcel, runs in served:
            if asks_for_words and TEXT.name in parcel.events.schema.names:
                counted.said += some_said(parcel.events, min(SAID_MAX, SAID_OF_TASK_MAX - len(counted.said)))
            yield from _serve(parcel, runs, executor, task, shape, counted)
        task.report("match", executor, counted)

    return run


def _serve(
    parcel: Parcel, runs: Iterator[Met], executor: int, task: BatchTask, shape: Shape, counted: LoadReport
) -> Iterator[pa.RecordBatch]:
    began_s = time.thread_time()
    if task.counts_points:
        plan = task.plan()
        events = (
            parcel.events if plan.siblings or not task.splits_events else at_home(parcel.events, plan, parcel.partition)
        )
        counted.add_stat(parcel.partition, count_points(events, plan, parcel.partition))
    for met in runs:
        out = list(shape(met, counted))
        matched_events = int(np.count_nonzero(np.diff(met.offsets)))
        cpu_us = int((time.thread_time() - began_s) * 1e6)
        counted.add(parcel.partition, executor, Load(len(met.events), matched_events, len(met.subs), cpu_us))
        yield from out
        began_s = time.thread_time()


def _to_merger(executors: int, every: bool, met: Met, counted: LoadReport) -> Iterator[pa.RecordBatch]:
    """What events met here, to where the rest of their rows go; an event that went nowhere else stays."""
    here = TaskContext.get().partitionId()  # type: ignore[union-attr]
    for rows in as_arrays(met, every):
        counted.in_transit += len(rows)
        numbers, copies = (rows.column(field.name).to_numpy() for field in (EVENT, COPIES))
        target = np.where(copies == 1, here, numbers % executors)
        halves = (Parcel(0, int(t), rows.filter(pa.array(target == t))) for t in np.unique(target))
        yield pack(halves)
