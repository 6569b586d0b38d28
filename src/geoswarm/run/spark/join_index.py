"""The index of a batch join: the regions of a file as subscriptions, in a folder that lasts as long as the join.

No checkpoint: nobody else writes to the folder, nothing in it need survive a power cut, and no file is flushed.
`batch_join.py` searches it.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Tuning
from geoswarm.core.arrays.batches import gather
from geoswarm.core.shapes.points import Predicate
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import conform_operations
from geoswarm.model import PREDICATES
from geoswarm.store.batch_state import StoredBatch
from geoswarm.store.manifest import EMPTY
from geoswarm.store.region_files import ROWS_MAX, read_regions
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import Churn, Store, View

REGION_COLUMN = "region"
NAMES = "names.arrow"
REGIONS_BYTES = 512 << 20
"""Bytes of the geometries that are read together."""
SEGMENT_BYTES = 3 * REGIONS_BYTES // 2
"""Bytes of the geometries that make one segment, at most. Every segment is searched, so small batches are put together,
and one that is larger than expected is not cut."""


def build_index(
    home: str, regions: str | pa.Table, region_id: str | None, predicate: Predicate, grid: Grid, tuning: Tuning
) -> tuple[StoredBatch, pa.Array]:
    """Register the regions as subscriptions, numbered in order. Returns them with their ids in the file."""
    storage, file = Storage(home), Path(home) / "regions.parquet"
    if isinstance(regions, str):
        file = Path(regions)
    else:
        pq.write_table(regions, file, compression="none")
    store, dead = Store(storage, grid, tuning, TermCounts.empty()), DeadLetters("operation", 0)
    version, view, names = EMPTY, View({}, {}), list[pa.Array]()
    now_us = int(time.time() * 1e6)
    for rows in gather(_operations(file, region_id, predicate, names), tuning.operations_at_once_max, SEGMENT_BYTES):
        operations = conform_operations(pa.Table.from_batches([rows])).combine_chunks().to_batches()[0]
        begun = version.next(now_us=now_us)
        version, view = store.apply(begun, view, operations, dead, Churn(), is_trusted=True)
    if not isinstance(regions, str):
        file.unlink()  # it is not encrypted, even if the rest is
    worded = any(pa.types.is_string(part.type) for part in names)
    ids = pa.concat_arrays([part.cast(pa.string() if worded else pa.int64()) for part in names or [pa.array([0])[:0]]])
    storage.write(NAMES, _as_bytes(ids), durable=False)
    return StoredBatch(storage, 0, version), ids


def _operations(
    file: Path, region_id: str | None, predicate: Predicate, names: list[pa.Array]
) -> Iterator[pa.RecordBatch]:
    """The regions of a file as operations; their ids are added to `names`."""
    taken = 0
    for batch in read_regions(file, id_name=region_id, rows_max=_rows_at_once(file)):
        names.append(batch["name"] if "name" in batch.schema.names else batch["sub_id"])
        rows = {
            "op": pa.repeat("register", len(batch)),
            "sub_id": np.arange(taken, taken + len(batch)),
            "geometry": batch["geometry"],
        }
        if predicate != PREDICATES[0]:  # which is what none means
            rows["predicate"] = pa.repeat(predicate, len(batch))
        yield pa.record_batch(rows)
        taken += len(batch)


def _rows_at_once(file: Path) -> int:
    """The number of regions with REGIONS_BYTES of geometries, from the file's metadata."""
    with file.open("rb") as opened:
        if opened.read(4) != b"PAR1":
            return ROWS_MAX  # its reader counts bytes by itself
    held = pq.read_metadata(file)
    size: int = sum(held.row_group(group).total_byte_size for group in range(held.num_row_groups))
    return max(1, REGIONS_BYTES * int(held.num_rows) // max(1, size))


def _as_bytes(names: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({REGION_COLUMN: names})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


_held: dict[str, pa.Array] = {}


def names_of(storage: Storage) -> pa.Array:
    """The ids of regions, by their number. A worker reads them once, and keeps those of one join."""
    if storage.root not in _held:
        _held.clear()
        _held[storage.root] = pa.ipc.open_file(storage.read(NAMES)).read_all()[REGION_COLUMN].combine_chunks()
    return _held[storage.root]
