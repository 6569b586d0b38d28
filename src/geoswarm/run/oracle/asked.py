"""What a row of operations asks for, read the obvious way; None, or False beside it, where it cannot be read."""

import json
from datetime import datetime

import pyarrow as pa

from geoswarm.core.aggregates.spec import AggregateSpec, read_spec
from geoswarm.core.text.expression import Expression, parse
from geoswarm.core.where.clause import Clause
from geoswarm.core.where.read import read_where
from geoswarm.core.where.types import check_where
from geoswarm.errors import InputError


def read_on(on: object) -> str | float | None:
    """The value of `on`; None if it cannot be read."""
    text = "inside" if on is None else str(on).strip()
    if text in ("inside", "enter", "exit", "cross"):
        return text
    try:
        seconds = float(text.removeprefix("dwell(").removesuffix(")"))
    except ValueError:
        return None
    is_call = text.startswith("dwell(") and text.endswith(")")
    return seconds if is_call and 0 <= seconds <= 1e9 else None


def read_counted(row: dict[str, object]) -> tuple[AggregateSpec | None, bool]:
    """What is counted, and whether it can be read."""
    said = [row.get(name) for name in ("aggregate", "window", "group_by", "when")]
    aggregate, window, group_by, when = (None if one is None else str(one) for one in said)
    if aggregate is None:
        return None, said == [None] * 4
    try:
        return read_spec(aggregate, window or "", group_by, when), True
    except InputError:
        return None, False


def read_since(since: object, now_us: int) -> int | None:
    """A time, or so many seconds ago, in microseconds; None if it cannot be read."""
    text = "0 s" if since is None else str(since)
    try:
        if text.endswith(" s"):
            return now_us - int(float(text.removesuffix(" s")) * 1e6)
        return int(datetime.fromisoformat(text).timestamp() * 1e6)
    except ValueError:
        return None


def is_json(payload: object) -> bool:
    """Whether a payload is JSON, or there is none."""
    try:
        json.loads("null" if payload is None else str(payload))
    except ValueError:
        return False
    return True


def read_condition(text: object) -> tuple[Clause | None, bool]:
    """The condition, and whether it can be read."""
    try:
        return (None if text is None else read_where(str(text))), True
    except InputError:
        return None, False


def can_compare(where: Clause, columns: pa.Schema) -> bool:
    """Whether all columns that the condition names are there, and can be compared with what it says."""
    try:
        check_where(where, columns)
    except InputError:
        return False
    return True


def read_objects(text: object) -> tuple[set[str] | None, bool]:
    """The names of a list of objects, and whether it can be read."""
    try:
        given = None if text is None else json.loads(str(text))
    except ValueError:
        return None, False
    if given is None:
        return None, text is None
    fine = isinstance(given, list) and given and all(type(one) in (int, str) and one != "" for one in given)
    return ({str(one) for one in given}, True) if fine else (None, False)


def read_words(keywords: object) -> tuple[Expression | None, bool]:
    """The expression of the keywords, and whether they can be read."""
    try:
        return (None if keywords is None else parse(str(keywords))), True
    except InputError:
        return None, False
