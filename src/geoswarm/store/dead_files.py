"""Dead letters on disk: a folder of Parquet files for each batch, or for each version, for operations outside batches.

Tasks write them. Files are named by batch, task and part, so that a second attempt replaces the first.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.errors import CorruptState
from geoswarm.store.storage import Storage

DEAD_FOLDER = "dead"
EVENTS, OPERATIONS = "batch", "operations"


def folder_of(kind: str, number: int) -> str:
    """`kind` is EVENTS, numbered by batch, or OPERATIONS, numbered by version."""
    return f"{DEAD_FOLDER}/{kind}-{number:012d}"


def write(storage: Storage, folder: str, part: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    storage.write(f"{folder}/{part}.parquet", memoryview(sink.getvalue()))


def read(storage: Storage) -> Iterator[pa.Table]:
    for folder in storage.folders(DEAD_FOLDER):
        for name in storage.names(f"{DEAD_FOLDER}/{folder}"):
            file = f"{DEAD_FOLDER}/{folder}/{name}"
            try:
                yield pq.read_table(pa.BufferReader(storage.read(file)))
            except pa.ArrowInvalid as why:
                raise CorruptState(f"{file} cannot be read ({why}): remove it, or restore it") from None


def forget(storage: Storage, folders_max: int, version_max: int) -> None:
    """Remove all but the newest folders of each kind, and those of versions that were never put in force."""
    for kind in (EVENTS, OPERATIONS):
        numbers = [int(f.split("-")[1]) for f in storage.folders(DEAD_FOLDER) if f.startswith(f"{kind}-")]
        orphans = [n for n in numbers if kind == OPERATIONS and n > version_max]
        for number in {*sorted(numbers)[:-folders_max], *orphans}:
            storage.remove_folder(folder_of(kind, number))
