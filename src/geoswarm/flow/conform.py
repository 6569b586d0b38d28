"""The columns of events, checked before a stream starts.

A column that is missing, or of a type that cannot be converted without guessing, is an error here; a bad value in a
good column is a dead letter later (`validate.py`).
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as kinds

from geoswarm.core.arrays.uuids import is_uuid, uuid_texts
from geoswarm.errors import SchemaError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import ACCURACY, EVENT, GEOMETRY, OBJECT, TEXT

RESERVED_COLUMNS = ("sub_id", "sub_ids", "version", "executor", "batch", "_event", "_copies", "_candidates", "_sound")
"""Names of columns that the engine adds to events or to matches."""


def _is_number(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind))


def _is_id(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind)) or _is_text(kind) or is_uuid(kind)


IDS = ("event_id", OBJECT.name)
"""Ids, which are integers or texts; a UUID becomes its text."""
_ACCEPTS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "event_id": (_is_id, "an integer, a string or a UUID"),
    "ts": (lambda kind: bool(kinds.is_timestamp(kind) or kinds.is_date(kind)), "a timestamp"),
    "x": (_is_number, "a number"),
    "y": (_is_number, "a number"),
    TEXT.name: (_is_text, "a string, since keywords are looked for in it"),
    OBJECT.name: (_is_id, "an integer, a string or a UUID, since objects are told apart by it"),
    ACCURACY.name: (
        lambda kind: bool(kinds.is_integer(kind) or kinds.is_floating(kind)),
        "a number of metres, since it says how exact the place of an object is",
    ),
    GEOMETRY.name: (
        lambda kind: _is_text(kind) or _is_binary(kind),
        "WKB as binary, or WKT or GeoJSON as string, since it says which area an event is",
    ),
}
"""For each column: which types are accepted, and the message for others."""


def conform_events(rows: pa.Schema) -> pa.Schema:
    """The columns in the engine's types and order: those that every event has, then all others unchanged, including
    MALFORMED. A column of categories has the type of its values: a parcel carries no dictionaries."""
    rows = pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in rows])
    placed = GEOMETRY.name not in rows.names  # the geometry of an area gives its place
    for name in EVENT.names:
        if name not in rows.names and (placed or name not in ("x", "y")):
            raise SchemaError(
                f"events have no column {name}, only {', '.join(rows.names)}: add it, or name the one that it is, "
                f'columns = {{ {name} = "..." }}'
            )
    extra = [field for field in rows if field.name not in EVENT.names]
    clash = [field.name for field in extra if field.name.casefold() in (*RESERVED_COLUMNS, *EVENT.names)]
    if clash:
        raise SchemaError(f"events have columns {clash}, which matches use themselves: rename them")
    for field in rows:
        accepts, wanted = _ACCEPTS.get(field.name, (None, ""))
        if accepts is not None and not accepts(field.type):
            raise SchemaError(
                f"column {field.name} of events is {field.type}, wanted is {wanted}: cast it, or rename it"
            )
    required = [field.with_nullable(True) for field in EVENT]
    if not kinds.is_integer(rows.field("event_id").type):
        required[0] = required[0].with_type(pa.string())
    return pa.schema(
        [*required, *(f.with_type(pa.string()) if f.name in IDS and is_uuid(f.type) else f for f in extra)]
    )


def cast_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in the columns of `schema`, in its order; a missing column is null."""
    columns = [
        _cast(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return uuid_texts(column) if is_uuid(column.type) and kind == pa.string() else column.cast(kind)


def without_malformed(schema: pa.Schema) -> pa.Schema:
    """The columns that events have once they are validated."""
    return pa.schema([field for field in schema if field.name != MALFORMED])
