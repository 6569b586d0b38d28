"""Parquet files that tasks write: each task one, under a name that no other attempt at it has.

A task may be run again, also while another attempt still runs. Only the files that the runner was told of by tasks that
ended are kept.
"""

import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX, gather
from geoswarm.flow.stages.task import Body

WRITTEN = pa.schema([pa.field("file", pa.string(), nullable=False)])
"""What a task gives that wrote a file."""
GROUP_ROWS_MIN = 16_384
"""Rows that are put together before they are written. With more, what one executor made would be written, and charged,
in the time of another."""


def write_parts(folder: str, schema: pa.Schema) -> Body:
    """A task without rows writes nothing, but for the first: a folder without files would have no columns."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        name, writer = f"part-{number:05d}-{uuid.uuid4().hex}.parquet", None
        for batch in gather(batches, GROUP_ROWS_MIN, GATHERED_BYTES_MAX):
            writer = writer or open_part(f"{folder}/{name}", schema)
            writer.write_batch(batch)
        if writer is None and number == 0:
            writer = open_part(f"{folder}/{name}", schema)
        if writer is not None:
            writer.close()
            yield pa.record_batch([pa.array([name])], schema=WRITTEN)

    return run


def open_part(path: str, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, use_dictionary=_repeating(schema))


def _repeating(schema: pa.Schema) -> list[str]:
    """Columns that a dictionary may make smaller; for numbers, few of which come twice, it only takes time. So do the
    lists of subscriptions: neighbours met about the same, which compression finds by itself."""
    return [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_binary(f.type) or f.name == "version"]


def keep_only(folder: str, names: Collection[str]) -> None:
    """Remove what attempts left that did not end, or ended twice."""
    for file in Path(folder).iterdir():
        if file.name not in names:
            file.unlink()
