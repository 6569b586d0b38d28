"""Arrow batches as the stages want them: coordinates as arrays, and fewer, longer batches."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from geoswarm.jit import Floats

GATHERED_BYTES_MAX = 256 << 20
"""Keeps what one task packs at once far below the 2 GB that an Arrow binary column may hold."""


def xy(events: pa.RecordBatch) -> tuple[Floats, Floats]:
    """The points of events that are past the guard, without a copy."""
    x, y = (np.asarray(events.column(name).to_numpy(), np.float64) for name in ("x", "y"))
    return x, y


def gather(
    batches: Iterator[pa.RecordBatch], rows_max: int, bytes_max: int = GATHERED_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """A parcel per partition costs the same whether it holds ten events or ten thousand."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += len(batch)
        size += batch.nbytes
        if rows >= rows_max or size >= bytes_max:
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(held)
