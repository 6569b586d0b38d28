"""Read files, or parts of them, as Arrow batches with given columns: Parquet, JSON lines and CSV, plain or compressed.

A row of text that cannot be parsed is not lost: its text is in the column MALFORMED, and its other columns are null. A
file is read at once; only if that fails, row by row. A file that is damaged or gone is such a row itself, with its
name, after all that could be read of it: one bad file does not end a stream.

A file may have other columns than the first one had: those that are missing are null, further ones are left out, and
values of another type are converted, or, where they cannot be, their rows are malformed.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from geoswarm.errors import SchemaError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import OBJECT
from geoswarm.run.columns import PLAIN, Columns, id_forms
from geoswarm.run.file_formats import COMPRESSED, FOREIGN
from geoswarm.run.json_values import SPECIAL, read_day, read_moment, read_row
from geoswarm.run.parquet_reading import ROWS_AT_ONCE, read_parquet
from geoswarm.run.source_times import TS

CHUNK_BYTES = 256 << 20
FIELD_CHARS_MAX = 1 << 30
_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPE = "\\"
"""Before a quote within quotes, as Spark writes it; a quote twice is one, too."""
_ZONE = r"(Z|[+-]\d\d:?\d\d)$"


class Piece(NamedTuple):
    """A file, or a part of it that can be read by itself."""

    path: str
    first: int = 0
    """The first row group of Parquet, or the first byte of lines."""
    end: int | None = None
    """Behind the last; None for the whole file."""


def read_piece(piece: Piece, kind: str, schema: pa.Schema, columns: Columns = PLAIN) -> Iterator[pa.RecordBatch]:
    """`schema` has MALFORMED; `columns` says where its columns are in the file."""
    try:
        if kind == "parquet":
            yield from read_parquet(piece.path, piece.first, piece.end, schema, columns)
        else:
            for table in _read_text(piece, kind, schema, columns):
                yield from table.to_batches(ROWS_AT_ONCE)
    except (FileNotFoundError, pa.ArrowInvalid, pa.ArrowNotImplementedError, csv.Error, SchemaError) as why:
        yield _unreadable(piece, why, schema)
    except OSError as why:
        if why.errno is not None:  # of the machine, not of the file: the task is tried again
            raise
        yield _unreadable(piece, why, schema)


def _unreadable(piece: Piece, why: Exception, schema: pa.Schema) -> pa.RecordBatch:
    text = f"file {piece.path} cannot be read, or not to its end: {why}"
    return pa.RecordBatch.from_pylist([{MALFORMED: text}], schema=schema)


def _read_text(piece: Piece, kind: str, schema: pa.Schema, columns: Columns) -> Iterator[pa.Table]:
    if kind == "csv":
        yield _read_csv(_read_whole(piece.path), schema, columns)
    else:
        yield from (_read_json(chunk, schema, columns) for chunk in _chunks(_read_lines(piece)))


def _read_whole(path: str) -> bytes:
    if path.endswith(FOREIGN):
        raise pa.ArrowInvalid(f"it is compressed in a way that only Spark reads: write {', '.join(COMPRESSED)}")
    with pa.input_stream(path, compression="detect") as stream:
        return bytes(stream.read())


def _read_lines(piece: Piece) -> bytes:
    """The lines that begin in the piece."""
    if piece.end is None:
        return _read_whole(piece.path)
    with Path(piece.path).open("rb") as file:
        file.seek(max(0, piece.first - 1))
        if piece.first:
            file.readline()  # it belongs to the piece before, unless that ends with its line
        begin = file.tell()
        if begin >= piece.end:
            return b""
        return file.read(piece.end - begin) + (b"" if _ends_line(file, piece.end) else file.readline())


def _ends_line(file: BinaryIO, end: int) -> bool:
    file.seek(end - 1)
    return file.read(1) in (b"\n", b"")


# -- JSON lines


def _chunks(data: bytes) -> Iterator[bytes]:
    """Parts of whole lines, none of them larger than Arrow can parse at once."""
    first = 0
    while first < len(data):
        end = len(data) if len(data) - first <= CHUNK_BYTES else data.find(b"\n", first + CHUNK_BYTES) + 1 or len(data)
        yield data[first:end] if (first, end) != (0, len(data)) else data
        first = end


def _read_json(data: bytes, schema: pa.Schema, columns: Columns) -> pa.Table:
    if not data.strip():
        return schema.empty_table()
    reading = pajson.ReadOptions(block_size=len(data) + 1, use_threads=False)
    for ids in id_forms(columns.raw(schema)):
        wanted = pa.schema(columns.nest([_as_read(field, ids) for field in columns.raw(schema)]))
        options = pajson.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
        try:
            table = pajson.read_json(io.BytesIO(data), reading, options)
            return _cast_columns(columns.ours(table, schema), schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    lines = (line for line in _LINE_END.split(data.decode("utf-8-sig", errors="replace")) if line.strip())
    fields = columns.nest(columns.raw(schema))
    raw = pa.schema([*fields, pa.field(MALFORMED, pa.string())])
    made = pa.Table.from_pylist([read_row(line, fields) for line in lines], raw)
    return _cast_columns(columns.ours(made, schema), schema)


def _as_read(field: pa.Field, ids: pa.DataType) -> pa.Field:
    """The field to read as text first, if it is a time: Arrow's reader refuses times without a zone."""
    if field.name == OBJECT.name and pa.types.is_string(field.type):
        return field.with_type(ids)
    return pa.field(field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type)


# -- CSV


def _read_csv(data: bytes, schema: pa.Schema, columns: Columns) -> pa.Table:
    if not data.strip():
        return schema.empty_table()
    raw = columns.raw(schema)
    headings = {columns.flat().path(field.name)[0]: field for field in raw}
    convert = pacsv.ConvertOptions(
        column_types={heading: _read_as(field) for heading, field in headings.items()},
        include_columns=list(headings),
        include_missing_columns=True,
        strings_can_be_null=True,
        null_values=[""],
        quoted_strings_can_be_null=False,
    )
    try:
        parse = pacsv.ParseOptions(escape_char=_ESCAPE)
        table = pacsv.read_csv(io.BytesIO(data), pacsv.ReadOptions(use_threads=False), parse, convert)
        return _cast_columns(columns.with_times(table.rename_columns([field.name for field in raw])), schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        csv.field_size_limit(FIELD_CHARS_MAX)
        rows = csv.reader(io.StringIO(data.decode("utf-8-sig", errors="replace")), escapechar=_ESCAPE)
        header = next(rows)
        names = {heading: field.name for heading, field in headings.items()}
        header = [names.get(heading, heading if heading not in schema.names else "") for heading in header]
        named = (
            (dict(zip(header, row, strict=True)) if len(row) == len(header) else None, ",".join(row))
            for row in rows
            if row
        )
        made = _by_rows(named, pa.schema([*raw, pa.field(MALFORMED, pa.string())]), _from_text)
        return _cast_columns(columns.with_times(made), schema)


def _read_as(field: pa.Field) -> pa.DataType:
    """Numbers of a time are read at once; the others are texts first."""
    return field.type if field.name == TS and not pa.types.is_timestamp(field.type) else pa.string()


def _from_text(value: str | None, kind: pa.DataType) -> Any:
    if value is None or value == "":
        return None
    if pa.types.is_string(kind):
        return value
    if pa.types.is_binary(kind):
        return value.encode()
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[value.lower()]
    if pa.types.is_timestamp(kind):
        return read_moment(value)
    if pa.types.is_date(kind):
        return read_day(value)
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return SPECIAL[value] if value in SPECIAL else float(value)


# -- both


def _cast_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with columns that were read as text converted to their types; raises ArrowInvalid if one cannot be."""
    columns = []
    for field in schema:
        if field.name not in table.schema.names:
            columns.append(pa.nulls(len(table), field.type))
            continue
        column = table.column(field.name)
        if pa.types.is_timestamp(field.type) and pa.types.is_string(column.type):
            zoned = pc.match_substring_regex(column, _ZONE)
            column = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=schema)


def _by_rows(
    rows: Iterator[tuple[dict[str, Any] | None, str]], schema: pa.Schema, convert: Callable[[Any, pa.DataType], Any]
) -> pa.Table:
    """Convert row by row. `rows` are the parsed values, or None, and the text of each row."""
    fields = [field for field in schema if field.name != MALFORMED]
    made = []
    for parsed, text in rows:
        row: dict[str, Any] = {MALFORMED: text}
        if parsed is not None:
            try:
                row = {field.name: convert(parsed.get(field.name), field.type) for field in fields}
                pa.RecordBatch.from_pylist([row], schema=schema)  # fails if a value is out of range
            except (ValueError, KeyError, OverflowError, pa.ArrowException):
                row = {MALFORMED: text}
        made.append(row)
    return pa.Table.from_pylist(made, schema=schema)
