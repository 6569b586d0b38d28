"""Applies many conditions to many rows, of each pair (row, condition) only its own: for conditions that few rows meet.

Conditions that differ in their values only have one shape, `speed > ? AND zone = ?`, whose values are columns, too; all
pairs of a shape are compared at once. Values are brought to the column's type before (`evaluate.py`), so that the
answers are the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.where.clause import And, Between, Clause, Column, Compare, In, IsTrue, Not, Or, Value, columns_of
from geoswarm.core.where.evaluate import nearest, plain, truths, unless_null

SHAPED_VALUES_MAX = 32
"""Values of a list that become columns: a longer one is looked up for all rows."""


class Slot(NamedTuple):
    """A column in place of a value."""

    column: str
    """The one that is compared with it."""
    is_truth: bool
    """Whether it is what the test is for all values of the column, which has none that is the nearest."""


class Shaped(NamedTuple):
    """A condition as a shape and its values."""

    clause: Clause
    slots: tuple[Slot, ...]
    values: tuple[Any, ...]


def shape_of(clause: Clause, schema: pa.Schema) -> Shaped | None:
    """`clause` fits the schema. None: it has lists that are too long."""
    slots, values = list[Slot](), list[Any]()

    def compared(column: Column, comparison: Any, value: Value) -> Clause:
        kind = schema.field(column.name).type
        if pa.types.is_null(kind):
            return Compare(column, "=", Value(0))  # of nothing but nulls, whatever the value
        near = nearest(plain(pa.nulls(0, kind)).type, kind, comparison, value)
        own = Column(f"\0{len(slots)}")
        slots.append(Slot(column.name, isinstance(near, bool)))
        if isinstance(near, bool):
            values.append(near)
            return IsTrue(own)
        values.append(near[1])
        return Compare(column, near[0], own)

    def shaped(part: Clause) -> Clause:
        if isinstance(part, Not):
            return Not(shaped(part.part))
        if isinstance(part, And | Or):
            return type(part)(tuple(map(shaped, part.parts)))
        if isinstance(part, Compare) and isinstance(part.other, Value):
            return compared(part.column, part.comparison, part.other)
        if isinstance(part, Between):
            return And((compared(part.column, ">=", part.low), compared(part.column, "<=", part.high)))
        if isinstance(part, In):
            return Or(tuple(compared(part.column, "=", value) for value in part.values))
        return part

    made = shaped(clause) if _most_values(clause) <= SHAPED_VALUES_MAX else None
    return None if made is None else Shaped(made, tuple(slots), tuple(values))


def truths_by_pair(some: Sequence[Shaped], columns: Mapping[str, pa.Array], rows: Ints, numbers: Ints) -> Bools:
    """Whether the condition some[numbers[i]] is true of row rows[i]; all are of one shape."""
    clause, slots, _ = some[0]
    taken, own = pa.array(rows), pa.array(numbers)
    batch = {name: plain(columns[name]).take(taken) for name in columns_of(clause) if not name.startswith("\0")}
    for k, slot in enumerate(slots):
        beside = plain(columns[slot.column])
        if slot.is_truth:
            given = pa.array([shaped.values[k] for shaped in some], pa.bool_()).take(own)
            known = unless_null(beside.take(taken), True)
            batch[f"\0{k}"] = pc.and_(given, known)
        else:
            batch[f"\0{k}"] = pa.array([shaped.values[k] for shaped in some], beside.type).take(own)
    found: Bools = truths(clause, pa.RecordBatch.from_pydict(batch)).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _most_values(clause: Clause) -> int:
    """The values of its longest list."""
    if isinstance(clause, Not):
        return _most_values(clause.part)
    if isinstance(clause, And | Or):
        return max(map(_most_values, clause.parts))
    return len(clause.values) if isinstance(clause, In) else 1
