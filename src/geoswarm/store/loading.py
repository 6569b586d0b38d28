"""Bulk loading: a Parquet file of subscriptions, or a file of regions, into a checkpoint, many rows at a time.

Each step is one version, and the version remembers how far the file has been loaded: a load that was cut short goes
on where it stopped, and a file that has been loaded is not loaded again. Segments are merged beside a load as beside a
stream; it ends when all of them are.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geoswarm.config import SubIdKind
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.core.subscriptions.region import SIDES
from geoswarm.errors import InputError, SchemaError
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.region_files import read_regions

STEP_ROWS = 1_000_000
"""Rows in one step: about 200 MB in the driver."""
REQUIRED = {"sub_id", *SIDES}
LoadProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class LoadResult:
    registered: int
    dead: int
    """Rows that became dead letters."""
    seconds: float


def load(checkpoint: Checkpoint, path: str, now_us: int, progress: LoadProgress | None = None) -> LoadResult:
    """Register every row, unless this very file has been loaded. `progress` is called with the rows done and the rows
    in all."""
    began_s = time.perf_counter()
    try:
        facts = Path(path).stat()
    except FileNotFoundError:
        raise InputError(f"there is no file {path} to load subscriptions from") from None
    name = f"{Path(path).absolute()} {facts.st_size} {facts.st_mtime_ns}"
    done = taken = dead = 0
    for table, rows_all in _regions(path, checkpoint.ids) if _holds_regions(path) else _rows(path):
        done += len(table)
        if done > checkpoint.manifest.loads.get(name, 0):
            dead += checkpoint.take_in(table, now_us, {name: done}).refused
            taken += len(table)
        if progress:
            progress(done, max(done, rows_all))
    checkpoint.settle(now_us)
    return LoadResult(taken - dead, dead, time.perf_counter() - began_s)


def _holds_regions(path: str) -> bool:
    """Whether a file has regions: GeoJSON, or Parquet with a geometry and without the sides of rectangles."""
    with Path(path).open("rb") as file:
        if file.read(4) != b"PAR1":
            return Path(path).suffix.lower() in (".json", ".geojson", ".ndjson", ".geojsonl")
    try:
        held = pq.read_schema(path)
    except (pa.ArrowInvalid, OSError):
        return False  # `_rows` reports it as a damaged file
    return not set(held.names) >= REQUIRED and ("geometry" in held.names or b"geo" in (held.metadata or {}))


def _rows(path: str) -> Iterator[tuple[pa.Table, int]]:
    """Batches of operations, each with the number of all operations in the file."""
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as why:
        raise InputError(f"{path} cannot be read as Parquet ({str(why).splitlines()[0]}): write it again") from why
    held = file.schema_arrow.names
    if REQUIRED - set(held):
        raise SchemaError(f"{path} has no column {', '.join(sorted(REQUIRED - set(held)))}, only {', '.join(held)}")
    wanted = [name for name in OPERATION.names if name in held]
    for batch in file.iter_batches(STEP_ROWS, columns=wanted):
        yield _with_register(pa.table(batch)), file.metadata.num_rows


def _regions(path: str, ids: SubIdKind) -> Iterator[tuple[pa.Table, int]]:
    """Batches of a GeoParquet or GeoJSON file, each with the number of all regions, estimated from the bytes read."""
    seen = [0, 0, 1]

    def look(rows: int, size: int, size_all: int) -> None:
        seen[:] = [rows, size, size_all]

    for batch in read_regions(Path(path), progress=look):
        rows, size, size_all = seen
        table = pa.table(batch)
        if SIDES[0] in table.schema.names:  # rectangles are drawn as polygons, too
            place = table.schema.get_field_index("geometry")
            drawn = pc.if_else(table[SIDES[0]].is_valid(), pa.scalar(None, pa.binary()), table["geometry"])
            table = table.set_column(place, "geometry", drawn)
        if "name" in table.schema.names and ids == "text":
            table = table.set_column(table.schema.get_field_index("sub_id"), "sub_id", table["name"])
        known = [name for name in table.schema.names if name in OPERATION.names]
        yield _with_register(table.select(known)), int(rows * size_all / max(1, size))


def _with_register(table: pa.Table) -> pa.Table:
    """Without a column `op`, every row is a registration."""
    if "op" in table.schema.names:
        return table
    return table.append_column("op", pa.array(np.full(len(table), "register")))
