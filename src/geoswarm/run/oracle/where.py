"""The obvious answer to a condition on rows: one row at a time, in Python's own numbers, None for unknown."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa

from geoswarm.core.where.clause import And, Between, Clause, Column, Compare, In, IsNull, IsTrue, Like, Not, Or, Value


def chosen_rows(clause: Clause, rows: pa.Table) -> pa.Table:
    return rows.filter(pa.array([truth(clause, row) is True for row in rows.to_pylist()], pa.bool_()))


def truth(clause: Clause, row: Mapping[str, Any]) -> bool | None:
    """A column that the row does not have is null there."""
    if isinstance(clause, Not):
        inner = truth(clause.part, row)
        return None if inner is None else not inner
    if isinstance(clause, And | Or):
        found = [truth(part, row) for part in clause.parts]
        settles = isinstance(clause, Or)
        return settles if settles in found else None if None in found else not settles
    left = _plain(row.get(clause.column.name))
    if isinstance(clause, IsNull):
        return left is None
    if left is None:
        return None
    if isinstance(clause, IsTrue):
        return bool(left)
    if isinstance(clause, Like):
        return _is_like(left, str(clause.pattern.given))
    if isinstance(clause, Between):
        return bool(_given(clause.low, left) <= left <= _given(clause.high, left))
    if isinstance(clause, In):
        return any(left == _given(value, left) for value in clause.values)
    return _compare(clause, left, row)


def _compare(test: Compare, left: Any, row: Mapping[str, Any]) -> bool | None:
    if isinstance(test.other, Column):
        right = _plain(row.get(test.other.name))
        if isinstance(left, float) or isinstance(right, float):  # an integer column is compared with floats as float64
            left, right = float(left), None if right is None else float(right)
    else:
        right = _given(test.other, left)
    if right is None:
        return None
    found = {
        "=": lambda: left == right,
        "<>": lambda: left != right,
        "<": lambda: left < right,
        "<=": lambda: left <= right,
        ">": lambda: left > right,
        ">=": lambda: left >= right,
    }[test.comparison]()
    return bool(found)


def _plain(value: Any) -> Any:
    """Times in UTC."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return datetime.combine(value, time(), UTC) if isinstance(value, date) else value


def _given(value: Value, beside: Any) -> Any:
    """The value as one of those that it is compared with."""
    return _plain(datetime.fromisoformat(str(value.given))) if isinstance(beside, datetime) else value.given


def _is_like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(_is_like(text[skipped:], pattern[1:]) for skipped in range(len(text) + 1))
    if not text:
        return False
    if pattern[0] == "_":
        return _is_like(text[1:], pattern[1:])
    literal, rest = (pattern[1], pattern[2:]) if pattern[0] == "\\" else (pattern[0], pattern[1:])
    return text[0] == literal and _is_like(text[1:], rest)
