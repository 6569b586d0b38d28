"""The table of a subscription's attributes: everything that handles subscriptions goes by it.

A new attribute is one entry here. The schema of operations, Spark's schema, validation and its reasons, the inbox, bulk
loads and files of regions, segments (writing, opening, merging), `View.table` and the docs follow from it.
`attribute_kind.py` declares the methods of an entry, and draws how an operation's columns become a segment's arrays.

The table is in `core/`: it needs shapes and texts, which `model.py` may not import; `flow/` validates by it and
`store/` writes by it, and `flow/` may not import `store/`.

    NOTE = TextAttribute("note", "an opaque text that is kept with the subscription")     ... and in ATTRIBUTES
"""

import difflib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, SupportsIndex
from uuid import UUID

import pyarrow as pa

from geoswarm.core.subscriptions.aggregate import AggregateAttribute
from geoswarm.core.subscriptions.alert_rules import ConfirmAttribute, CooldownAttribute
from geoswarm.core.subscriptions.attribute_kind import Attribute, Column
from geoswarm.core.subscriptions.ending import CountedFromAttribute, MaxEventsAttribute, NotifyAttribute, notify_text
from geoswarm.core.subscriptions.exit_buffer import ExitBufferAttribute
from geoswarm.core.subscriptions.id_texts import IdTextAttribute, id_text
from geoswarm.core.subscriptions.keywords import KeywordsAttribute
from geoswarm.core.subscriptions.kinds import BirthAttribute, ExpiryAttribute, UserAttribute
from geoswarm.core.subscriptions.objects import ObjectsAttribute, objects_text
from geoswarm.core.subscriptions.payload import PayloadAttribute, payload_text
from geoswarm.core.subscriptions.region import SIDES, RegionAttribute
from geoswarm.core.subscriptions.since import SinceAttribute
from geoswarm.core.subscriptions.trigger import OnAttribute
from geoswarm.core.subscriptions.where import WhereAttribute
from geoswarm.errors import InputError

SubId = int | str | UUID
"""The id of a subscription: an integer, or where a checkpoint has texts (`Contract.subscription_ids`) any of these."""
OPS = ("register", "replace", "cancel")
REGISTER, REPLACE, CANCEL = range(len(OPS))
"""The kinds of operations, as a word and as a number."""
OPERATION_HEAD = (
    Column("op", pa.string(), f"{', '.join(OPS[:-1])} or {OPS[-1]}", is_required=True),
    Column("sub_id", pa.int64(), "the id of the subscription", is_required=True),
)
"""The columns that make a row an operation; they are not attributes."""

USER, REGION, EXPIRY = UserAttribute(), RegionAttribute(), ExpiryAttribute()
KEYWORDS, ON, SINCE = KeywordsAttribute(), OnAttribute(), SinceAttribute()
WHERE, OBJECTS = WhereAttribute(), ObjectsAttribute()
CONFIRM, COOLDOWN, EXIT_BUFFER = ConfirmAttribute(), CooldownAttribute(), ExitBufferAttribute()
AGGREGATE, PAYLOAD, BIRTH, ID = AggregateAttribute(), PayloadAttribute(), BirthAttribute(), IdTextAttribute()
MAX_EVENTS, COUNTED_FROM, NOTIFY = MaxEventsAttribute(), CountedFromAttribute(), NotifyAttribute()

ATTRIBUTES: tuple[Attribute[Any, Any], ...] = (
    USER,
    REGION,
    EXPIRY,
    KEYWORDS,
    WHERE,
    OBJECTS,
    ON,
    CONFIRM,
    COOLDOWN,
    EXIT_BUFFER,
    MAX_EVENTS,
    COUNTED_FROM,
    NOTIFY,
    SINCE,
    AGGREGATE,
    PAYLOAD,
    BIRTH,
    ID,
)
"""All attributes, in the order in which they are checked: a row with several faults is refused for the first."""

OPERATION_COLUMNS = (*OPERATION_HEAD, *(column for attribute in ATTRIBUTES for column in attribute.columns))
OPERATION = pa.schema([pa.field(column.name, column.type, not column.is_required) for column in OPERATION_COLUMNS])
"""The schema of a change of a subscription, in `Engine.submit`, operations streams and the inbox."""
BESIDE_GEOMETRY = tuple(c.name for c in OPERATION_COLUMNS if c.name not in ("op", "sub_id", *SIDES, "geometry"))
"""The columns that a file of regions may have beside its ids and geometries."""


def registration(
    sub_id: SubId, rectangle: tuple[float, float, float, float] | None = None, *, replace: bool = False, **said: Any
) -> dict[str, Any]:
    """A row of `operation_table` that registers, or with `replace` replaces, a subscription. `said` are further columns
    by name, so that a call that hands them on needs no change for a new attribute."""
    sides = dict(zip(SIDES, rectangle or (None,) * 4, strict=True))
    return {"op": OPS[REPLACE if replace else REGISTER], "sub_id": sub_id} | sides | said


def operation_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Operations from Python values; a column that is missing in a row is null. A geometry may be text, `since` a
    datetime, objects and notify lists, and a payload that is no text whatever has JSON. Ids are texts if one is."""
    given = [dict(row) for row in rows]
    schema = OPERATION
    if any(isinstance(row.get("sub_id"), str | UUID) for row in given):
        schema = OPERATION.set(OPERATION.get_field_index("sub_id"), pa.field("sub_id", pa.string(), nullable=False))
        for row in given:
            row["sub_id"] = id_text(row.get("sub_id"))
    for row in given:
        if not isinstance(row.get("sub_id"), SupportsIndex | str | None):  # of 1.5 Arrow would make 1
            raise InputError(f"sub_id is {row['sub_id']!r}: ids are integers (or texts)")
    for row in given:
        unknown = [name for name in row if name not in OPERATION.names]
        if unknown:
            raise InputError(f"a subscription has no {unknown_columns(unknown)}")
        if isinstance(row.get("geometry"), str):
            row["geometry"] = row["geometry"].encode()
        if isinstance(row.get("since"), datetime):
            row["since"] = row["since"].isoformat()
        if row.get("objects") is not None:
            row["objects"] = objects_text(row.get("sub_id"), row["objects"])
        if row.get("notify") is not None:
            row["notify"] = notify_text(row["notify"])
        if row.get("payload") is not None:
            row["payload"] = payload_text(row.get("sub_id"), row["payload"])
    try:
        return pa.Table.from_pylist(given, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as why:
        raise InputError(
            f"an operation has a value of the wrong type ({why}): ids are integers, sides are numbers"
        ) from None


def operation_batch(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Operations from whole columns, all of one length; missing columns are null."""
    count = len(columns["sub_id"])
    whole = [columns.get(field.name, pa.nulls(count, field.type)) for field in OPERATION]
    return pa.record_batch(whole, schema=OPERATION)


def unknown_columns(names: Iterable[str]) -> str:
    """The end of a sentence about columns that operations do not have."""
    close = {name: difflib.get_close_matches(name, OPERATION.names, 1) for name in names}
    hints = "; ".join(f"{name}, did you mean {c[0]}?" if c else name for name, c in close.items())
    return f"{hints} (known are {', '.join(OPERATION.names)})"
