"""Operations of an API call or a bulk load, on disk until a version of the store contains them.

A call returns once its file is on disk: that is the acknowledgement. The manifest remembers the number of the newest
file it contains, so a file is applied once, whatever crashes in between.
"""

from collections.abc import Iterator

import pyarrow as pa
import xxhash

from geoswarm.config import SubIdKind
from geoswarm.errors import CorruptState
from geoswarm.flow.validate import conform_operations
from geoswarm.store.storage import Storage

INBOX_FOLDER = "inbox"


def put(storage: Storage, number: int, operations: pa.Table, ids: SubIdKind = "integer") -> None:
    sink = pa.BufferOutputStream()
    table = conform_operations(operations, ids)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue()
    storage.create(f"{INBOX_FOLDER}/{number:012d}.arrow", _digest(data), memoryview(data))


def waiting(storage: Storage, mark: int) -> list[int]:
    return [n for n in (int(name.split(".")[0]) for name in storage.names(INBOX_FOLDER)) if n > mark]


def take(storage: Storage, numbers: list[int]) -> Iterator[pa.Table]:
    for number in numbers:
        name = f"{INBOX_FOLDER}/{number:012d}.arrow"
        raw = storage.read(name)
        data = pa.py_buffer(raw)[8:]
        if len(raw) < 8 or raw[:8] != _digest(data):
            raise CorruptState(
                f"{name} ({len(raw)} bytes) does not match its checksum: "
                "operations in it were acknowledged; restore it from a backup"
            )
        with pa.ipc.open_stream(data) as reader:
            yield reader.read_all()


def clear(storage: Storage, mark: int) -> None:
    """Remove the files that a committed version contains."""
    for name in storage.names(INBOX_FOLDER):
        if int(name.split(".")[0]) <= mark:
            storage.remove(f"{INBOX_FOLDER}/{name}")


def _digest(data: pa.Buffer) -> bytes:
    return bytes(xxhash.xxh3_64_digest(memoryview(data)))
