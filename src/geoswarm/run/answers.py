"""The answers of a batch, from what its tasks have counted to the sink for aggregates.

    tasks that match ── parcels of counted events ──► state of windows (`aggregates.py`) ──► rows ──► sink

Rows are given after the matches and before the batch is committed, and the state is committed after the sink has them:
a batch that is run again sees the same state and counts the same events.
"""

from collections.abc import Callable
from typing import NamedTuple

from geoswarm.config import Tuning
from geoswarm.errors import SettingsError
from geoswarm.flow.keyed.work import KeyedTask
from geoswarm.flow.observe import TaskName
from geoswarm.flow.stages.show_ids import show_ids
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

    def begin(self, batch: int, state: StoredBatch, name_task: Callable[[], TaskName]) -> KeyedTask | None:
        """By what the tasks of a batch in which some subscription counts route what they count; None: nobody asks."""
        return None if self.sink is None else self._run.begin(batch, state.manifest.now_us, state, name_task)

    def give(self, events: Rows, task: BatchTask, state: StoredBatch, newest_us: int | None) -> Given:
        """`events` are those of the batch, and `newest_us` the time of the newest."""
        if task.counting is not None and self.sink is not None:
            names = state.counted_names()
            rows = self._run.give(events, task, names)
            if task.contract.subscription_ids == "text":
                rows = rows.map(*show_ids(task, rows.schema))
            self.sink.write(rows.add_constant(VERSION, state.manifest.version), task.batch_id)
        entry = self._run.finish(task.batch_id, newest_us)
        return Given() if entry is None else Given(entry.given, entry.state_rows)
