"""The first stage of both roads: what is malformed goes to the dead letters with a reason, the rest goes on.

Looks at one row at a time and knows no history: a duplicate `register` or a `cancel` of an unknown id is found where
the subscriptions are (`store/subscriptions.py`). Nothing is repaired or dropped: rows in = rows on + dead letters.
Events that are areas are in `validate_areas.py`.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints
from geoswarm.core.shapes.circle import rectangles
from geoswarm.core.shapes.parse import parse_shapes
from geoswarm.core.shapes.shapes import Shapes, concatenate, no_shapes, of_polygons
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.expression import Expressions, compile_expressions
from geoswarm.errors import SchemaError
from geoswarm.flow.dead_letters import MALFORMED, DeadLetters, Triage
from geoswarm.flow.sound import SOUND, unmarked
from geoswarm.flow.validate_areas import has_areas, validate_areas
from geoswarm.model import ENTER, EVENT, EXIT, GEOMETRY, INSIDE, OPERATION, PREDICATES

SIDES = ("xmin", "ymin", "xmax", "ymax")
_UNPARSED = "cannot be parsed: fix the producer"
DWELL_S_MAX = 1e9
"""About thirty years: nobody waits that long, and in microseconds it is far from the largest integer."""
_ON = pa.array([b"inside", b"enter", b"exit"])
_ON_CODES = np.array([INSIDE, ENTER, EXIT], np.int64)
_NUMBER = r"(?:[0-9]{1,10}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?"
_ON_PATTERN = rf"^\s*(?:(?P<word>inside|enter|exit)|dwell\(\s*(?P<seconds>{_NUMBER})\s*\))\s*$"
_PREDICATE_PATTERN = rf"^\s*(?P<word>{'|'.join(PREDICATES)})\s*$"
_RECTANGLE = "subscription {sub_id} is [{xmin}, {ymin}, {xmax}, {ymax}]"


def validate_events(batch: pa.RecordBatch, grid: Grid, dead: DeadLetters, *, marks: bool = False) -> pa.RecordBatch:
    """The events that can be routed. Columns beyond those that have a meaning may hold anything. With `marks`, what can
    be areas is marked where it need not be checked again (`sound.py`)."""
    triage = Triage(batch, dead)
    if MALFORMED in batch.schema.names:
        triage.turn_away(~_null(batch, MALFORMED), "malformed", _UNPARSED)
    if has_areas(batch):
        batch = validate_areas(batch, grid, triage)
    for name in EVENT.names:
        if batch.column(name).null_count:
            triage.turn_away(_null(batch, name), "null", f"{name} is null: send a value")
    x, y = _floats(batch, "x"), _floats(batch, "y")
    inside = (x >= grid.xmin) & (x <= grid.xmax) & (y >= grid.ymin) & (y <= grid.ymax)
    if not inside.all():
        finite = np.isfinite(x) & np.isfinite(y)
        triage.turn_away(~finite, "not-finite", "point ({x}, {y}): send finite numbers")
        triage.turn_away(~inside, "out-of-bounds", "point ({x}, {y}) lies outside the world: " + _clip(grid))
    if MALFORMED in batch.schema.names:
        batch = batch.drop_columns([MALFORMED])
    if not marks:
        batch = unmarked(batch)
    elif SOUND.name not in batch.schema.names and GEOMETRY.name in batch.schema.names:
        batch = batch.append_column(SOUND, pa.array(np.zeros(len(batch), np.bool_)))
    return batch.filter(pa.array(~triage.doomed)) if triage.doomed.any() else batch


class ValidatedOperations(NamedTuple):
    rows: pa.RecordBatch
    """All of them, without MALFORMED; a subscription with keywords and no sides has the world's."""
    fit: Bools
    """Which may be applied."""
    words: Expressions
    """What `keywords` say, row by row."""
    shapes: Shapes | None
    """What `geometry` says, row by row; None: nobody's region is but a rectangle."""
    on: Ints
    """What `on` says, as one of the numbers of `model.py`."""
    predicates: Bytes
    """What `predicate` says, by code; a rectangle that asks for more than to intersect has become a shape."""


def validate_operations(batch: pa.RecordBatch, grid: Grid, now_us: int, dead: DeadLetters) -> ValidatedOperations:
    batch = _with_world(batch, grid)
    triage = Triage(batch, dead)
    if MALFORMED in batch.schema.names:
        triage.turn_away(~_null(batch, MALFORMED), "malformed", _UNPARSED)
    triage.turn_away(_null(batch, "sub_id"), "null", "sub_id is null: send the id")
    triage.turn_away(_null(batch, "op"), "null", "op is null: send register, replace or cancel")
    puts = _is(batch, "op", "register") | _is(batch, "op", "replace")
    known = puts | _is(batch, "op", "cancel")
    triage.turn_away(~known, "unknown-op", "op is {op!r}: send register, replace or cancel")
    shapes = _validate_shapes(batch, puts, grid, triage)
    if shapes is not None:
        batch = _with_boxes(batch, shapes, grid)
    words = _validate_keywords(batch, puts, triage)
    on = _validate_on(batch, puts, triage)
    predicates = _validate_predicate(batch, puts, triage)
    for name in SIDES:
        detail = f"subscription {{sub_id}} has no {name}: send all four sides"
        triage.turn_away(puts & _null(batch, name), "null", detail)
    _validate_rectangles(batch, puts, grid, triage)
    expires_us = np.asarray(pc.cast(batch.column("expires"), pa.int64()).fill_null(now_us + 1))
    triage.turn_away(
        puts & (expires_us <= now_us), "expired", "subscription {sub_id} expired {expires}: send a later time"
    )
    boxed = puts & ~triage.doomed & (predicates > 0) & _null(batch, "geometry")
    if boxed.any():
        shapes = _with_boxed(batch, shapes, np.flatnonzero(boxed))
    if MALFORMED in batch.schema.names:
        batch = batch.drop_columns([MALFORMED])
    return ValidatedOperations(batch, ~triage.doomed, words, shapes, on, predicates)


def _validate_shapes(batch: pa.RecordBatch, puts: Bools, grid: Grid, triage: Triage) -> Shapes | None:
    given = puts & ~_null(batch, "geometry")
    if not given.any():
        return None
    column = pc.if_else(pa.array(given), batch.column("geometry"), pa.scalar(None, pa.binary()))
    shapes, refused, *_ = parse_shapes(column, grid)
    for row, reason, detail in refused:
        said = detail.replace("{", "{{").replace("}", "}}")
        triage.turn_away_one(row, reason, f"subscription {{sub_id}}: {said}")
    return shapes


def _with_boxed(batch: pa.RecordBatch, shapes: Shapes | None, rows: Ints) -> Shapes:
    """Some rectangles as shapes: the loops over rectangles know of no predicate."""
    boxes = of_polygons(shapely.box(*(_floats(batch, side)[rows] for side in SIDES)))
    source = np.arange(len(batch))
    source[rows] = len(batch) + np.arange(len(rows))
    return concatenate([shapes or no_shapes(len(batch)), boxes]).take(source)


def _with_boxes(batch: pa.RecordBatch, shapes: Shapes, grid: Grid) -> pa.RecordBatch:
    """A region's sides are those of the rectangle round it."""
    boxes, has_shape = rectangles(shapes, grid), pa.array(np.diff(shapes.parts) > 0)
    for side, values in zip(SIDES, boxes.T, strict=True):
        column = pc.if_else(has_shape, pa.array(values), batch.column(side))
        batch = batch.set_column(batch.schema.get_field_index(side), side, column)
    return batch


def _with_world(batch: pa.RecordBatch, grid: Grid) -> pa.RecordBatch:
    """A subscription to words wherever they are said has no sides: give it the world's."""
    anywhere = ~_null(batch, "keywords") & _null(batch, "geometry")
    for side in SIDES:
        anywhere &= _null(batch, side)
    if not anywhere.any():
        return batch
    for side in SIDES:
        column = pc.if_else(pa.array(anywhere), getattr(grid, side), batch.column(side))
        batch = batch.set_column(batch.schema.get_field_index(side), side, column)
    return batch


def _validate_keywords(batch: pa.RecordBatch, puts: Bools, triage: Triage) -> Expressions:
    words, refused = compile_expressions(batch.column("keywords"))
    by_reason: dict[str, list[int]] = {}
    for row, reason in refused:
        by_reason.setdefault(reason, []).append(row)
    for reason, rows in by_reason.items():
        chosen = np.zeros(len(batch), np.bool_)
        chosen[rows] = True
        said = reason.replace("{", "{{").replace("}", "}}")
        triage.turn_away(puts & chosen, "keywords", f"keywords of subscription {{sub_id}}: {said}")
    return words


def _validate_on(batch: pa.RecordBatch, puts: Bools, triage: Triage) -> Ints:
    on = np.full(len(batch), INSIDE, np.int64)
    column = batch.column("on")
    if column.null_count == len(batch):
        return on
    said = np.flatnonzero(~_null(batch, "on"))
    # As bytes: text that is not UTF-8 must not stop the stream.
    parts = pc.extract_regex(column.take(pa.array(said)).cast(pa.binary()), _ON_PATTERN)
    words = pc.index_in(parts.field("word"), _ON)
    counted = pc.greater(pc.binary_length(parts.field("seconds")), 0).fill_null(False)
    seconds = pc.if_else(counted, parts.field("seconds"), b"0").cast(pa.string()).cast(pa.float64()).to_numpy()
    fine = pc.is_valid(parts).to_numpy(zero_copy_only=False) & (seconds <= DWELL_S_MAX)
    dwells = fine & words.is_null().to_numpy(zero_copy_only=False)
    on[said] = _ON_CODES[words.fill_null(0).to_numpy()]
    on[said[dwells]] = np.rint(seconds[dwells] * 1e6)
    wrong = np.zeros(len(batch), np.bool_)
    wrong[said[~fine]] = True
    detail = "subscription {sub_id} is on {on!r}: send inside, enter, exit or dwell(SECONDS), with "
    triage.turn_away(puts & wrong, "on", detail + f"SECONDS from 0 to {DWELL_S_MAX:.0f}")
    return on


def _validate_predicate(batch: pa.RecordBatch, puts: Bools, triage: Triage) -> Bytes:
    column = batch.column("predicate")
    if column.null_count == len(batch):
        return np.zeros(len(batch), np.uint8)
    words = pc.extract_regex(column.cast(pa.binary()), _PREDICATE_PATTERN)
    codes = pc.index_in(words.field("word"), pa.array(PREDICATES).cast(pa.binary()))
    wrong = ~_null(batch, "predicate") & ~words.is_valid().to_numpy(zero_copy_only=False)
    detail = f"subscription {{sub_id}} has predicate {{predicate!r}}: send one of {', '.join(PREDICATES)}"
    triage.turn_away(puts & wrong, "predicate", detail)
    return np.asarray(codes.fill_null(0).to_numpy(zero_copy_only=False), np.uint8)


def _validate_rectangles(batch: pa.RecordBatch, puts: Bools, grid: Grid, triage: Triage) -> None:
    xmin, ymin, xmax, ymax = (_floats(batch, side) for side in SIDES)
    finite = np.isfinite(xmin) & np.isfinite(ymin) & np.isfinite(xmax) & np.isfinite(ymax)
    triage.turn_away(puts & ~finite, "not-finite", _RECTANGLE + ": send finite numbers")
    for axis, low, high in (("x", xmin, xmax), ("y", ymin, ymax)):
        detail = (
            f"rectangle of subscription {{sub_id}} has {axis}min {{{axis}min}} > {axis}max {{{axis}max}}: swap them"
        )
        triage.turn_away(puts & (low > high), "inverted", detail)
    triage.turn_away(puts & ((xmin == xmax) | (ymin == ymax)), "no-area", _RECTANGLE + ": widen it")
    outside = (xmin < grid.xmin) | (ymin < grid.ymin) | (xmax > grid.xmax) | (ymax > grid.ymax)
    triage.turn_away(puts & outside, "out-of-bounds", _RECTANGLE + ", outside the world: " + _clip(grid))


def conform_operations(table: pa.Table) -> pa.Table:
    """Operations with all columns of the schema, in its order; columns a source left out are null."""
    columns = [_conformed(table, field) for field in OPERATION]
    names = list(OPERATION.names)
    if MALFORMED in table.schema.names:
        columns.append(table.column(MALFORMED))
        names.append(MALFORMED)
    return pa.table(columns, names=names)


def _conformed(table: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in table.schema.names:
        return pa.nulls(len(table), field.type)
    column = table.column(field.name)
    guessing = pa.types.is_integer(field.type) and not pa.types.is_integer(column.type)
    try:
        if not guessing or pa.types.is_null(column.type):
            return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    raise SchemaError(f"column {field.name} of operations is {column.type}, wanted is {field.type}: cast it")


def _null(batch: pa.RecordBatch, name: str) -> Bools:
    return np.asarray(pc.is_null(batch.column(name)).to_numpy(zero_copy_only=False), np.bool_)


def _is(batch: pa.RecordBatch, name: str, value: str) -> Bools:
    return np.asarray(pc.equal(batch.column(name), value).fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _floats(batch: pa.RecordBatch, name: str) -> Floats:
    """Null is NaN."""
    column = batch.column(name)
    return np.asarray(column.to_numpy(zero_copy_only=column.null_count == 0), np.float64)


def _clip(grid: Grid) -> str:
    remedy = f"clip it to [{grid.xmin}, {grid.ymin}, {grid.xmax}, {grid.ymax}]"
    degrees = max(abs(grid.xmin), abs(grid.xmax)) <= 360
    return f"{remedy}, or convert metres to degrees" if degrees else remedy
