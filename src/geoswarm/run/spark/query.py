"""A running stream on Spark: start it, wait for its end, stop it, and report the error that ended it."""

import time
from collections.abc import Callable
from typing import Any, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from geoswarm.errors import GeoswarmError, StreamError

STOP_S_MAX = 20.0
"""Seconds that `stop` waits for the current batch."""
CANCEL_S_MAX = 120
"""Seconds that it waits for a batch that it has cancelled: jobs end at once, but code in Python is not interrupted."""
STOP_TIMEOUT = "spark.sql.streaming.stopTimeout"
"""Spark's name for the limit; its own default is none."""


def launch(
    stream: DataFrame,
    run_batch: Callable[[DataFrame, int], None],
    checkpoint: str,
    *,
    end: Callable[[bool], None],
    every_s: float,
    available_now: bool,
) -> "SparkRun":
    """Call `run_batch` with each micro-batch in turn, and with the same one after a crash; `end` when the stream has
    ended, for who waits for it or stops it; it is told whether all went well."""
    run = SparkRun(end)

    def keep_error(batch: DataFrame, batch_id: int) -> None:
        try:
            run_batch(batch, batch_id)
        except GeoswarmError as error:
            run.error = error  # Spark would keep only its text
            raise

    writer = stream.writeStream.foreachBatch(keep_error).option("checkpointLocation", checkpoint)
    every = {"availableNow": True} if available_now else {"processingTime": f"{every_s} seconds"}
    run.query = writer.trigger(**every).start()
    return run


class SparkRun:
    """A `run.stream.Run`."""

    query: StreamingQuery
    error: GeoswarmError | None = None
    stopping = False

    def __init__(self, end: Callable[[bool], None]) -> None:
        self._end = end

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; True if it has ended. Raises the error that ended it, if any."""
        try:
            return self._raising(
                # Spark accepts fractions of a second, though its type is int.
                lambda: self.query.awaitTermination(cast(int | None, timeout_s))
            )
        finally:
            if not self.is_active:
                self._end(self.stopping or not self._has_failed)

    def drain(self) -> None:
        """Wait until everything that was available at the call is processed."""
        self._raising(self.query.processAllAvailable)

    def stop(self) -> None:
        """Let the current batch finish, unless it takes long, then stop. A batch that is cut off runs again at the next
        start, so only its work is lost; but Spark prints long errors about it."""
        had_failed = self._has_failed
        self.stopping = True
        before, gives_up_s = self._batches(), time.monotonic() + STOP_S_MAX
        while self.is_active and time.monotonic() < gives_up_s:
            now: Any = self.query.status
            if self._batches() != before or not (now["isTriggerActive"] or now["isDataAvailable"]):
                break
            time.sleep(0.005)
        try:
            self.query.stop()
        except Py4JJavaError as why:
            raise StreamError(
                f"the current batch goes on though it was cancelled ({str(why.java_exception.toString())[:200]}): its "
                "sink or its source waits for something; end this process, and the batch runs again at the next start"
            ) from why
        self._end(not had_failed)

    def _batches(self) -> int:
        progress: Any = self.query.lastProgress
        return int(progress["batchId"]) if progress else -1

    @property
    def is_active(self) -> bool:
        return bool(self.query.isActive)

    @property
    def _has_failed(self) -> bool:
        """Whether an error has ended the stream; a batch that `stop` cuts off may end with one, too."""
        return not self.is_active and self.query.exception() is not None

    def _raising(self, wait: Callable[[], bool | None]) -> bool:
        try:
            return wait() is not False
        except StreamingQueryException as why:
            if self.stopping:
                return True
            if self.error is not None:
                raise self.error from why
            raise StreamError(f"the stream ended: {why}") from why
