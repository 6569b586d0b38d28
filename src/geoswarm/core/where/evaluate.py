"""Applies a condition to columns, all rows at once, in the three values of SQL: true, false and null for unknown.

A comparison with a null is unknown; NOT of unknown is unknown; AND is false if one part is, whatever the other, and OR
true. Rows are chosen where the whole is true. `run/oracle/where.py` has the same row by row.

Numbers are compared exactly. A value that the column's type does not have (80.5 among integers, 2^53 + 1 among floats,
300 among bytes) is replaced by the nearest one that it has, and `<` by `<=` where that changes sides.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.where.clause import (
    And,
    Between,
    Clause,
    Column,
    Comparison,
    In,
    IsNull,
    IsTrue,
    Like,
    Not,
    Or,
    Test,
    Value,
)
from geoswarm.core.where.types import MICROSECONDS, Family, family_of, time_us

_PER_SECOND = {"s": 1, "ms": 1_000, "us": MICROSECONDS, "ns": 1_000_000_000}
_DAY_S = 86_400
_FUNCTIONS: dict[Comparison, Any] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_IF_BELOW: dict[Comparison, Comparison] = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}
"""What holds of a value below the one that was written, if no value of the type lies between them."""
_IF_ABOVE: dict[Comparison, Comparison] = {"<": "<", "<=": "<", ">": ">=", ">=": ">="}


def truths(clause: Clause, rows: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.BooleanArray:
    """True, false or null for each row. The condition fits the rows (`types.py`)."""
    if isinstance(clause, Not):
        return pc.invert(truths(clause.part, rows))
    if isinstance(clause, And | Or):
        found, combine = truths(clause.parts[0], rows), pc.and_kleene if isinstance(clause, And) else pc.or_kleene
        for part in clause.parts[1:]:
            found = combine(found, truths(part, rows))
        return found
    return _tested(clause, rows)


def chosen(clause: Clause, rows: pa.Table | pa.RecordBatch) -> Any:
    """The rows for which the condition is true."""
    return rows.filter(truths(clause, rows))


def _tested(test: Test, rows: pa.Table | pa.RecordBatch) -> Any:
    column = rows.column(test.column.name)
    if isinstance(test, IsNull):
        return pc.is_null(column)
    if pa.types.is_null(column.type):
        return unless_null(column, False)
    column, kind = plain(column), column.type
    if isinstance(test, IsTrue):
        return column
    if isinstance(test, Like):
        return pc.match_like(column, test.pattern.given)
    if isinstance(test, In):
        return _among(column, kind, test)
    if isinstance(test, Between):
        low, high = _compared(column, kind, ">=", test.low), _compared(column, kind, "<=", test.high)
        return pc.and_kleene(low, high)
    if isinstance(test.other, Column):
        return _pairwise(column, test.comparison, plain(rows.column(test.other.name)))
    return _compared(column, kind, test.comparison, test.other)


def plain(column: Any) -> Any:
    """Values that are compared: those of a dictionary, times as whole numbers, floats as float64."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if pa.types.is_date32(column.type):
        column = pc.cast(column, pa.int32())
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.int64())
    return pc.cast(column, pa.float64()) if column.type == pa.float32() else column


def _compared(column: Any, kind: pa.DataType, comparison: Comparison, value: Value) -> Any:
    near = nearest(column.type, kind, comparison, value)
    if isinstance(near, bool):
        return unless_null(column, near)
    comparison, known = near
    return _FUNCTIONS[comparison](column, pa.scalar(known, column.type))


def _among(column: Any, kind: pa.DataType, test: In) -> Any:
    """A value that the type does not have is equal to no row."""
    near = [nearest(column.type, kind, "=", value) for value in test.values]
    known = pa.array([found[1] for found in near if not isinstance(found, bool)], column.type)
    if column.type == pa.float64():  # Arrow looks up 0 and -0 as two values
        column, known = pc.add(column, 0.0), pc.add(known, 0.0)
    return pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=known), pa.scalar(None, pa.bool_()))


def _pairwise(column: Any, comparison: Comparison, other: Any) -> Any:
    if pa.types.is_null(other.type):
        return unless_null(other, False)
    kinds = {column.type, other.type}
    if len(kinds) == 2 and pa.float64() in kinds:
        column, other = (pc.cast(one, pa.float64(), safe=False) for one in (column, other))
    elif len(kinds) == 2 and pa.uint64() in kinds:  # no integers of Arrow have both ranges
        column, other = (pc.cast(one, pa.decimal128(20)) for one in (column, other))
    return _FUNCTIONS[comparison](column, other)


def unless_null(column: Any, truth: bool) -> Any:
    """The same for all rows that have a value, else null."""
    return pc.if_else(pc.is_valid(column), pa.scalar(truth), pa.scalar(None, pa.bool_()))


def nearest(
    held: pa.DataType, kind: pa.DataType, comparison: Comparison, value: Value
) -> tuple[Comparison, Any] | bool:
    """The comparison with a value that the type `held` has, or what it is for every value of the type."""
    family, given = family_of(kind), value.given
    if family is Family.TIME:
        exact = Fraction(time_us(str(given)), MICROSECONDS) * _per_second(kind)
    elif family is Family.NUMBER:
        exact = Fraction(given)
    else:
        return comparison, given
    near = float(exact) if held == pa.float64() else exact.numerator // exact.denominator
    if near != exact and comparison in ("=", "<>"):
        return comparison == "<>"
    if near != exact:
        comparison = _IF_BELOW[comparison] if near < exact else _IF_ABOVE[comparison]
    if held != pa.float64():
        bounds = np.iinfo(held.to_pandas_dtype())
        if near > bounds.max:
            return comparison in ("<", "<=", "<>")
        if near < bounds.min:
            return comparison in (">", ">=", "<>")
    return comparison, near


def _per_second(kind: pa.DataType) -> Fraction:
    return Fraction(_PER_SECOND[kind.unit]) if pa.types.is_timestamp(kind) else Fraction(1, _DAY_S)
