"""Counted events on their way from the tasks that match to the state of their subscriptions: one row for what a task
has counted for one subscription, group and span of time.

| window | `first_us`, `last_us` | a row is |
|---|---|---|
| tumbling, sliding | the start of the pane, twice | the events of a pane: from a multiple of the slide to the next |
| session | the least and the greatest `ts` | events of which each is less than the gap after the one before |
| count | `ts` of the event, twice | a single event, since their order matters |

The other columns are those of `core/aggregates/partials.py`; those that the function does not have are null.
"""

import pyarrow as pa

from geoswarm.core.aggregates.partials import COUNT, EXTREME, PACKED, VALUES

SUB = pa.field("sub_id", pa.int64(), nullable=False)
BEGAN = pa.field("began", pa.int64(), nullable=False)
"""Since when the subscription counts (`AggregateValues.began`): what was counted before a cancel is not its own."""
GROUP = pa.field("group", pa.string())
FIRST, LAST = pa.field("first_us", pa.int64(), nullable=False), pa.field("last_us", pa.int64(), nullable=False)
EVENT_ID = pa.field("event_id", pa.int64(), nullable=False)
"""That of the event in windows of `count`; else 0, and 1 where the id is a text."""
EVENT_TEXT = pa.field("event_text", pa.string())
"""The id of the event in windows of `count`, where it is a text."""

COUNTED = pa.schema(
    [
        *(SUB, BEGAN, GROUP, FIRST, LAST, EVENT_ID, COUNT),
        *(field.with_nullable(True) for field in (VALUES, EXTREME, PACKED)),
        EVENT_TEXT,
    ]
)
