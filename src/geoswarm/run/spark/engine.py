"""The engine on Spark.

    engine = Engine(spark, Contract(executors=8), checkpoint="state")
    engine.subscribe(1, (2.2, 48.8, 2.5, 48.9), user="ana")
    run = engine.start(events=events, sink=Memory())

Spark runs the loop: `foreachBatch` passes on each micro-batch in turn, and the same one again after a crash.
`run/engine.py` has all that does not depend on Spark.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from geoswarm.config import Contract, Tuning
from geoswarm.control.strategy import Sample, Strategy
from geoswarm.errors import MachineError, SettingsError, StreamError
from geoswarm.guard.rules import GuardRules
from geoswarm.run.engine import BaseEngine
from geoswarm.run.questions import Rectangle
from geoswarm.run.side_stages import Stage
from geoswarm.run.sinks import SinkLike
from geoswarm.run.spark.batches import Stream
from geoswarm.run.spark.driver_rows import Driver
from geoswarm.run.spark.past_frames import past_frame
from geoswarm.run.spark.query import SparkRun, launch
from geoswarm.run.spark.session import check_encrypted, warn_of_slow_sockets
from geoswarm.run.spark.slots import slots_max, task_slots
from geoswarm.run.undeclared import LeftOut
from geoswarm.store.key_source import KeySource

SPARK_MIN = (4, 1)


class Engine(BaseEngine):
    def __init__(
        self,
        spark: SparkSession,
        contract: Contract | None = None,
        tuning: Tuning | None = None,
        *,
        checkpoint: str,
        spark_checkpoint: str | None = None,
        strategy: str | Strategy | None = None,
        sample: Sample | None = None,
        key: KeySource | None = None,
        guard: GuardRules | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Spark's own offsets go into the checkpoint's folder spark/, or to `spark_checkpoint` where Spark has no
        connector for the checkpoint's address. With a `key`, or one in the environment, Spark's session must be
        encrypted, too (`docs/running.md`). The rest is as `BaseEngine` has it."""
        if tuple(int(part) for part in spark.version.split(".")[:2]) < SPARK_MIN:
            raise MachineError(
                f"Spark {spark.version} has no repartitionById: use Spark 4.3, which geoswarm is made for"
            )
        warn_of_slow_sockets(spark)
        self._spark, self._spark_checkpoint = spark, spark_checkpoint
        if key or KeySource.from_environment():
            check_encrypted(spark)
        super().__init__(
            contract,
            tuning,
            checkpoint=checkpoint,
            strategy=strategy,
            sample=sample,
            key=key,
            guard=guard,
            clock=clock,
        )

    def query_frame(
        self,
        rectangle: Rectangle | None = None,
        *,
        geometry: str | bytes | None = None,
        keywords: str | None = None,
        predicate: str | None = None,
        where: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        """The events that `query` finds, for answers that are too large for one process: tasks read and match them when
        the frame is used, in no order. As of the batch that is committed now; use it soon, since nothing holds the
        files (`docs/past.md`)."""
        return past_frame(
            self._spark,
            self._past,
            rectangle,
            geometry=geometry,
            keywords=keywords,
            predicate=predicate,
            where=where,
            since=since,
            until=until,
            columns=columns,
        )

    def _cluster_executors(self) -> int:
        return task_slots(self._spark)

    def _cluster_slots(self) -> int | None:
        return slots_max(self._spark)

    def start(
        self,
        *,
        events: DataFrame,
        operations: DataFrame | None = None,
        sink: SinkLike,
        stages: Sequence[Stage] = (),
        aggregates: SinkLike | None = None,
        every_s: float = 0.0,
        available_now: bool = False,
    ) -> SparkRun:
        """Match `events`, a streaming DataFrame, until stopped; with `available_now`, until what is there now is done.
        `stages` are keyed operators beside the matching, each with a sink of its own; `aggregates` is the sink for the
        answers of subscriptions that have an aggregate. `every_s` is the least time between two batches."""
        if self.is_running:
            raise StreamError("this engine is running already: stop it first, or use another checkpoint")
        for name, frame in (("events", events), ("operations", operations)):
            if frame is not None and not frame.isStreaming:
                raise SettingsError(f"{name} is no stream: read it with spark.readStream, or geoswarm.sources")
        where = self._spark_checkpoint or self._checkpoint.storage.uri("spark")
        source, stream = Stream.of(events, operations, where, self.contract.subscription_ids)
        source = source._replace(driver=Driver(self.tuning), has_operations=operations is not None, left_out=LeftOut())
        pipeline = self._prepare_stream(source.columns, sink, stages, aggregates, every_s)

        def run_batch(frame: DataFrame, batch_id: int) -> None:
            with self._lock, source.batch(frame, batch_id) as batch:
                pipeline.run(batch)

        run = launch(stream, run_batch, where, end=pipeline.end, every_s=every_s, available_now=available_now)
        self._run = run
        return run
