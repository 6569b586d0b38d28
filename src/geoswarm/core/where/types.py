"""Compares a condition with the columns of a schema: every column is there, and can be compared with what it says.

| columns | compared with | by |
|---|---|---|
| integers, floats | numbers, columns of numbers | exact values; an integer column with a float column as float64 |
| strings | 'texts', columns of strings | Unicode code points, so `'Z' < 'a'` |
| booleans | TRUE, FALSE, columns of booleans | `=` and `<>` only |
| timestamps, dates | 'times', columns of the same type | instants; a time without a zone is UTC, a date its midnight |

Any column may be NULL or not. NaN is neither below nor above nor equal to anything.
"""

from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pyarrow as pa

from geoswarm.core.where.clause import (
    Between,
    Clause,
    Column,
    Compare,
    In,
    IsNull,
    IsTrue,
    Like,
    Test,
    Value,
    refuse,
    tests_of,
)
from geoswarm.parameters import suggestion

MICROSECONDS = 1_000_000
"""In a second."""


class Family(Enum):
    """Types whose values are compared with each other."""

    NUMBER = "numbers"
    TEXT = "texts"
    TRUTH = "booleans"
    TIME = "times"
    NOTHING = "nulls"
    """The type of a column without any value: it compares with everything, and is always null."""


_EXAMPLES = {
    Family.NUMBER: "a number such as 80",
    Family.TEXT: "a text such as 'free'",
    Family.TRUTH: "TRUE or FALSE",
    Family.TIME: "a time such as '2026-01-31T12:00'",
}


def check_where(clause: Clause, schema: pa.Schema) -> None:
    """Raises an InputError with the first character that does not fit."""
    for test in tests_of(clause):
        _check(test, schema)


def family_of(kind: pa.DataType) -> Family | None:
    """None: its values are compared with nothing."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or kind in (pa.float32(), pa.float64()):
        return Family.NUMBER
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Family.TEXT
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return Family.TIME
    if pa.types.is_null(kind):
        return Family.NOTHING
    return Family.TRUTH if pa.types.is_boolean(kind) else None


def time_us(text: str) -> int:
    """Microseconds since 1970. Raises ValueError."""
    when = datetime.fromisoformat(text)
    since = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * MICROSECONDS + since.microseconds


def _check(test: Test, schema: pa.Schema) -> None:
    kind = _type_of(test.column, schema)
    if isinstance(test, IsNull):
        return
    family = family_of(kind)
    if family is None:
        refuse(test.column.position, f"{test.column} has the type {kind}, which cannot be compared", "use IS NOT NULL")
    if isinstance(test, IsTrue):
        if family not in (Family.TRUTH, Family.NOTHING):
            refuse(
                test.column.position, f"{test.column} has {family.value}, not booleans", _remedy(test.column, family)
            )
    elif isinstance(test, Like):
        if family not in (Family.TEXT, Family.NOTHING):
            refuse(test.pattern.position, f"{test.column} has {family.value}, and LIKE is for texts", "compare by =")
    elif isinstance(test, Compare):
        if family is Family.TRUTH and test.comparison not in ("=", "<>"):
            refuse(test.column.position, f"{test.column} has booleans, which have no order", "compare by = or <>")
        if isinstance(test.other, Column):
            _check_pair(test.column, kind, test.other, _type_of(test.other, schema))
        else:
            _check_value(test.column, family, test.other)
    elif isinstance(test, Between):
        if family is Family.TRUTH:
            refuse(test.column.position, f"{test.column} has booleans, which have no order", "compare by = or <>")
        _check_value(test.column, family, test.low)
        _check_value(test.column, family, test.high)
        if family is not Family.NOTHING and _order(test.low, family) > _order(test.high, family):
            refuse(test.low.position, f"BETWEEN {test.low} AND {test.high} is never true", "swap them")
    elif isinstance(test, In):
        for value in test.values:
            _check_value(test.column, family, value)


def _type_of(column: Column, schema: pa.Schema) -> pa.DataType:
    if column.name not in schema.names:
        remedy = suggestion(column.name, schema.names)
        refuse(column.position, f"there is no {column.name!r}", f"{remedy}; a text is written '{column.name}'")
    return schema.field(column.name).type


def _check_pair(column: Column, kind: pa.DataType, other: Column, other_kind: pa.DataType) -> None:
    family, other_family = family_of(kind), family_of(other_kind)
    alike = Family.NOTHING in (family, other_family) or (
        kind == other_kind if family is Family.TIME else family is other_family
    )
    if not alike:
        refuse(other.position, f"{column} is {kind} and {other} is {other_kind}", "compare columns of like types")


def _check_value(column: Column, family: Family, value: Value) -> None:
    given = value.given
    if family is Family.NOTHING:
        return
    if isinstance(given, bool):
        fits = family is Family.TRUTH
    elif isinstance(given, str):
        fits = family in (Family.TEXT, Family.TIME)
    else:
        fits = family is Family.NUMBER
    if not fits:
        refuse(value.position, f"{column} has {family.value}, and {value} is none", f"write {_EXAMPLES[family]}")
    if family is Family.TIME:
        try:
            time_us(str(given))
        except ValueError:
            refuse(value.position, f"{column} has times, and {value} is none", f"write {_EXAMPLES[family]}")


def _order(value: Value, family: Family) -> Any:
    return time_us(str(value.given)) if family is Family.TIME else value.given


def _remedy(column: Column, family: Family) -> str:
    return f"compare it with {_EXAMPLES[family]}, as in {column} = ..."
