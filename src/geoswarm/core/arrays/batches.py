"""Arrow batches as the stages need them: coordinates as arrays, and fewer, longer batches."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Floats, Ints

GATHERED_BYTES_MAX = 256 << 20
"""Bytes that one task packs at once: far below the 2 GB that an Arrow binary column may hold."""


def xy(events: pa.RecordBatch) -> tuple[Floats, Floats]:
    """The points of validated events, without a copy."""
    x, y = (np.asarray(events.column(name).to_numpy(), np.float64) for name in ("x", "y"))
    return x, y


def some_rows(count: int, most: int) -> Ints:
    """At most `most` of so many rows, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))


def gather(
    batches: Iterator[pa.RecordBatch], rows_max: int, bytes_max: int = GATHERED_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about `rows_max` rows and at most `bytes_max` bytes; a single row may have more.
    A parcel per partition costs the same whether it holds ten events or ten thousand."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch, batch_bytes in (piece for whole in batches for piece in _cut(whole, bytes_max)):
        if rows and size + batch_bytes > bytes_max:
            yield _joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += len(batch)
        size += batch_bytes
        if rows >= rows_max:
            yield _joined(held)
            held, rows, size = [], 0, 0
    if rows:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # which would copy a single one, too


def _cut(batch: pa.RecordBatch, bytes_max: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Pieces and their bytes, which take microseconds to add up."""
    size = batch.nbytes
    if size <= bytes_max:
        yield batch, size
        return
    for first, end in cuts(row_bytes(batch), bytes_max):
        piece = batch.slice(first, end - first)
        yield piece, piece.nbytes


def row_bytes(batch: pa.RecordBatch) -> Ints:
    """The size of each row: text and geometries by their own length, all other columns by their mean."""
    sizes, rest = np.zeros(len(batch), np.int64), 0
    for column in batch.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            sizes += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        else:
            rest += column.nbytes
    return sizes + rest // max(1, len(batch)) + 1


def cuts(sizes: Ints, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Runs (first, end) of rows that have at most `bytes_max` together; a single row may have more."""
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        done = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(ends, done + bytes_max, "right")))
        yield first, end
        first = end
