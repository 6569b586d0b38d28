"""Read Parquet and GeoParquet files in given columns, whatever columns and types the file itself has.

A column that it lacks is null, further ones are left out, and values of another type are converted, or, where they
cannot be, their rows are malformed. The primary geometry of GeoParquet is read as `geometry`, whatever its name is.
`file_reading.py` says what becomes of a file that cannot be read.
"""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.core.arrays.uuids import is_uuid
from geoswarm.core.shapes.geoparquet import geo_columns
from geoswarm.flow.conform import cast_columns
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run.columns import PLAIN, Columns
from geoswarm.run.source_times import read_times, shown

ROWS_AT_ONCE = 65_536


def read_parquet(
    path: str, first: int, end: int | None, schema: pa.Schema, columns: Columns = PLAIN
) -> Iterator[pa.RecordBatch]:
    """The row groups from `first` up to `end`, or all of them. `schema` has MALFORMED."""
    with pq.ParquetFile(path, memory_map=True, coerce_int96_timestamp_unit="us") as file:
        groups = None if end is None else range(first, end)
        geo, held = geo_columns(path, file.schema_arrow), file.schema_arrow.names
        named = columns.or_geometry(None if geo is None else geo.geometry)
        wanted = pa.schema([field for field in schema if named.path(field.name)[0] in held])
        if not len(wanted):
            raise pa.ArrowInvalid(f"it has none of the columns {', '.join(schema.names)}")
        leaves = named.leaves(wanted)
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=leaves, use_threads=False):
            plain = pa.record_batch({name: _plain(batch.column(name)) for name in batch.schema.names})
            taken = named.take(plain, schema)
            if not taken.num_columns:
                raise pa.ArrowInvalid(f"it has none of the columns {', '.join(leaves)}")
            yield _as_declared(read_times(taken, named.ts_unit), schema)


def rows_before(path: str, group: int) -> int:
    """The rows of a file before one of its row groups."""
    footer = pq.read_metadata(path)
    return sum(footer.row_group(before).num_rows for before in range(group))


def _plain(column: pa.Array) -> pa.Array:
    """Geometries may be of a type of their own, which is WKB."""
    return column.storage if isinstance(column, pa.ExtensionArray) and not is_uuid(column.type) else column


def _as_declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    try:
        return cast_columns(batch, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    odd = [f.name for f in schema if f.name in batch.schema.names and batch.schema.field(f.name).type != f.type]
    rows = [_converted(batch.slice(i, 1), schema, odd) for i in range(len(batch))]
    return pa.Table.from_batches(rows).combine_chunks().to_batches()[0]


def _converted(row: pa.RecordBatch, schema: pa.Schema, odd: Sequence[str]) -> pa.RecordBatch:
    """One row in the columns of `schema`; malformed if a value of an odd column cannot be converted."""
    try:
        return cast_columns(row, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values = {name: shown(row.column(name)[0]) for name in row.schema.names}
        text = f"{json.dumps(values)}: {', '.join(odd)} cannot be converted to what the first file has"
        return pa.RecordBatch.from_pylist([{MALFORMED: text}], schema=schema)
