"""Read messages, one JSON object each, as an Arrow batch with given columns: many at once, with Arrow's reader.

A message that cannot be parsed is in the column MALFORMED with its text, and its other columns are null. It does not
spoil its neighbours: messages whose brackets do not match are set aside before (`message_kernels.py`), and where Arrow
refuses a block, its halves are read, and in the end single messages (`json_values.py`, which has the rules). What a
message gives never depends on its neighbours: the quick way takes nothing that the slow way would not take.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from geoswarm.core.arrays.jit import Bools, read_only
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run.json_values import DEPTH_MAX, DIGITS_MAX, read_row
from geoswarm.run.message_kernels import find_objects

VALUE = "value"
"""The column in which Spark gives the bytes of a message."""
NO_VALUE = "(no value)"
"""The text of a message without a value, as Kafka has for keys that were deleted."""
BLOCK_BYTES_MAX = 256 << 20
"""Bytes that Arrow parses at once; it counts them with 32 bits."""
SINGLE_MAX = 32
"""Messages of a refused block that are read one by one, rather than in halves."""

_DAY = r"^[12]\d{3}-\d\d-\d\d"
_YEAR_TO_SECOND = _DAY + r"[ T]\d\d:\d\d:\d\d(\.\d{1,6})?"
_IN_ZONE = _YEAR_TO_SECOND + r"(Z|[+-](0\d|1[0-7]):?[0-5]\d)$"
_AS_TEXT, _AS_SECONDS = pa.string(), pa.int64()
"""How times may be written: all of a block as ISO 8601, or all in seconds since 1970."""


def read_messages(values: pa.BinaryArray, schema: pa.Schema) -> pa.RecordBatch:
    """One row per message. `schema` has MALFORMED; its other columns are numbers, texts, times, days or Booleans."""
    values = _as_utf8(values)
    sound = _sound(values)
    if sound.all():
        tables = list(_read_blocks(values, schema))
    else:
        quick = _read_blocks(values.filter(pa.array(sound)), schema)
        tables = [*quick, _read_singly(values.filter(pa.array(~sound)), schema)]
    table = pa.concat_tables([schema.empty_table(), *tables])
    if not sound.all():
        table = table.take(pa.array(np.argsort(np.argsort(~sound, kind="stable"), kind="stable")))
    return (table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema)])[0]


def _as_utf8(values: pa.BinaryArray) -> pa.BinaryArray:
    """The values, in which U+FFFD replaces what is no UTF-8."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        repaired = [v if v is None else v.decode(errors="replace").encode() for v in values.to_pylist()]
        return pa.array(repaired, pa.binary())
    return values


def _sound(values: pa.BinaryArray) -> Bools:
    sound = np.zeros(len(values), np.bool_)
    if len(values):
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        data = values.buffers()[2]
        if data is not None:  # null if all values are
            as_bytes = read_only(np.frombuffer(data, np.uint8))
            find_objects(as_bytes, read_only(offsets.astype(np.int64)), DEPTH_MAX, DIGITS_MAX, sound)
    return sound


def _read_blocks(values: pa.BinaryArray, schema: pa.Schema) -> Iterator[pa.Table]:
    """`values` are objects, by their brackets."""
    if not len(values):
        return
    if values.nbytes <= BLOCK_BYTES_MAX or len(values) == 1:
        for times in (_AS_TEXT, _AS_SECONDS):
            try:
                yield _read_block(values, schema, times)
                return
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                pass
        if len(values) <= SINGLE_MAX:
            yield _read_singly(values, schema)
            return
    half = len(values) // 2
    yield from _read_blocks(values.slice(0, half), schema)
    yield from _read_blocks(values.slice(half), schema)


def _read_block(values: pa.BinaryArray, schema: pa.Schema, times: pa.DataType) -> pa.Table:
    """All messages at once; raises ArrowInvalid if one of them is not what the quick way takes."""
    wanted = [_as_read(field, times) for field in schema if field.name != MALFORMED]
    begin, end = (values.buffers()[1].slice(4 * (values.offset + i), 4) for i in (0, len(values)))
    first, last = (int.from_bytes(bytes(place), "little") for place in (begin, end))
    data = values.buffers()[2].slice(first, last - first)
    options = pajson.ParseOptions(explicit_schema=pa.schema(wanted), unexpected_field_behavior="ignore")
    reading = pajson.ReadOptions(block_size=len(data) + 1, use_threads=False)
    table = pajson.read_json(pa.BufferReader(data), reading, options)
    if len(table) != len(values):
        raise pa.ArrowInvalid(f"{len(values)} messages gave {len(table)} rows")
    columns = [
        pa.nulls(len(table), pa.string()) if field.name == MALFORMED else _cast(table.column(field.name), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _as_read(field: pa.Field, times: pa.DataType) -> pa.Field:
    """The field as Arrow reads it: times and days are converted later, since it knows other forms of them."""
    if pa.types.is_timestamp(field.type):
        return field.with_type(times)
    return field.with_type(pa.string()) if pa.types.is_date(field.type) else field


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    if column.type == _AS_SECONDS:
        return pc.multiply_checked(column, 1_000_000).cast(kind)
    if pa.types.is_date(kind):
        _expect(column, _DAY + "$")
    elif not _has_form(column, _IN_ZONE):
        _expect(column, _YEAR_TO_SECOND + "$")
        column = pc.binary_join_element_wise(column, "Z", "")
    return column.cast(kind)


def _has_form(column: pa.ChunkedArray, form: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, form), min_count=0).as_py())


def _expect(column: pa.ChunkedArray, form: str) -> None:
    if not _has_form(column, form):
        raise pa.ArrowInvalid("times of several forms, or of one for which the quick way is not made")


def _read_singly(values: pa.BinaryArray, schema: pa.Schema) -> pa.Table:
    fields = [field for field in schema if field.name != MALFORMED]
    rows: Sequence[dict[str, Any]] = [
        {MALFORMED: NO_VALUE} if value is None else read_row(value.decode(), fields) for value in values.to_pylist()
    ]
    return pa.Table.from_pylist(list(rows), schema)
