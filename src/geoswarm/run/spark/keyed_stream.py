"""Keyed operators on any Spark stream, without subscriptions: counts, joins, or what a user writes.

counts = KeyedStream(spark, Count(key="word", window=5), checkpoint="state")
run = counts.start(rows=words, sink=Memory())
"""

import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from geoswarm.config import KeyTuning
from geoswarm.errors import SettingsError
from geoswarm.flow.keyed.operator import Operator
from geoswarm.run.keyed_stream import BaseKeyedStream
from geoswarm.run.offsets import OffsetLog
from geoswarm.run.sinks import SinkLike
from geoswarm.run.spark.batches import set_arrow_limits
from geoswarm.run.spark.query import SparkRun, launch
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.schemas import arrow_schema, ts_unit_of
from geoswarm.run.spark.session import check_encrypted, warn_of_slow_sockets
from geoswarm.run.spark.slots import task_slots
from geoswarm.store.key_source import KeySource


class KeyedStream(BaseKeyedStream):
    def __init__(
        self,
        spark: SparkSession,
        operator: Operator,
        tuning: KeyTuning | None = None,
        *,
        checkpoint: str,
        key: KeySource | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without a `key`, the environment's is used, if any; with a key, Spark's session must be encrypted."""
        if key or KeySource.from_environment():
            check_encrypted(spark)
        warn_of_slow_sockets(spark)
        self._spark = spark
        super().__init__(operator, tuning, checkpoint=checkpoint, key=key, clock=clock)

    def _cluster_executors(self) -> int:
        return task_slots(self._spark)

    def start(self, *, rows: DataFrame, sink: SinkLike, every_s: float = 0.0, available_now: bool = False) -> SparkRun:
        """Feed `rows`, a streaming DataFrame, to the operator until stopped; with `available_now`, until what is there
        now is done. `every_s` is the least time between two batches."""
        if not rows.isStreaming:
            raise SettingsError("rows is no stream: read it with spark.readStream")
        if ts_unit_of(rows) is not None:
            raise SettingsError("a keyed stream takes times as timestamps: leave ts_unit out, and convert ts in Spark")
        target = self._prepare_stream(arrow_schema(rows), sink)
        where = self._storage.uri("spark")
        offsets = OffsetLog(where)

        def run_batch(frame: DataFrame, batch_id: int) -> None:
            set_arrow_limits(frame)
            self._run_batch(SparkRows(frame), batch_id, offsets.digest(batch_id), target)

        run = launch(rows, run_batch, where, end=lambda _: target.end(), every_s=every_s, available_now=available_now)
        self._run = run
        return run
