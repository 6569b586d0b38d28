"""The answers of a batch, from what its tasks have counted to the sink for aggregates.

    tasks that match ── files of counted events ──► state of windows (`aggregates.py`) ──► rows ──► sink

Rows are given after the matches and before the batch is committed, and the state is committed after the sink has them:
a batch that is run again sees the same state and counts the same events.
"""

from collections.abc import Sequence
from typing import NamedTuple

from geoswarm.config import Tuning
from geoswarm.errors import SettingsError
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.stages.aggregates import read_counted
from geoswarm.flow.stages.task import BatchTask
from geoswarm.model import VERSION
from geoswarm.run.aggregates import AggregateRun
from geoswarm.run.rows import Rows
from geoswarm.run.sinks import Sink, SinkLike, as_sink
from geoswarm.store.batch_state import StoredBatch
from geoswarm.store.checkpoint import Checkpoint


class Given(NamedTuple):
    """What the journal says of a batch."""

    answers: int = 0
    """Rows that were given."""
    held: int = 0
    """Rows that are held for windows that are open."""


def check_aggregates(sink: SinkLike | None, checkpoint: Checkpoint) -> Sink | None:
    """The sink for aggregates. A stream without one is refused while some subscription counts."""
    if sink is None and checkpoint.counts_events():
        raise SettingsError(
            "some subscriptions have an aggregate, and this stream has nowhere to put the rows: give start "
            "aggregates=..., a sink for them, or the settings file a section [aggregates.sink]"
        )
    return None if sink is None else as_sink(sink)


class Answers:
    def __init__(self, checkpoint: Checkpoint, tuning: Tuning, sink: Sink | None) -> None:
        """Without a `sink`, no subscription of the stream has an aggregate."""
        self._run, self.sink = AggregateRun(checkpoint, tuning), sink

    def watermark_us(self, batch: int) -> int | None:
        return self._run.watermark_us(batch)

    def scale(self, executors: int) -> None:
        self._run.scale(executors)

    def give(self, events: Rows, task: BatchTask, state: StoredBatch, routed: Sequence[LoadReport]) -> Given:
        """`events` are those of the batch; `routed` are the reports of the tasks that have validated them."""
        if task.counts_events and self.sink is not None:
            names = state.counted_names()
            counted = events.numbers(max(1, len(names))).map(*read_counted(task, names))
            rows = self._run.apply(counted, task).add_constant(VERSION, state.manifest.version)
            self.sink.write(rows, task.batch_id)
        times_us = [report.newest_us for report in routed if report.newest_us is not None]
        entry = self._run.finish(task.batch_id, max(times_us, default=None))
        return Given() if entry is None else Given(entry.given, entry.state_rows)
