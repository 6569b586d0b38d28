"""The last rows of subscriptions that have ended, as alerts without an event.

One task gives them, beside the tasks that match. Those that were cancelled or have expired have no alerts in the batch;
those that had their `max_events` end in the batch of their last alert, and a sink that sorts puts their last row behind
it, though both have one `ts` (`in_order.py`).
"""

from collections.abc import Iterator

import pyarrow as pa

from geoswarm.flow.stages.task import BatchTask, Body
from geoswarm.model import ALERT_KINDS, ENDS, OF_ENDED, TRANSITION


def tell_ends(task: BatchTask, alerts: pa.Schema, reached: pa.RecordBatch) -> Body:
    """Alerts with the columns of others; `reached` are of those that end with this batch."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for ends in (task.state.ends(), reached):
            if len(ends):
                yield _alerts_of(ends, alerts)

    return run


def _alerts_of(ends: pa.RecordBatch, alerts: pa.Schema) -> pa.RecordBatch:
    known = {name: ends.column(name) for name in ENDS.names}
    known[TRANSITION.name] = pa.repeat(ALERT_KINDS[OF_ENDED], len(ends))
    columns = [known.get(field.name, pa.nulls(len(ends), field.type)) for field in alerts]
    return pa.record_batch(
        [column.cast(field.type) for column, field in zip(columns, alerts, strict=True)], schema=alerts
    )
