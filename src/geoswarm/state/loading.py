"""Bulk loading: a Parquet file of subscriptions into a checkpoint, a million rows at a time.

Each step is one version, and the version remembers how far the file has been taken in: a load that was cut short goes
on where it was, and a file that has been loaded is not loaded again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.errors import InputError, SchemaError
from geoswarm.model import OPERATION
from geoswarm.state.checkpoint import Checkpoint

STEP_ROWS = 1_000_000
"""About 200 MB in the driver."""
REQUIRED = {"sub_id", "xmin", "ymin", "xmax", "ymax"}
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Loaded:
    registered: int
    dead: int
    """Rows that became dead letters."""
    seconds: float


def load(checkpoint: Checkpoint, path: str, now_us: int, progress: Progress | None = None) -> Loaded:
    """Register every row, unless this very file is in already. `progress` is told the rows done and the rows in all."""
    began_s = time.perf_counter()
    try:
        facts, file = Path(path).stat(), pq.ParquetFile(path)
    except FileNotFoundError:
        raise InputError(f"there is no file {path} to load subscriptions from") from None
    except (pa.ArrowInvalid, pa.ArrowTypeError) as why:
        raise InputError(f"{path} cannot be read as Parquet ({str(why).splitlines()[0]}): write it again") from why
    held = file.schema_arrow.names
    if REQUIRED - set(held):
        raise SchemaError(f"{path} has no column {', '.join(sorted(REQUIRED - set(held)))}, only {', '.join(held)}")
    name = f"{Path(path).absolute()} {facts.st_size} {facts.st_mtime_ns}"
    done = taken = dead = 0
    for table in _steps(file):
        done += len(table)
        if done > checkpoint.manifest.loads.get(name, 0):
            dead += checkpoint.take_in(table, now_us, {name: done}).refused
            taken += len(table)
        if progress:
            progress(done, file.metadata.num_rows)
    return Loaded(taken - dead, dead, time.perf_counter() - began_s)


def _steps(file: pq.ParquetFile) -> Iterator[pa.Table]:
    wanted = [name for name in OPERATION.names if name in file.schema_arrow.names]
    for batch in file.iter_batches(STEP_ROWS, columns=wanted):
        table = pa.table(batch)
        if "op" not in wanted:
            table = table.append_column("op", pa.array(np.full(len(table), "register")))
        yield table
