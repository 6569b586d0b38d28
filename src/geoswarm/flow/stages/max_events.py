"""Alerts of subscriptions that end after `max_events`: which are counted, and which come after the last.

    alerts ──► `alerts_to_count` ──► flow/keyed/max_events.py ──► the last alert of those that end
      └──────► `leave_out` ◄───────────────────────────────────────────────┘

The alerts are read twice, so their runner keeps them meanwhile (`run/max_events.py`).
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools
from geoswarm.flow.keyed.max_events import AMONG, COUNTED_FROM, MOST, TASK
from geoswarm.flow.keyed.operator import KEY
from geoswarm.flow.stages.task import BatchTask, Body
from geoswarm.model import EVENT, SUB_ID

_EVENT_ID = "event_id"


def alerts_to_count(task: BatchTask, alerts: pa.Schema) -> tuple[Body, pa.Schema]:
    """The alerts of events whose subscription has a limit, as far as they are needed to count them."""
    numbers = [pa.field(name, pa.int64(), nullable=False) for name in (MOST, COUNTED_FROM, TASK)]
    event_id = alerts.field(_EVENT_ID).with_nullable(False)
    schema = pa.schema([SUB_ID, EVENT.field("ts"), event_id, *numbers])

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            subs = batch.column(SUB_ID.name).to_numpy()
            ids, place = np.unique(subs, return_inverse=True)
            most, counted_from = (values[place] for values in task.state.limits(ids))
            chosen = np.flatnonzero((most > 0) & batch.column(_EVENT_ID).is_valid().to_numpy(zero_copy_only=False))
            if len(chosen):
                rows = batch.select([SUB_ID.name, "ts", _EVENT_ID]).take(pa.array(chosen))
                more = (most[chosen], counted_from[chosen], np.full(len(chosen), number))
                yield pa.record_batch([*rows.columns, *map(pa.array, more)], schema=schema)

    return run, schema


def leave_out(lasts: pa.Table) -> Body:
    """All alerts but those behind the last of their subscription; `lasts` are as `MaxEvents` gives them, by KEY."""
    ids = lasts.column(KEY).to_numpy()
    among = lasts.column(AMONG).to_numpy()

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        met = np.zeros(len(ids), np.int64)  # of the alerts that agree with the last, those that went out
        for batch in batches:
            place = np.searchsorted(ids, batch.column(SUB_ID.name).to_numpy())
            limited = ids[np.minimum(place, len(ids) - 1)] == batch.column(SUB_ID.name).to_numpy()
            limited &= batch.column(_EVENT_ID).is_valid().to_numpy(zero_copy_only=False)
            at = np.flatnonzero(limited)
            theirs, place = batch.take(pa.array(at)), place[at]
            before, equal = _compare(theirs, lasts.take(pa.array(place)), number)
            for k in np.flatnonzero(equal).tolist():
                before[k] = met[place[k]] < among[place[k]]
                met[place[k]] += 1
            limited[at] = ~before
            yield batch.filter(pa.array(~limited)) if limited.any() else batch

    return run


def _compare(alerts: pa.RecordBatch, lasts: pa.Table, task: int) -> tuple[Bools, Bools]:
    """Which alerts are before the last of their subscription, and which agree with it."""
    before, equal = np.zeros(len(alerts), np.bool_), np.ones(len(alerts), np.bool_)
    tasks = pa.array(np.full(len(alerts), task))
    for mine, last in (
        (alerts.column("ts"), lasts.column("ts")),
        (alerts.column(_EVENT_ID), lasts.column(_EVENT_ID)),
        (tasks, lasts.column(TASK)),
    ):
        before |= equal & np.asarray(pc.less(mine, last))
        equal &= np.asarray(pc.equal(mine, last))
    return before, equal
