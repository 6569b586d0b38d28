"""Read messages, one JSON object each, as an Arrow batch with given columns: many at once, with Arrow's reader.

A message that cannot be parsed is in the column MALFORMED with its text, and its other columns are null. It does not
spoil its neighbours: messages whose brackets do not match are set aside before (`message_kernels.py`), and where Arrow
refuses a block, its halves are read, and in the end single messages (`json_values.py`, which has the rules). What a
message gives never depends on its neighbours: the quick way takes nothing that the slow way would not take.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from geoswarm.core.arrays.jit import Bools, read_only
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run.columns import PLAIN, Columns, id_forms
from geoswarm.run.json_values import DEPTH_MAX, DIGITS_MAX, read_row
from geoswarm.run.made_ids import message_ids
from geoswarm.run.message_kernels import find_objects
from geoswarm.run.source_times import expect_day, quick_times
from geoswarm.run.undeclared import with_extra

VALUE = "value"
"""The column in which Spark gives the bytes of a message."""
PLACE = ("partition", "offset")
"""The columns with the place of a message in its topic, which are there where ids are made of it."""
NO_VALUE = "(no value)"
"""The text of a message without a value, as Kafka has for keys that were deleted."""
BLOCK_BYTES_MAX = 256 << 20
"""Bytes that Arrow parses at once; it counts them with 32 bits."""
SINGLE_MAX = 32
"""Messages of a refused block that are read one by one, rather than in halves."""

_AS_TEXT, _AS_SECONDS = pa.string(), pa.int64()
"""How times may be written: all of a block as ISO 8601, or all in seconds since 1970."""
Forms = tuple[pa.DataType, Mapping[str, pa.DataType]]
"""How all times of a block are written, and how all ids in a column are, which may be texts or integers."""


def read_message_rows(messages: pa.RecordBatch, schema: pa.Schema, columns: Columns = PLAIN) -> pa.RecordBatch:
    """The same for messages with their values and, where ids are made, their places; and with what is not declared."""
    values = messages.column(VALUE)
    rows = read_messages(values, schema, columns)
    if columns.has_extra:
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        places = offsets.astype(np.int64)
        rows = with_extra(rows, values.buffers()[2], places[:-1], places[1:], columns)
    return message_ids(rows, *(messages.column(name) for name in PLACE)) if columns.makes_ids else rows


def read_messages(values: pa.BinaryArray, schema: pa.Schema, columns: Columns = PLAIN) -> pa.RecordBatch:
    """One row per message. `schema` has MALFORMED; its other columns are numbers, texts, times, days or Booleans.
    `columns` says where they are in the objects."""
    values = _as_utf8(values)
    sound = _sound(values)
    if sound.all():
        tables = list(_read_blocks(values, schema, columns))
    else:
        quick = _read_blocks(values.filter(pa.array(sound)), schema, columns)
        tables = [*quick, _read_singly(values.filter(pa.array(~sound)), schema, columns)]
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


def _read_blocks(values: pa.BinaryArray, schema: pa.Schema, columns: Columns) -> Iterator[pa.Table]:
    """`values` are objects, by their brackets."""
    if not len(values):
        return
    if values.nbytes <= BLOCK_BYTES_MAX or len(values) == 1:
        for forms in forms_of(columns.raw(schema)):
            try:
                yield _read_block(values, schema, columns, forms)
                return
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                pass
        if len(values) <= SINGLE_MAX:
            yield _read_singly(values, schema, columns)
            return
    half = len(values) // 2
    yield from _read_blocks(values.slice(0, half), schema, columns)
    yield from _read_blocks(values.slice(half), schema, columns)


def forms_of(fields: Sequence[pa.Field]) -> list[Forms]:
    """All forms to try, the most usual one first. What Arrow refuses, it refuses at the first value."""
    has_times = any(pa.types.is_timestamp(field.type) for field in fields)
    times = (_AS_TEXT, _AS_SECONDS) if has_times else (_AS_TEXT,)
    return [(form, ids) for form in times for ids in id_forms(fields)]


def _read_block(values: pa.BinaryArray, schema: pa.Schema, columns: Columns, forms: Forms) -> pa.Table:
    """All messages at once; raises ArrowInvalid if one of them is not what the quick way takes."""
    wanted = columns.nest([_as_read(field, forms) for field in columns.raw(schema)])
    begin, end = (values.buffers()[1].slice(4 * (values.offset + i), 4) for i in (0, len(values)))
    first, last = (int.from_bytes(bytes(place), "little") for place in (begin, end))
    data = values.buffers()[2].slice(first, last - first)
    options = pajson.ParseOptions(explicit_schema=pa.schema(wanted), unexpected_field_behavior="ignore")
    reading = pajson.ReadOptions(block_size=len(data) + 1, use_threads=False)
    table = pajson.read_json(pa.BufferReader(data), reading, options)
    if len(table) != len(values):
        raise pa.ArrowInvalid(f"{len(values)} messages gave {len(table)} rows")
    return _as_declared(columns.ours(table, schema), schema)


def _as_declared(table: pa.Table, schema: pa.Schema) -> pa.Table:
    found = [
        _cast(table.column(field.name), field.type)
        if field.name in table.schema.names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(found, schema=schema)


def _as_read(field: pa.Field, forms: Forms) -> pa.Field:
    """The field as Arrow reads it: times and days are converted later, since it knows other forms of them."""
    times, ids = forms
    if pa.types.is_timestamp(field.type):
        return field.with_type(times)
    if field.name in ids:
        return field.with_type(ids[field.name])
    return field.with_type(pa.string()) if pa.types.is_date(field.type) else field


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    if pa.types.is_string(kind):
        return column.cast(kind)  # integers that are ids
    if column.type == _AS_SECONDS:
        return pc.multiply_checked(column, 1_000_000).cast(kind)
    if pa.types.is_date(kind):
        expect_day(column)
        return column.cast(kind)
    return quick_times(column, kind)


def _read_singly(values: pa.BinaryArray, schema: pa.Schema, columns: Columns) -> pa.Table:
    fields = columns.nest(columns.raw(schema))
    rows: Sequence[dict[str, Any]] = [
        {MALFORMED: NO_VALUE} if value is None else read_row(value.decode(), fields) for value in values.to_pylist()
    ]
    if columns == PLAIN:
        return pa.Table.from_pylist(list(rows), schema)
    table = pa.Table.from_pylist(list(rows), pa.schema([*fields, pa.field(MALFORMED, pa.string())]))
    return _as_declared(columns.ours(table, schema), schema)
