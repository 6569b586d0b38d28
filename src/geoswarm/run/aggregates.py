"""The state of aggregates in a running stream: what tasks have counted goes in, the windows that are over come out.

    begin ──► matches ── count (flow/aggregates/count.py) ──► give ──► rows for the sink of aggregates
      ▲                                                         │
      └───────── watermark ◄── finish: state and watermark are committed together

A batch that is run again sees the state and the watermark that the batch before it left.
"""

from collections.abc import Callable, Sequence
from functools import partial

from geoswarm.config import KeyTuning, Tuning
from geoswarm.flow.aggregates.counted import COUNTED
from geoswarm.flow.aggregates.operator import Aggregates
from geoswarm.flow.keyed.work import KeyedTask
from geoswarm.flow.observe import TaskName
from geoswarm.flow.stages.aggregates import read_counted
from geoswarm.flow.stages.task import BatchState, BatchTask
from geoswarm.run.keyed import KeyedRun
from geoswarm.run.rows import Rows
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal.entries import KeyedBatchEntry

PLANNER = "mixed-compact"
"""There may be a million keys: executors name the heaviest only."""


class AggregateRun:
    """`begin` and `give` in each batch in which some subscription counts, then `finish`, in every batch."""

    def __init__(self, checkpoint: Checkpoint, tuning: Tuning) -> None:
        keys = KeyTuning(executors=checkpoint.plan.executors, round_s=tuning.round_s, planner=PLANNER)
        self._run = KeyedRun(checkpoint.storage, checkpoint.journal, Aggregates(), keys, checkpoint.fence.check)
        self._lateness_us = tuning.aggregates.lateness_us
        self._is_under_way = False

    def watermark_us(self, batch: int) -> int | None:
        """That of a batch: what ends there at the latest is over in it. None before any event."""
        return self._run.before(batch).watermark_us

    def begin(self, batch: int, now_us: int, state: BatchState, name_task: Callable[[], TaskName]) -> KeyedTask:
        """By what the tasks that match route what they count."""
        before = self._run.before(batch)
        operator = Aggregates(state, before.closed_us, before.watermark_us)
        self._is_under_way = True
        return self._run.begin(COUNTED, batch, now_us, name_task, operator)

    def give(self, events: Rows, task: BatchTask, names: Sequence[str]) -> Rows:
        """The answers of all windows that are over, with the columns ANSWERS; what was counted is in the files with
        these names. `events` are those of the batch."""
        return self._run.serve(events, partial(read_counted, task.state, names))

    def finish(self, batch: int, newest_us: int | None) -> KeyedBatchEntry | None:
        """Commit what the batch has left, once the sink has its rows. `newest_us` is the time of its newest event;
        None: it had none. Without `apply` no subscription counts, so nothing that is held is of use. Returns
        the entry for the journal, if there is one."""
        watermark_us = self.watermark_us(batch)
        if newest_us is not None:
            late_us = newest_us - self._lateness_us
            watermark_us = late_us if watermark_us is None else max(watermark_us, late_us)
        if self._is_under_way:
            self._is_under_way = False
            return self._run.finish(watermark_us)
        self._run.forget(batch, watermark_us)
        return None

    def scale(self, executors: int) -> None:
        """From the next batch on so many executors share the keys."""
        self._run.scale(executors)
