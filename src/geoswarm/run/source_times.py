"""The column `ts` of a source as a timestamp: from text and from numbers, whose unit is declared and never guessed.

| type of `ts` | is read as |
|---|---|
| a timestamp of any unit and zone, a date | itself, UTC without a zone, cut off to microseconds |
| text | ISO 8601, UTC without a zone; with a unit a number in text |
| a number | so many of `ts_unit` since 1970 began in UTC; without a unit it is refused before the start |

A value that is no time makes its row malformed, with the value. JSON without a unit is read by `json_values.py`.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools
from geoswarm.errors import SchemaError, SettingsError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import FIRST_US, LAST_US, TIMESTAMP
from geoswarm.parameters import suggestion
from geoswarm.run.json_values import read_moment

TsUnit = Literal["s", "ms", "us", "ns", "text"]
TS = "ts"
US_OF: dict[str, Decimal] = {"s": Decimal(1_000_000), "ms": Decimal(1000), "us": Decimal(1), "ns": Decimal("0.001")}
"""Microseconds in a unit."""
IN_TEXT: dict[str, pa.DataType] = {
    "s": pa.float64(),
    "ms": pa.float64(),
    "us": pa.int64(),
    "ns": pa.int64(),
    "text": pa.string(),
}
"""The type in which JSON and CSV are read first. A double has the microseconds of seconds and milliseconds exactly."""
_SHOWN_CHARS_MAX = 200
_EXPONENT_MAX = 30
"""Of a number in text: beyond any time, and arithmetic with a million digits takes long, or ends in an error."""
_DAY = r"^[12]\d{3}-\d\d-\d\d"
_YEAR_TO_SECOND = _DAY + r"[ T]\d\d:\d\d:\d\d(\.\d{1,6})?"
_IN_ZONE = _YEAR_TO_SECOND + r"(Z|[+-](0\d|1[0-7]):?[0-5]\d)$"


def check_unit(unit: str | None) -> TsUnit | None:
    if unit is not None and unit not in get_args(TsUnit):
        raise SettingsError(f"ts_unit cannot be {unit!r}: {suggestion(unit, list(get_args(TsUnit)))}")
    return cast("TsUnit | None", unit)


def timed(source: pa.Schema, unit: TsUnit | None) -> pa.Schema:
    """The columns once `ts` is a timestamp; raises SchemaError where its unit is not known, or cannot be meant."""
    at = source.get_field_index(TS)
    if at < 0:
        if unit is not None:
            raise SchemaError(f"ts_unit is given, and there is no column ts, only {', '.join(source.names)}: name it")
        return source
    kind = source.field(at).type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        if unit is not None:
            raise SchemaError(f"column ts of events is {kind}, which has its unit: leave ts_unit out")
        return source
    if not (_is_text(kind) or _is_number(kind)):
        raise SchemaError(f"column ts of events is {kind}, wanted is a timestamp, a text or a number: cast it")
    if _is_number(kind) and unit in (None, "text"):
        raise SchemaError(
            f"column ts of events is {kind}, and its unit is not known: say ts_unit = 's', 'ms', 'us' or 'ns' since "
            "1970, or cast it to a timestamp"
        )
    return source.set(at, pa.field(TS, TIMESTAMP))


def read_times(batch: pa.RecordBatch, unit: TsUnit | None) -> pa.RecordBatch:
    """The batch with `ts` as a timestamp. Rows whose `ts` is no time say so in MALFORMED, which may be added."""
    at = batch.schema.get_field_index(TS)
    if at < 0:
        return batch
    column = batch.column(at)
    kind = column.type
    if pa.types.is_timestamp(kind):
        if kind.unit != "ns":
            return batch
        us = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000
        times = pa.array(us, pa.int64(), mask=np.asarray(column.is_null())).cast(pa.timestamp("us", kind.tz))
        bad = None
    elif _is_text(kind) and unit in (None, "text"):
        times, bad = _from_text(column)
    elif (_is_text(kind) or _is_number(kind)) and unit not in (None, "text"):
        assert unit is not None
        times, bad = _from_numbers(column, unit)
    elif _is_number(kind):  # of a file that differs from the first one
        times, bad = pa.nulls(len(batch), TIMESTAMP), np.asarray(column.is_valid())
    else:
        return batch  # a date, or what a cast refuses
    marked = batch if bad is None or not bad.any() else _with_malformed(batch, bad, _complaint(kind, unit))
    return marked.set_column(marked.schema.get_field_index(TS), pa.field(TS, times.type), times)


def _complaint(kind: pa.DataType, unit: TsUnit | None) -> str:
    if unit not in (None, "text"):
        return f"ts is no time in {unit} since 1970, of the years 1 to 9999"
    return "ts is a number without a unit: say ts_unit" if _is_number(kind) else "ts is no time by ISO 8601"


def _with_malformed(batch: pa.RecordBatch, bad: Bools, why: str) -> pa.RecordBatch:
    texts: list[str | None] = [None] * len(batch)
    if MALFORMED in batch.schema.names:
        texts = batch.column(MALFORMED).to_pylist()
        batch = batch.drop_columns([MALFORMED])
    for row in np.flatnonzero(bad).tolist():
        values = {name: shown(batch.column(name)[row]) for name in batch.schema.names}
        texts[row] = texts[row] or f"{json.dumps(values, ensure_ascii=False)}: {why}"
    return batch.append_column(pa.field(MALFORMED, pa.string()), pa.array(texts, pa.string()))


def shown(value: pa.Scalar) -> str:
    """A value in the text of a malformed row. A text in Parquet may be no UTF-8."""
    try:
        return str(value)[:_SHOWN_CHARS_MAX]
    except UnicodeDecodeError:
        return "(no UTF-8)"


# -- numbers


def _from_numbers(column: pa.Array, unit: str) -> tuple[pa.Array, Bools]:
    """The times, null where there is none; and which values are no time."""
    if pa.types.is_integer(column.type) and unit != "s":
        us, fits = _whole(column.cast(pa.int64()), unit) if column.type != pa.uint64() else _each(column, _exact(unit))
    elif pa.types.is_floating(column.type) or (pa.types.is_integer(column.type) and column.type != pa.uint64()):
        values = column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore", invalid="ignore"):
            real = np.rint(values * float(US_OF[unit]))
        fits = np.isfinite(real) & (real >= FIRST_US) & (real <= LAST_US)
        us = np.where(fits, real, 0).astype(np.int64)
    else:
        us, fits = _each(column, _exact(unit))
    valid = np.asarray(column.is_valid())
    times = pa.array(us, pa.int64(), mask=~(fits & valid)).cast(TIMESTAMP)
    return times, valid & ~fits


def _whole(column: pa.Array, unit: str) -> tuple[Any, Bools]:
    """Integers of milliseconds or less, exactly."""
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    if unit == "ns":
        us = values // 1000
        return us, (us >= FIRST_US) & (us <= LAST_US)
    factor = int(US_OF[unit])
    fits = (values >= -(-FIRST_US // factor)) & (values <= LAST_US // factor)
    return np.where(fits, values, 0) * factor, fits


def _exact(unit: str) -> Callable[[Any], int]:
    def microseconds(value: Any) -> int:
        number = Decimal(str(value).strip())
        if not number.is_finite() or number.adjusted() > _EXPONENT_MAX:
            raise ValueError(value)
        return int((number * US_OF[unit]).to_integral_value())

    return microseconds


def _each(column: pa.Array, read: Callable[[Any], int]) -> tuple[Any, Bools]:
    """Value by value: numbers in text, decimals."""
    us, fits = np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)
    if _is_text(column.type):
        column = column.cast(pa.large_binary())  # it may be no UTF-8
    for row, value in enumerate(column.to_pylist()):
        try:
            value = value.decode() if isinstance(value, bytes) else value
            found = read(value) if value is not None else FIRST_US - 1
        except (ValueError, InvalidOperation, OverflowError):
            continue
        fits[row] = FIRST_US <= found <= LAST_US
        us[row] = found if fits[row] else 0
    return us, fits


# -- text


def _from_text(column: pa.Array) -> tuple[pa.Array, Bools | None]:
    try:
        return quick_times(column), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        us, fits = _each(column.cast(pa.string()), _moment_us)
        valid = np.asarray(column.is_valid())
        return pa.array(us, pa.int64(), mask=~(fits & valid)).cast(TIMESTAMP), valid & ~fits


def quick_times(column: Any, kind: pa.DataType = TIMESTAMP) -> Any:
    """The times of a column of texts that are all of one form; raises ArrowInvalid if they are not."""
    if not _has_form(column, _IN_ZONE):
        _expect(column, _YEAR_TO_SECOND + "$")
        column = pc.binary_join_element_wise(column, "Z", "")
    return column.cast(kind)


def expect_day(column: Any) -> None:
    _expect(column, _DAY + "$")


def _has_form(column: Any, form: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, form), min_count=0).as_py())


def _expect(column: Any, form: str) -> None:
    if not _has_form(column, form):
        raise pa.ArrowInvalid("times of several forms, or of one for which the quick way is not made")


def _moment_us(text: str) -> int:
    since = read_moment(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
