"""One JSON object as a row of given columns: the slow way, value by value, with the rules of Spark's `from_json`.

`file_reading.py` and `message_reading.py` have the quick way, and come here with what that refuses. A value that would
have to be guessed makes its row malformed: a number in quotes, 1.0 for an integer, an integer out of range.

Stricter than Spark in what is no JSON object by RFC 8259: apostrophes for quotes, bare INF, text behind the object,
which Spark leaves out without a word. And in times: hours without a day, a day as a number in quotes, years of other
than four digits; and in objects more than DEPTH_MAX deep, of which Spark takes twice as many.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from geoswarm.flow.dead_letters import MALFORMED

DEPTH_MAX = 500
"""Objects and arrays within each other; Python's parser gives up somewhere below a thousand."""
DIGITS_MAX = 1000
"""Characters of a number, as in Spark. The time to read one grows with their square."""
SPECIAL = {
    "NaN": math.nan,
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
}
_BLANK = " \t\r\n"
_DAY = r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_DATE = re.compile(rf"{_DAY}(?:[ T].*)?)?)?", re.DOTALL)
_TIME = re.compile(
    rf"{_DAY}(?:[ T]([0-9]{{1,2}})(?::([0-9]{{1,2}})(?::([0-9]{{1,2}})(?:\.([0-9]*))?\s*(.*))?)?)?)?)?", re.DOTALL
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_OFFSET_MAX = timedelta(hours=18)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object, with all its keys in their order, also where one comes twice."""


def read_row(text: str, fields: Iterable[pa.Field]) -> dict[str, Any]:
    """The values of the columns, or the text in MALFORMED. Of a key that comes twice, the last value counts; a row
    of blanks has no values."""
    if not text.strip(_BLANK):
        return {}
    kinds = {field.name: field.type for field in fields}
    try:
        parsed = _DECODER.decode(text.strip(_BLANK))
        if not isinstance(parsed, _Pairs) or _is_too_deep(text, parsed):
            return {MALFORMED: text}
        return _values(parsed, kinds)
    except (ValueError, OverflowError, RecursionError):
        return {MALFORMED: text}


def _values(parsed: _Pairs, kinds: Mapping[str, pa.DataType]) -> dict[str, Any]:
    return {name: _convert(value, kinds[name]) for name, value in parsed if name in kinds}


def _is_too_deep(text: str, parsed: Any) -> bool:
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    level = [parsed]
    for _ in range(DEPTH_MAX):
        level = [inner for value in level for inner in _within(value)]
    return any(isinstance(value, list) for value in level)


def _within(value: Any) -> Iterable[Any]:
    """The values in an object or array; none in others."""
    return (inner for _, inner in value) if isinstance(value, _Pairs) else value if isinstance(value, list) else ()


def _integer(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise ValueError("too many digits")
    return int(text)


def _real(text: str) -> float:
    if len(text) > DIGITS_MAX:
        raise ValueError("too many digits")
    return float(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=_integer, parse_float=_real)


def _convert(value: Any, kind: pa.DataType) -> Any:
    """The value in the type of the column; raises ValueError if the conversion would be a guess."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return (value if isinstance(value, str) else _text_of(value)).encode(errors="replace").decode()
    if pa.types.is_binary(kind) and isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        if pa.types.is_boolean(kind):
            return value
    elif pa.types.is_struct(kind):
        if isinstance(value, _Pairs):
            return _values(value, {field.name: field.type for field in kind})
    elif pa.types.is_integer(kind) and isinstance(value, int):
        return _in_range(value, kind)
    elif pa.types.is_floating(kind):
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str) and value in SPECIAL:
            return SPECIAL[value]
    elif pa.types.is_timestamp(kind):
        if isinstance(value, str):
            return read_moment(value)
        if isinstance(value, int):
            return _in_range(value * 1_000_000, pa.int64())
    elif pa.types.is_date(kind) and isinstance(value, str):
        return read_day(value)
    raise ValueError(value)


def _in_range(value: int, kind: pa.DataType) -> int:
    if not -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1:
        raise ValueError(value)
    return value


def read_moment(text: str) -> datetime:
    """A time by ISO 8601, or with fewer digits; without a zone it is UTC. What is finer than a microsecond is cut
    off."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    return datetime(
        int(year),
        int(month or 1),
        int(day or 1),
        int(hour or 0),
        int(minute or 0),
        int(second or 0),
        int((fraction or "")[:6].ljust(6, "0")),
        tzinfo=_zone(zone) if zone else UTC,
    )


def read_day(text: str) -> date:
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    year, month, day = found.groups()
    return date(int(year), int(month or 1), int(day or 1))


def _zone(text: str) -> Any:
    if text in ("Z", "UTC", "GMT", "UT"):
        return UTC
    found = _OFFSET.fullmatch(text)
    if found is None:
        try:
            return ZoneInfo(text)
        except (KeyError, OSError) as why:
            raise ValueError(text) from why
    sign, hours, minutes, seconds = found.groups()
    if int(minutes or 0) > 59 or int(seconds or 0) > 59:
        raise ValueError(text)
    offset = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
    if offset > _OFFSET_MAX:
        raise ValueError(text)
    return timezone(-offset if sign == "-" else offset)


# -- text of values that are no text


def _text_of(value: Any) -> str:
    """JSON without blanks, with numbers as Java writes them (from 19 on; before, the last digit may be another)."""
    if isinstance(value, _Pairs):
        return "{" + ",".join(f"{_text_of(name)}:{_text_of(inner)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text_of, value)) + "]"
    if isinstance(value, float):
        return _text_of_real(value)
    return json.dumps(value, ensure_ascii=False)


def _text_of_real(value: float) -> str:
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f")
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    tail = shown[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{shown[0]}.{tail}E{exponent + len(shown) - 1}"
