"""The first stage for events and for operations: bad rows become dead letters with a reason, the others go on.

Each row is checked alone: a duplicate `register` or a `cancel` of an unknown id is found where the subscriptions are
(`store/subscriptions/`). Nothing is repaired or dropped: rows in = valid rows + dead letters. Events that are areas are
validated in `validate_areas.py`; each attribute of a subscription declares its own checks (`core/subscriptions/`),
which run here in the order of its table.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.config import SubIdKind, WindowSettings
from geoswarm.core.aggregates.columns import AggregateStream
from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.arrays.uuids import is_uuid, uuid_texts
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attribute_kind import Attribute, Inspection
from geoswarm.core.subscriptions.attributes import ATTRIBUTES, CANCEL, OPERATION
from geoswarm.core.subscriptions.region import clip_advice
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.errors import SchemaError
from geoswarm.flow.dead_letters import MALFORMED, DeadLetters, Triage
from geoswarm.flow.operations import operation_codes
from geoswarm.flow.sound import SOUND, drop_mark
from geoswarm.flow.validate_areas import has_areas, validate_areas
from geoswarm.model import EVENT, FIRST_US, GEOMETRY, LAST_US, SUB_ID

V = TypeVar("V")
S = TypeVar("S")
_UNPARSED = "cannot be parsed: fix the producer"
_OR_DECLARE = ", or say what the columns are: their names (columns), their types (extra, ts_unit, event_id)"


def validate_events(batch: pa.RecordBatch, grid: Grid, dead: DeadLetters, *, marks: bool = False) -> pa.RecordBatch:
    """The events that can be routed. Columns that the engine does not use may hold anything. With `marks`, areas that
    need not be checked again are marked (`sound.py`)."""
    triage = Triage(batch, dead)
    if MALFORMED in batch.schema.names:
        triage.turn_away(~_null(batch, MALFORMED), "malformed", _UNPARSED + _OR_DECLARE)
    if has_areas(batch):
        batch = validate_areas(batch, grid, triage)
    for name in EVENT.names:
        if batch.column(name).null_count:
            triage.turn_away(_null(batch, name), "null", f"{name} is null: send a value")
    us = batch.column("ts").cast(pa.int64())
    span = pc.min_max(us).as_py()
    if span["max"] is not None and not FIRST_US <= span["min"] <= span["max"] <= LAST_US:
        far = pc.fill_null(pc.or_(pc.less(us, FIRST_US), pc.greater(us, LAST_US)), False)
        far = np.asarray(far.to_numpy(zero_copy_only=False), np.bool_)
        triage.turn_away(far, "malformed", "ts is not of the years 1 to 9999: say what its numbers count, ts_unit")
    x, y = _floats(batch, "x"), _floats(batch, "y")
    inside = (x >= grid.xmin) & (x <= grid.xmax) & (y >= grid.ymin) & (y <= grid.ymax)
    if not inside.all():
        finite = np.isfinite(x) & np.isfinite(y)
        triage.turn_away(~finite, "not-finite", "point ({x}, {y}): send finite numbers")
        triage.turn_away(~inside, "out-of-bounds", "point ({x}, {y}) lies outside the world: " + clip_advice(grid))
    if MALFORMED in batch.schema.names:
        batch = batch.drop_columns([MALFORMED])
    if not marks:
        batch = drop_mark(batch)
    elif SOUND.name not in batch.schema.names and GEOMETRY.name in batch.schema.names:
        batch = batch.append_column(SOUND, pa.array(np.zeros(len(batch), np.bool_)))
    return batch.filter(pa.array(~triage.doomed)) if triage.doomed.any() else batch


@dataclass(frozen=True)
class ValidatedOperations:
    """`operations[REGION]` are the regions of all rows: attributes are the keys, as in `Subs`."""

    rows: pa.RecordBatch
    """All rows as they came, without MALFORMED."""
    fit: Bools
    """Which may be applied."""
    values: dict[str, Any]
    """The values of each attribute, by its name. Only those of fit rows that register or replace count."""

    def __getitem__(self, attribute: Attribute[V, S]) -> V:
        values: V = self.values[attribute.name]
        return values

    def subs(self, chosen: Ints) -> Subs:
        """The subscriptions that some rows register or replace."""
        ids = np.asarray(self.rows.column("sub_id").take(pa.array(chosen)), np.int64)
        return Subs(ids, {a.name: a.take(self.values[a.name], chosen) for a in ATTRIBUTES})


def validate_operations(
    batch: pa.RecordBatch,
    grid: Grid,
    now_us: int,
    dead: DeadLetters,
    window: WindowSettings | None = None,
    stream: AggregateStream | None = None,
) -> ValidatedOperations:
    """`window` says which events are kept for those who ask for the past; `stream` is the one that runs."""
    triage = Triage(batch, dead)
    if MALFORMED in batch.schema.names:
        triage.turn_away(~_null(batch, MALFORMED), "malformed", _UNPARSED)
    triage.turn_away(_null(batch, "sub_id"), "null", "sub_id is null: send the id")
    triage.turn_away(_null(batch, "op"), "null", "op is null: send register, replace or cancel")
    codes = operation_codes(batch.column("op"), unknown=-1)
    triage.turn_away(codes < 0, "unknown-op", "op is {op!r}: send register, replace or cancel")
    inspection = Inspection(batch, (codes >= 0) & (codes != CANCEL), grid, now_us, triage, window, stream)
    values = {attribute.name: attribute.parse(inspection) for attribute in ATTRIBUTES}
    if MALFORMED in batch.schema.names:
        batch = batch.drop_columns([MALFORMED])
    return ValidatedOperations(batch, ~triage.doomed, values)


def conform_operations(table: pa.Table, ids: SubIdKind = "integer") -> pa.Table:
    """Operations with all columns of the schema, in its order; missing columns are null. Where ids are texts, so is
    `sub_id` (`with_numbers` gives them their numbers)."""
    columns = [
        _id_texts(table, field) if field.name == SUB_ID.name and ids == "text" else _conform_column(table, field)
        for field in OPERATION
    ]
    names = list(OPERATION.names)
    if MALFORMED in table.schema.names:
        columns.append(table.column(MALFORMED))
        names.append(MALFORMED)
    return pa.table(columns, names=names)


def _id_texts(table: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    """Texts as they are, and integers as their digits."""
    if field.name not in table.schema.names:
        return pa.nulls(len(table), pa.string())
    column = table.column(field.name)
    check_operation_ids(column.type, "text")
    if is_uuid(column.type):
        return pa.chunked_array([uuid_texts(chunk) for chunk in column.chunks], pa.string())
    return column.cast(pa.string(), safe=False)


def check_operation_ids(kind: pa.DataType, ids: SubIdKind) -> None:
    """Raises SchemaError if a column `sub_id` of this type cannot have such ids."""
    is_text = is_uuid(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text and ids == "integer":
        raise SchemaError(
            f"column sub_id of operations is {kind}, and ids are integers in this checkpoint: cast it, or make one "
            'with Contract(subscription_ids="text")'
        )
    if not (is_text or pa.types.is_integer(kind) or pa.types.is_null(kind)) and ids == "text":
        raise SchemaError(f"column sub_id of operations is {kind}, wanted is a string, a UUID or an integer: cast it")


def _conform_column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in table.schema.names:
        return pa.nulls(len(table), field.type)
    column = table.column(field.name)
    if field.name == SUB_ID.name:
        check_operation_ids(column.type, "integer")
    guessing = pa.types.is_integer(field.type) and not pa.types.is_integer(column.type)
    try:
        if not guessing or pa.types.is_null(column.type):
            return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    raise SchemaError(f"column {field.name} of operations is {column.type}, wanted is {field.type}: cast it")


def _null(batch: pa.RecordBatch, name: str) -> Bools:
    return np.asarray(pc.is_null(batch.column(name)).to_numpy(zero_copy_only=False), np.bool_)


def _floats(batch: pa.RecordBatch, name: str) -> Floats:
    """Null is NaN."""
    column = batch.column(name)
    return np.asarray(column.to_numpy(zero_copy_only=column.null_count == 0), np.float64)
