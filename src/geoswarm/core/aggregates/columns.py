"""The columns of events that aggregates count: whether they fit, their values, and the names of groups.

A stream may have any columns, and its subscriptions may be older than they are. So a column that events do not have, or
that a function cannot count, is null in all of them; where the columns are known when a subscription is registered, it
is refused instead (`misfit`).
"""

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.aggregates.spec import AggregateSpec
from geoswarm.core.stats.sketches import TOP_CHARS_MAX
from geoswarm.parameters import suggestion

GROUP_CHARS_MAX = TOP_CHARS_MAX
"""Characters of a group's name, which its state keeps: longer ones are cut, and those that begin alike are one."""

_TYPES = pa.types


class AggregateStream(NamedTuple):
    """What the running stream can give."""

    columns: pa.Schema
    """Those of its events."""
    takes_aggregates: bool
    """Whether it has a sink for them."""
    gives_alerts: bool = True
    """Whether its matches are alerts."""
    reorders: bool = False
    """Whether events of objects are held back, or go on that were."""


def _is_number(kind: pa.DataType) -> bool:
    return bool(_TYPES.is_integer(kind) or _TYPES.is_floating(kind) or _TYPES.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(_TYPES.is_string(kind) or _TYPES.is_large_string(kind))


def _has_text(kind: pa.DataType) -> bool:
    """Whether its values are told apart as text."""
    plain = _is_text(kind) or _is_number(kind) or _TYPES.is_boolean(kind)
    return bool(plain or _TYPES.is_date32(kind) or _TYPES.is_timestamp(kind))


def _is_told_apart(kind: pa.DataType) -> bool:
    is_bytes = _TYPES.is_binary(kind) or _TYPES.is_large_binary(kind) or _TYPES.is_fixed_size_binary(kind)
    return bool(is_bytes or (_has_text(kind) and not _TYPES.is_decimal(kind)))


_NUMBERS, _TEXTS, _DISTINCT = "numbers", "texts, numbers, booleans or times", "texts, numbers, booleans, times or bytes"
_FITS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    **dict.fromkeys(("sum", "avg", "min", "max", "quantile"), (_is_number, _NUMBERS)),
    "distinct": (_is_told_apart, _DISTINCT),
    "top": (_has_text, _TEXTS),
}
"""Which types a function counts, and the words for them."""


def misfit(spec: AggregateSpec, columns: pa.Schema) -> str | None:
    """What is wrong with the columns that are asked for, and what to do; None: they fit."""
    function, column, _ = spec.aggregate
    if column is not None and (why := _why_not(column, function, *_FITS[function], columns)):
        return why
    return _why_not(spec.group_by, "group_by", _has_text, _TEXTS, columns) if spec.group_by is not None else None


def values_of(spec: AggregateSpec, events: pa.RecordBatch) -> pa.Array | None:
    """The values that `make_partials` takes; None: it counts events."""
    function, column, _ = spec.aggregate
    if column is None:
        return None
    values = _column(column, _FITS[function][0], events)
    if values is None:
        return pa.nulls(len(events), pa.float64())
    return _text(values) if function == "top" else values


def groups_of(spec: AggregateSpec, events: pa.RecordBatch) -> pa.StringArray:
    """The group of each event, as text; without `group_by`, all are in one, whose name is null."""
    values = _column(spec.group_by, _has_text, events) if spec.group_by is not None else None
    if values is None:
        return pa.nulls(len(events), pa.string())
    return pc.utf8_slice_codeunits(_text(values), 0, GROUP_CHARS_MAX)


def _why_not(
    column: str, user: str, fits: Callable[[pa.DataType], bool], fitting: str, columns: pa.Schema
) -> str | None:
    if column not in columns.names:
        return f"events have no column {column!r}: {suggestion(column, columns.names)}"
    kind = _plain_type(columns.field(column).type)
    return None if fits(kind) else f"{user} takes {fitting}, and {column} is {kind}: name another column"


def _column(name: str, fits: Callable[[pa.DataType], bool], events: pa.RecordBatch) -> pa.Array | None:
    """Without the types that wrap others; None: the events have no such column."""
    if name not in events.schema.names:
        return None
    values = events.column(name)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if _TYPES.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if fits(values.type) else None


def _plain_type(kind: pa.DataType) -> pa.DataType:
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return kind.value_type if _TYPES.is_dictionary(kind) else kind


def _text(values: pa.Array) -> pa.StringArray:
    """As text; bytes that are not UTF-8 are replaced, since they must not stop the stream."""
    text = values.cast(pa.string())
    try:
        text.validate(full=True)
        return text
    except pa.ArrowInvalid:
        said = [None if one is None else one.decode(errors="replace") for one in text.cast(pa.binary()).to_pylist()]
        return pa.array(said, pa.string())
