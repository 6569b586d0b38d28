"""guard, route and pack on Spark: the stage before the exchange."""

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, StructField, StructType

from geoswarm.flow.batches import GATHERED_BYTES_MAX, gather
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import pack
from geoswarm.flow.guard import guard_events
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.route import executors_of, route
from geoswarm.flow.route_terms import route_terms
from geoswarm.spark.schemas import past_guard
from geoswarm.spark.tasks import BatchTask
from geoswarm.state import dead_files

PACKED_DDL = "executor int, partition int, payload binary"
EVENT_BITS = 40
"""Of an event's number within its task."""
Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def packed(events: DataFrame, task: BatchTask) -> DataFrame:
    """Events to their executors as parcels, one row each."""

    def parcels(good: pa.RecordBatch, number: int, counted: LoadReport) -> pa.RecordBatch:
        plan = task.plan()
        if not plan.siblings:
            return pack(route(good, plan))
        first_event = (number << EVENT_BITS) + counted.events_in
        sent = route_terms(good, plan, task.subscriptions(), first_event, every=task.follows)
        counted.copies += sent.copies
        counted.dropped += sent.dropped
        return pack(sent.parcels)

    return events.mapInArrow(_stage(task, parcels), PACKED_DDL).repartitionById(task.plan().executors, "executor")


def rows(events: DataFrame, task: BatchTask) -> DataFrame:
    """The same, one row per event: what a shuffle does by itself. Kept to measure `packed` against."""

    def tag(good: pa.RecordBatch, number: int, counted: LoadReport) -> pa.RecordBatch:
        return good.append_column("executor", pa.array(executors_of(good, task.plan())))

    schema = StructType([*past_guard(events.schema), StructField("executor", IntegerType())])
    tagged = events.mapInArrow(_stage(task, tag), schema)
    return tagged.repartitionById(task.plan().executors, "executor")


def _stage(task: BatchTask, forward: Callable[[pa.RecordBatch, int, LoadReport], pa.RecordBatch]) -> Stage:
    """`forward` gets the events that may go on, the number of its task, and what that counted so far."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = TaskContext.get().partitionId()  # type: ignore[union-attr]
        counted = LoadReport()
        copies_max = max(map(len, task.plan().siblings.values()), default=1)
        for chunk, batch in enumerate(gather(batches, task.tuning.route_rows_max, GATHERED_BYTES_MAX // copies_max)):
            began_s = time.thread_time()
            dead = DeadLetters("event", task.batch_id)
            good = guard_events(batch, task.grid, dead)
            if good.schema != task.events:  # a setting of Spark's may ask for larger types than the parcels have
                good = good.cast(task.events)
            out = forward(good, number, counted)
            if len(dead):
                dead_files.write(task.storage, task.dead_folder, f"{number:05d}-{chunk:04d}", dead.table())
            counted.events_in += len(batch)
            counted.dead += len(dead)
            counted.route_cpu_us += int((time.thread_time() - began_s) * 1e6)
            yield out
        task.report("route", number, counted)

    return run
