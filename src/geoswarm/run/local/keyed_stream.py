"""Keyed operators on any stream in one process, without subscriptions and without Java."""

from geoswarm.run.keyed_stream import BaseKeyedStream
from geoswarm.run.local.engine import SourceLike, as_source, usable_cores
from geoswarm.run.local.loop import LocalRun
from geoswarm.run.local.sources import ReadTask
from geoswarm.run.offsets import OffsetLog
from geoswarm.run.process_rows import LocalRows
from geoswarm.run.sinks import SinkLike
from geoswarm.run.stream_log import StreamLog


class LocalKeyedStream(BaseKeyedStream):
    def _cluster_executors(self) -> int:
        return usable_cores()

    def start(self, *, rows: SourceLike, sink: SinkLike, every_s: float = 0.0, available_now: bool = False) -> LocalRun:
        """Feed `rows` to the operator until stopped; with `available_now`, until what is there now is done."""
        source = as_source(rows)
        target = self._prepare_stream(source.schema, sink)
        where = self._storage.address("spark")
        log, offsets = StreamLog(where), OffsetLog(where)

        def run_batch(number: int, tasks: list[list[ReadTask]]) -> None:
            fed = LocalRows.of_tasks(source.schema, tasks[0] or [lambda: iter(())])
            self._run_batch(fed, number, offsets.digest(number), target)

        run = LocalRun(
            [source], log, run_batch, end=lambda _: target.end(), every_s=every_s, available_now=available_now
        )
        self._run = run
        return run
