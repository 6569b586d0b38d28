"""validate, route and pack on Spark: the stage before the exchange."""

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX, gather
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import pack
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.rivals.replicated_index import route_candidates
from geoswarm.flow.rivals.route_areas import route_areas
from geoswarm.flow.rivals.static_side import parcels_of
from geoswarm.flow.route import executors_of, route
from geoswarm.flow.route_terms import Sent, route_terms
from geoswarm.flow.sound import marked
from geoswarm.flow.validate import validate_events
from geoswarm.run.spark.schemas import validated_schema
from geoswarm.run.spark.tasks import BatchTask
from geoswarm.store import dead_files

PACKED_DDL = "executor int, partition int, payload binary"
EVENT_BITS = 40
"""Of an event's number within its task."""
Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def packed(events: DataFrame, task: BatchTask) -> DataFrame:
    """Events to their executors as parcels, one row each; where the join is at the stream, subscriptions as well."""

    def parcels(good: pa.RecordBatch, number: int, counted: LoadReport) -> Iterator[pa.RecordBatch]:
        if not task.splits_events:
            yield pack(route(good, task.plan()))
            return
        for sent in sent_several(good, (number << EVENT_BITS) + counted.events_in, task):
            counted.copies += sent.copies
            counted.dropped += sent.dropped
            yield pack(sent.parcels)

    rows = events.mapInArrow(_stage(task, parcels), PACKED_DDL)
    if task.is_at_stream:
        rows = rows.unionAll(static_side(events.sparkSession, task))
    return rows.repartitionById(task.plan().executors, "executor")


def sent_several(events: pa.RecordBatch, first_event: int, task: BatchTask) -> Iterator[Sent]:
    """Where an event may be in several parcels; they are numbered from `first_event` on."""
    plan, tuning = task.plan(), task.tuning
    if task.sends_candidates:
        limits = {"rows_max": tuning.match_rows_max, "pairs_max": tuning.match_pairs_max}
        index, now_us = task.replicated(), task.manifest.now_us
        return route_candidates(events, plan, index, now_us, first_event, every=task.follows, **limits)
    if plan.siblings:
        return iter([route_terms(events, plan, task.subscriptions(), first_event, every=task.follows)])
    return route_areas(events, plan, first_event)


def rows(events: DataFrame, task: BatchTask) -> DataFrame:
    """The same, one row per event: what a shuffle does by itself. Kept to measure `packed` against."""

    def tag(good: pa.RecordBatch, number: int, counted: LoadReport) -> Iterator[pa.RecordBatch]:
        yield good.append_column("executor", pa.array(executors_of(good, task.plan())))

    schema = StructType([*validated_schema(events.schema), StructField("executor", IntegerType())])
    tagged = events.mapInArrow(_stage(task, tag), schema)
    return tagged.repartitionById(task.plan().executors, "executor")


def _stage(task: BatchTask, forward: Callable[[pa.RecordBatch, int, LoadReport], Iterator[pa.RecordBatch]]) -> Stage:
    """`forward` gets the events that may go on, the number of its task, and what that counted so far."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = TaskContext.get().partitionId()  # type: ignore[union-attr]
        counted, asked = LoadReport(), marked(task.events) if task.packs else task.events
        copies_max = max(map(len, task.plan().siblings.values()), default=1)
        for chunk, batch in enumerate(gather(batches, task.tuning.route_rows_max, GATHERED_BYTES_MAX // copies_max)):
            began_s = time.thread_time()
            dead = DeadLetters("event", task.batch_id)
            good = validate_events(batch, task.grid, dead, marks=task.packs)
            if good.schema != asked:  # a setting of Spark's may ask for larger types than the parcels have
                good = good.cast(asked)
            if len(dead):
                dead_files.write(task.storage, task.dead_folder, f"{number:05d}-{chunk:04d}", dead.table())
            for out in forward(good, number, counted):
                counted.route_cpu_us += int((time.thread_time() - began_s) * 1e6)
                yield out
                began_s = time.thread_time()
            counted.events_in += len(batch)
            counted.dead += len(dead)
            counted.route_cpu_us += int((time.thread_time() - began_s) * 1e6)
        task.report("route", number, counted)

    return run


def static_side(spark: SparkSession, task: BatchTask) -> DataFrame:
    """The subscriptions of every partition, to its executor: which partitions have events is not known before the batch
    has run."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = TaskContext.get().partitionId()  # type: ignore[union-attr]
        counted, plan, shares = LoadReport(), task.plan(), task.shares()
        for slot in (slot for batch in batches for slot in batch.column(0).to_pylist()):
            began_s = time.thread_time()
            own = [share.of(slot, segment) for segment, share in shares]
            for parcel in parcels_of(own, plan, slot, task.manifest.now_us):
                out = pack(iter([parcel]))
                counted.route_cpu_us += int((time.thread_time() - began_s) * 1e6)
                yield out
                began_s = time.thread_time()
        task.report("static", number, counted)

    slots = len(task.plan().partitions)
    tasks = min(slots, spark.sparkContext.defaultParallelism)
    return spark.range(0, slots, 1, tasks).mapInArrow(run, PACKED_DDL)
