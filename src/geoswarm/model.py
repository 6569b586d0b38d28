"""The Arrow schemas of events, matches, alerts and dead letters. Operations, the changes of subscriptions, have the
columns of subscriptions (`core/subscriptions/attributes.py`).

An event may have any further columns; its matches carry them unchanged. Four of them have a meaning: keywords are
looked for in `text`; `object_id` is the object that the event is about, for subscriptions `on` its entering, leaving or
staying in a region; `accuracy_m` is how exact its place is; and an event with a `geometry` is that area. The region of
a subscription is a rectangle, or a `geometry`.
"""

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")

EVENT = pa.schema(
    [
        pa.field("event_id", pa.int64(), nullable=False),
        pa.field("ts", TIMESTAMP, nullable=False),
        pa.field("x", pa.float64(), nullable=False),
        pa.field("y", pa.float64(), nullable=False),
    ]
)
"""The columns of every event. `x` and `y` are lon and lat by default; any planar bounds work."""

TEXT = pa.field("text", pa.string())
"""The text of an event. Without the column, or where it is null, the event has no words."""

OBJECT = pa.field("object_id", pa.int64())
"""The object that an event is about, such as a vehicle or a phone: any integer or a string. Without the column, or
where it is null, no object enters or leaves."""

ACCURACY = pa.field("accuracy_m", pa.float64())
"""How many metres the place of an event may be off, for `accuracy_max_m`. Without the column, where it is null, NaN or
below 0 (as phones send it), it is not known."""

GEOMETRY = pa.field("geometry", pa.binary())
"""The area that an event is: WKB, WKT, GeoJSON or CIRCLE(lon lat, metres), binary or string. `x` and `y` may then be
null, and become the middle of the rectangle round it. Without the column, or where it is null, the event is a point."""

PREDICATES = ("intersects", "contains", "within", "covers")
"""How a subscription's region must lie to a publication, by code: the region ... the publication.
`core/shapes/points.py` explains them."""

DEAD_LETTER = pa.schema(
    [
        pa.field("batch_id", pa.int64()),  # -1: outside any batch (an API call, a bulk load)
        pa.field("kind", pa.string(), nullable=False),  # event | operation
        pa.field("reason", pa.string(), nullable=False),  # one of the reasons of flow/dead_letters.py
        pa.field("detail", pa.string(), nullable=False),  # what is wrong and what to do, for a person
        pa.field("row", pa.string(), nullable=False),  # the row as it arrived, as JSON
    ]
)

SUB_IDS = pa.field("sub_ids", pa.list_(pa.field("element", pa.int64())), nullable=False)
SUB_ID = pa.field("sub_id", pa.int64(), nullable=False)
USER = pa.field("user", pa.string())
TRANSITION = pa.field("transition", pa.string(), nullable=False)
"""What an alert is of, one of ALERT_KINDS."""
SINCE = pa.field("since", TIMESTAMP)
"""When the stay or the way began that an alert is of; null: there is none, or it is not known."""
SEQUENCE = pa.field("sequence", pa.int64())
"""The number of an alert among those of its subscription about its object; null: of each event alike, `inside`."""
PAYLOAD = pa.field("payload", pa.string())
ENDED_REASON = pa.field("ended_reason", pa.string())
"""Why a subscription, or an object's stay, has ended, one of ENDED_REASONS; null: the alert is of something else."""
EVENT_ALERT = pa.schema([SUB_ID, USER, TRANSITION, SINCE, SEQUENCE, PAYLOAD])
"""The columns of an alert of an event, beside the event's own."""
ALERT = EVENT_ALERT.append(ENDED_REASON)
"""The columns of any alert; those of events are null where there is none, but for `ts`."""
ALERT_KINDS = ("inside", "enter", "exit", "dwell", "cross", "ended", "initial")
OF_INSIDE, OF_ENTER, OF_EXIT, OF_DWELL, OF_CROSS, OF_ENDED, OF_INITIAL = range(len(ALERT_KINDS))
"""What an alert is of, as a number."""
ENDED_REASONS = ("expired", "cancelled", "max_events", "silent")
EXPIRED, CANCELLED, MAX_EVENTS_REACHED, SILENT = ENDED_REASONS
ENDS = pa.schema([SUB_ID, USER, PAYLOAD, ENDED_REASON, EVENT.field("ts")])
"""The last rows of subscriptions, which are alerts without an event."""
VERSION = "version"
"""The column of matches with the version of the subscriptions, the same in all rows of a batch."""
PAST = pa.field("past", pa.bool_(), nullable=False)
"""Whether a match is of a kept event, given to a subscription that asks for its past; where `[window]` marks it."""
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds since 1970: times beyond them have no text."""
NEVER_US = (1 << 63) - 1
"""The expiry, in microseconds since 1970, of a subscription that has none."""

INSIDE, ENTER, EXIT, CROSS = -1, -2, -3, -4
"""What a subscription is `on`, as one number: one of these, or 0 and more for a dwell of so many microseconds."""
