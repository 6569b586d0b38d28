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
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from geoswarm.core.arrays.jit import Ints
from geoswarm.errors import SchemaError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run.columns import PLAIN, Columns, id_forms
from geoswarm.run.file_formats import COMPRESSED, FOREIGN
from geoswarm.run.json_values import SPECIAL, read_day, read_moment, read_row
from geoswarm.run.made_ids import place_ids
from geoswarm.run.parquet_reading import ROWS_AT_ONCE, read_parquet, rows_before
from geoswarm.run.source_times import TS
from geoswarm.run.undeclared import with_extra

CHUNK_BYTES = 256 << 20
FIELD_CHARS_MAX = 1 << 30
_LINE = re.compile(rb"[^\r\n]+")
_MARK = b"\xef\xbb\xbf"
"""Before UTF-8, as some editors write it."""
_NEWLINE, _BLANK_MAX = 10, 32
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
    number: int = -1
    """That of the file in its stream, where ids are made (`made_ids.py`)."""


def read_piece(piece: Piece, kind: str, schema: pa.Schema, columns: Columns = PLAIN) -> Iterator[pa.RecordBatch]:
    """`schema` has MALFORMED; `columns` says where its columns are in the file."""
    try:
        if kind == "parquet":
            batches = read_parquet(piece.path, piece.first, piece.end, schema, columns)
            yield from _numbered(batches, piece) if columns.makes_ids else batches
        else:
            for table, places in _read_text(piece, kind, schema, columns):
                yield from _with_places(table, places, piece, columns)
    except (FileNotFoundError, pa.ArrowInvalid, pa.ArrowNotImplementedError, csv.Error, SchemaError) as why:
        yield _unreadable(piece, why, schema)
    except OSError as why:
        if why.errno is not None:  # of the machine, not of the file: the task is tried again
            raise
        yield _unreadable(piece, why, schema)


def _numbered(batches: Iterator[pa.RecordBatch], piece: Piece) -> Iterator[pa.RecordBatch]:
    row = rows_before(piece.path, piece.first)
    for batch in batches:
        yield place_ids(batch, piece.number, row + np.arange(len(batch)))
        row += len(batch)


def _with_places(table: pa.Table, places: Ints | None, piece: Piece, columns: Columns) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in table.to_batches(ROWS_AT_ONCE):
        if columns.makes_ids and places is not None:
            batch = place_ids(batch, piece.number, places[first : first + len(batch)])
        yield batch
        first += len(batch)


def _unreadable(piece: Piece, why: Exception, schema: pa.Schema) -> pa.RecordBatch:
    text = f"file {piece.path} cannot be read, or not to its end: {why}"
    return pa.RecordBatch.from_pylist([{MALFORMED: text}], schema=schema)


def _read_text(piece: Piece, kind: str, schema: pa.Schema, columns: Columns) -> Iterator[tuple[pa.Table, Ints | None]]:
    """Tables, and where each row is in the file: the number of a row of CSV; the byte at which a line of JSON begins,
    where ids are made of it."""
    if kind == "csv":
        table = _read_csv(_read_whole(piece.path), schema, columns)
        yield table, np.arange(len(table))
        return
    lines, first = _read_lines(piece)
    for chunk in _chunks(lines):
        begins = line_begins(chunk) if columns.made else None
        table, begins = _read_json(chunk, schema, columns, begins)
        if columns.has_extra and begins is not None and len(begins):
            (batch,) = table.combine_chunks().to_batches()
            ends = np.append(begins[1:], len(chunk))
            table = pa.Table.from_batches([with_extra(batch, chunk, begins, ends, columns)])
        yield table, None if begins is None else begins + first
        first += len(chunk)


def _read_whole(path: str) -> bytes:
    if path.endswith(FOREIGN):
        raise pa.ArrowInvalid(f"it is compressed in a way that only Spark reads: write {', '.join(COMPRESSED)}")
    with pa.input_stream(path, compression="detect") as stream:
        return bytes(stream.read())


def _read_lines(piece: Piece) -> tuple[bytes, int]:
    """The lines that begin in the piece, and where the first one does."""
    if piece.end is None:
        return _read_whole(piece.path), 0
    with Path(piece.path).open("rb") as file:
        file.seek(max(0, piece.first - 1))
        if piece.first:
            file.readline()  # it belongs to the piece before, unless that ends with its line
        begin = file.tell()
        if begin >= piece.end:
            return b"", begin
        return file.read(piece.end - begin) + (b"" if _ends_line(file, piece.end) else file.readline()), begin


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


def line_begins(data: bytes) -> Ints:
    """Where the lines begin that are not blank."""
    if not data:
        return np.empty(0, np.int64)
    held = np.frombuffer(data, np.uint8)
    begins = np.append(0, np.flatnonzero(held == _NEWLINE) + 1)
    begins = begins[begins < len(held)]
    return begins[np.maximum.reduceat(held, begins) > _BLANK_MAX]


def _read_json(data: bytes, schema: pa.Schema, columns: Columns, begins: Ints | None) -> tuple[pa.Table, Ints | None]:
    """The rows; and where each begins, if `begins` has where lines do."""
    if not data.strip():
        return schema.empty_table(), begins
    reading = pajson.ReadOptions(block_size=len(data) + 1, use_threads=False)
    for ids in id_forms(columns.raw(schema)):
        wanted = pa.schema(columns.nest([_as_read(field, ids) for field in columns.raw(schema)]))
        options = pajson.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
        try:
            table = pajson.read_json(io.BytesIO(data), reading, options)
            if begins is not None and (len(begins) != len(table) or data.count(b"\r") != data.count(b"\r\n")):
                break  # a row has two lines, or a line two rows
            return _cast_columns(columns.ours(table, schema), schema), begins
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    found = [(line.start(), line[0].removeprefix(b"" if line.start() else _MARK)) for line in _LINE.finditer(data)]
    texts = [(begin, line.decode(errors="replace")) for begin, line in found]
    lines = [(begin, text) for begin, text in texts if text.strip()]
    fields = columns.nest(columns.raw(schema))
    raw = pa.schema([*fields, pa.field(MALFORMED, pa.string())])
    made = pa.Table.from_pylist([read_row(line, fields) for _, line in lines], raw)
    if begins is not None:
        begins = np.array([begin for begin, _ in lines], np.int64)
    return _cast_columns(columns.ours(made, schema), schema), begins


def _as_read(field: pa.Field, ids: Mapping[str, pa.DataType]) -> pa.Field:
    """The field to read as text first, if it is a time: Arrow's reader refuses times without a zone."""
    if field.name in ids:
        return field.with_type(ids[field.name])
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
