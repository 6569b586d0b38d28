"""Subscriptions that end after `max_events`: their alerts are counted, and those behind the last are left out.

    alerts ── kept ──┬── count by subscription (flow/keyed/max_events.py) ──► who ends, and with which alert
                     └── leave out what comes behind ──► sink ──► `finish`: who ended, then the counts

A batch that is run again sees the counts that the batch before it left, and ends the same subscriptions. The next
version cancels them (`store/subscriptions/reached.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from geoswarm.config import KeyTuning, Tuning
from geoswarm.core.subscriptions.attributes import MAX_EVENTS, NOTIFY
from geoswarm.core.subscriptions.ending import TELLS_ENDED
from geoswarm.errors import SettingsError
from geoswarm.flow.keyed.max_events import COUNTED_FROM, MaxEvents
from geoswarm.flow.keyed.operator import KEY
from geoswarm.flow.stages.max_events import alerts_to_count, leave_out
from geoswarm.flow.stages.task import BatchTask
from geoswarm.model import MAX_EVENTS_REACHED
from geoswarm.run.keyed import KeyedRun
from geoswarm.run.rows import Rows
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.manifest import for_batch
from geoswarm.store.subscriptions.ends import NOBODY_ENDED, end_rows, open_ends
from geoswarm.store.subscriptions.reached import Reached, forget_reached, write_reached

EVER_S = 1e9
"""Seconds of an interval of the state: thirty years, of which two are kept. A count belongs to a subscription, however
old, and goes when it has ended. So its executors never change: files of several plans are not merged in an interval."""


def check_alerts(tuning: Tuning, checkpoint: Checkpoint) -> None:
    """Refuse a stream without alerts while some subscription needs them, also for its last row."""
    if tuning.matches == "alerts":
        return
    for attribute in (MAX_EVENTS, NOTIFY):
        if checkpoint.view.asks_for(attribute, checkpoint.manifest.now_us):
            raise SettingsError(
                f"some subscriptions have {attribute.name}, and this stream gives {tuning.matches}: set [tuning] "
                'matches = "alerts", or replace them without it'
            )
    if _waits_to_end(checkpoint):
        raise SettingsError(
            f"some subscriptions have ended and are to be told so (notify), and this stream gives {tuning.matches}: "
            'set [tuning] matches = "alerts", at least for one batch'
        )


def _waits_to_end(checkpoint: Checkpoint) -> bool:
    """Whether there are last rows that no batch has told: of the newest version, or of a batch that is run again."""
    storage, newest = checkpoint.storage, checkpoint.manifest
    last = JournalReader(storage).last(BatchEntry)
    told = -1 if last is None else last.batch
    again = for_batch(storage, newest.last_batch) if newest.last_batch > told else None
    waiting = [each for each in (newest, again) if each is not None and (each.batch is None or each.batch > told)]
    return any(len(open_ends(storage, each.ends)[0]) for each in waiting)


class MaxEventsRun:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._run: KeyedRun | None = None  # made when it is needed: most streams have no limits
        self._reached: Reached | None = None

    @contextmanager
    def apply(self, alerts: Rows, task: BatchTask) -> Iterator[tuple[Rows, pa.RecordBatch]]:
        """Alerts without those behind the last of their subscription, and the last rows of those that end and asked
        for them. They can be read until the context ends."""
        self._reached = None
        if not task.limits_alerts:
            yield alerts, NOBODY_ENDED
            return
        with alerts.keep():
            counted = alerts.map(*alerts_to_count(task, alerts.schema))
            given = self._counts().apply(counted, task.batch_id, task.now_us, MaxEvents(task.state.limits))
            lasts = given.to_arrow().sort_by(KEY)
            ids, counted_from = (lasts.column(name).to_numpy() for name in (KEY, COUNTED_FROM))
            self._reached = Reached(task.batch_id, ids, counted_from)
            if len(ids):
                alerts = alerts.map(leave_out(lasts), alerts.schema)
            yield alerts, _last_rows(lasts, task)

    def _counts(self) -> KeyedRun:
        if self._run is None:
            held, keys = self._checkpoint, KeyTuning(interval_s=EVER_S, round_s=EVER_S)
            executors = held.plan.executors
            self._run = KeyedRun(held.storage, held.journal, MaxEvents(), keys, held.fence.check, executors)
        return self._run

    def finish(self) -> None:
        """Commit what the batch has counted, once the sink has its rows."""
        if self._reached is not None and self._run is not None:
            self._checkpoint.fence.check()
            if len(self._reached.ids):
                write_reached(self._checkpoint.storage, self._reached)
            else:
                forget_reached(self._checkpoint.storage, self._reached.batch)  # of an attempt with other settings
            self._run.finish()
            self._reached = None


def _last_rows(lasts: pa.Table, task: BatchTask) -> pa.RecordBatch:
    ids = lasts.column(KEY).to_numpy()
    asks = task.state.notify(ids) & TELLS_ENDED > 0
    if not asks.any():
        return NOBODY_ENDED
    ids, ts_us = ids[asks], lasts.column("ts").cast(pa.int64()).to_numpy()[asks]
    state = task.state
    return end_rows(ids, state.users(ids), state.payloads(ids), MAX_EVENTS_REACHED, ts_us, state.id_texts(ids))
