"""The loop of micro-batches in one process, in a thread of its own; on Spark, its query does this.

    while there is something new:   begin (offsets are on disk) -> run the batch -> commit

A batch that was begun and not committed is run again, with the same offsets, at the next start.
"""

import threading
import time
from collections.abc import Callable, Sequence

from geoswarm.errors import StreamError
from geoswarm.run.local.sources import ReadTask, Source
from geoswarm.run.stream_log import Offset, StreamLog

POLL_S = 0.004
"""Seconds between two looks for new rows; a look at a folder of a thousand files takes a tenth of it."""
STOP_S_MAX = 20.0
"""Seconds that `stop` waits for the current batch."""

RunBatch = Callable[[int, list[list[ReadTask]]], None]
"""Runs a batch, given its number and the rows of each source, by task."""


class LocalRun:
    """A `run.stream.Run`."""

    def __init__(
        self,
        sources: Sequence[Source],
        log: StreamLog,
        run_batch: RunBatch,
        *,
        end: Callable[[bool], None],
        every_s: float,
        available_now: bool,
    ) -> None:
        """`end` is called after the last batch, also if it failed; it is told whether all went well."""
        self._end = end
        self._sources, self._log, self._run_batch = sources, log, run_batch
        self._every_s, self._available_now = every_s, available_now
        self._changed = threading.Condition()
        self._stopping = False
        self._idle_looks = 0
        self._error: BaseException | None = None
        for number, source in enumerate(sources):
            source.open(log, number, available_now=available_now)
        self._thread = threading.Thread(target=self._loop, name="geoswarm-local", daemon=True)
        self._thread.start()

    @property
    def is_active(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        self._thread.join(timeout_s)
        if self._error is not None and not self._stopping:
            raise self._error
        return not self._thread.is_alive()

    def drain(self) -> None:
        with self._changed:
            # The current look may have begun before the call; the next one has not.
            wanted = self._idle_looks + 2
            self._changed.wait_for(lambda: self._idle_looks >= wanted or not self._thread.is_alive())
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(STOP_S_MAX)

    def _loop(self) -> None:
        for step in (self._run_batches, lambda: self._end(self._error is None)):
            try:
                step()
            except BaseException as error:
                self._error = self._error or error
        with self._changed:
            self._changed.notify_all()

    def _run_batches(self) -> None:
        number = self._log.last_committed() + 1
        self._log.forget_old()
        starts = self._offsets(number - 1) or [None] * len(self._sources)
        begun = self._offsets(number)  # by a run that ended before it committed
        while not self._stopping:
            began_s = time.monotonic()
            ends, begun = begun, None
            if ends is None:
                ends = [source.latest(start) for source, start in zip(self._sources, starts, strict=True)]
                if ends == starts:
                    if self._available_now:
                        return
                    self._rest(POLL_S, is_idle=True)
                    continue
                self._log.begin(number, ends, int(time.time() * 1e3))
            self._run_batch(number, self._rows(starts, ends))
            self._log.commit(number)
            number, starts = number + 1, ends
            self._rest(began_s + self._every_s - time.monotonic())

    def _rows(self, starts: list[Offset | None], ends: list[Offset | None]) -> list[list[ReadTask]]:
        return [
            source.read(start, end) if end is not None and end != start else []
            for source, start, end in zip(self._sources, starts, ends, strict=True)
        ]

    def _offsets(self, number: int) -> list[Offset | None] | None:
        held = self._log.offsets(number)
        if held is not None and len(held) != len(self._sources):
            raise StreamError(
                f"batch {number} of this checkpoint read from {len(held)} sources, and now there are "
                f"{len(self._sources)}: give the same sources, or start a new checkpoint"
            )
        return held

    def _rest(self, seconds: float, *, is_idle: bool = False) -> None:
        with self._changed:
            if is_idle:
                self._idle_looks += 1
                self._changed.notify_all()
            if seconds > 0:
                self._changed.wait_for(lambda: self._stopping, seconds)
