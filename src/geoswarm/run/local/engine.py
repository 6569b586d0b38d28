"""The engine in one process, without Spark and without Java.

    engine = LocalEngine(Contract(executors=4), checkpoint="state")
    engine.subscribe(1, (2.2, 48.8, 2.5, 48.9), user="ana")
    engine.start(events=from_tables(events), sink=(matches := Memory()), available_now=True).wait()

It has the same stages, checkpoint, guarantees and strategies as on Spark; an executor is a task, and tasks run one
after the other. A checkpoint of one engine opens with the other, and the stream goes on where it was.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from geoswarm.config import SubIdKind
from geoswarm.errors import SchemaError, StreamError
from geoswarm.flow.conform import cast_columns, conform_events, without_malformed
from geoswarm.flow.validate import check_operation_ids
from geoswarm.model import SUB_ID
from geoswarm.run.columns import check_declared_ids
from geoswarm.run.engine import BaseEngine
from geoswarm.run.kafka_sending import check_options
from geoswarm.run.local.loop import LocalRun
from geoswarm.run.local.sources import ReadTask, Source, TableSource
from geoswarm.run.offsets import OffsetLog
from geoswarm.run.pipeline import Batch, Pipeline
from geoswarm.run.process_rows import LocalRows
from geoswarm.run.side_stages import Stage
from geoswarm.run.sinks import Kafka, SinkLike
from geoswarm.run.stream_log import StreamLog

Tables = Any  # a pyarrow Table, or a sequence of them, a batch each: pyarrow has no types
SourceLike = Source | Tables


class LocalEngine(BaseEngine):
    def _cluster_executors(self) -> int:
        return usable_cores()

    def start(
        self,
        *,
        events: SourceLike,
        operations: SourceLike | None = None,
        sink: SinkLike,
        stages: Sequence[Stage] = (),
        aggregates: SinkLike | None = None,
        every_s: float = 0.0,
        available_now: bool = False,
    ) -> LocalRun:
        """Match `events` until stopped; with `available_now`, until what is there now is done. Events and operations
        are sources (`local/sources.py`), or Arrow tables, a batch each. `stages` are keyed operators beside the
        matching, each with a sink of its own; `aggregates` is the sink for the answers of subscriptions that have an
        aggregate. `every_s` is the least time between two batches."""
        if self.is_running:
            raise StreamError("this engine is running already: stop it first, or use another checkpoint")
        for target in (sink, aggregates, *(stage.sink for stage in stages)):
            if isinstance(target, Kafka):
                check_options(target.options)
        sources = [as_source(events), *([as_source(operations)] if operations is not None else [])]
        for source in sources[1:]:
            _check_ids(source, self.contract.subscription_ids)
        columns = conform_events(sources[0].schema)
        pipeline = self._prepare_stream(without_malformed(columns), sink, stages, aggregates, every_s)
        where = self._checkpoint.storage.address("spark")  # where the engine on Spark keeps its log
        log, offsets = StreamLog(where), OffsetLog(where)

        def run_batch(number: int, rows: list[list[ReadTask]]) -> None:
            with self._lock:
                self._run_pipeline(pipeline, number, rows, columns, offsets)

        run = LocalRun(sources, log, run_batch, end=pipeline.end, every_s=every_s, available_now=available_now)
        self._run = run
        return run

    def _run_pipeline(
        self, pipeline: Pipeline, number: int, rows: list[list[ReadTask]], columns: pa.Schema, offsets: OffsetLog
    ) -> None:
        tasks: list[ReadTask] = [partial(_cast, task, columns) for task in rows[0]] or [lambda: iter(())]
        events = LocalRows.of_tasks(columns, tasks)
        operations = partial(_tables, rows[1] if len(rows) > 1 else [])
        pipeline.run(Batch(number, events, without_malformed(columns), operations, offsets.digest(number)))


def usable_cores() -> int:
    """The cores that this process may use. Tasks run one after the other all the same: it is the number of executors
    that a small cluster of this size would have."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS


def as_source(given: SourceLike) -> Source:
    if isinstance(given, Source):
        return given
    tables: list[Any] = [given] if isinstance(given, pa.Table) else list(given)
    return TableSource(tables)


def _check_ids(operations: Source, ids: SubIdKind) -> None:
    if operations.declared_ids is not None:
        check_declared_ids(operations.declared_ids, ids)
    elif SUB_ID.name in operations.schema.names:
        check_operation_ids(operations.schema.field(SUB_ID.name).type, ids)


def _cast(task: ReadTask, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in task():
        try:
            yield cast_columns(batch, columns)
        except pa.ArrowInvalid as why:
            remedy = "cast the column, ids beyond 63 bits to strings"
            raise SchemaError(f"an event has a value that its column cannot have ({why}): {remedy}") from None


def _tables(tasks: Sequence[ReadTask]) -> Iterator[pa.Table]:
    for task in tasks:
        batches = [batch for batch in task() if len(batch)]
        if batches:
            yield pa.Table.from_batches(batches)
