"""Spark's own log of the content of each batch: read to find its files or messages, and to notice when it was changed.

Spark writes `offsets/N` before batch N runs and reads it again for a replay. If the entry is removed, Spark makes a
new one, perhaps with more in it, under the same number; the engine would take it for a replay and leave events out.
"""

import json

import xxhash

from geoswarm.errors import GeoswarmError, StreamError
from geoswarm.run.kafka_client import MessageRange
from geoswarm.run.made_ids import FileNumbers, check_room
from geoswarm.run.stream_log import StreamLogReader, TakenFile
from geoswarm.store.storage import Storage


class OffsetLog:
    def __init__(self, folder: str) -> None:
        """`folder` is Spark's checkpoint. If only Spark can read it, digests are empty and changes are not noticed."""
        try:
            self._storage: Storage | None = Storage(folder, encrypts=False)  # the files are Spark's
        except (GeoswarmError, OSError, ValueError):  # an address for Hadoop that Arrow does not know
            self._storage = None
        self._numbers = FileNumbers()

    def digest(self, batch_id: int) -> str:
        """A digest of the sources' offsets alone: the lines before them hold the time and settings of the attempt."""
        if self._storage is None:
            return ""
        try:
            offsets = self._storage.read(f"offsets/{batch_id}").splitlines()[2:]
            files = [line for number, offset in enumerate(offsets) for line in self._files(number, offset)]
        except (GeoswarmError, OSError, ValueError):
            return ""
        return str(xxhash.xxh3_64_hexdigest(b"\n".join([*offsets, *files])))

    def has_new(self, batch_id: int, source: int) -> bool:
        """Whether a batch has rows of a source, which otherwise need not be read; True if this is not known."""
        if self._storage is None:
            return True
        try:
            offsets = self._storage.read(f"offsets/{batch_id}").splitlines()[2:]
            if len(offsets) > source + 1:
                return True  # a user's DataFrame may have several sources, and which are whose is not known
            if offsets[source] == b"-":
                return False
            before = self._storage.read(f"offsets/{batch_id - 1}").splitlines()[2:] if batch_id else []
            return not before or before[source] != offsets[source]
        except (GeoswarmError, OSError, IndexError):
            return True

    def files(self, batch_id: int, source: int, *, numbers: bool = False) -> list[TakenFile] | None:
        """The files of a batch, of a source that takes files, oldest first; None if this is not known. `source` may be
        -1, for the last one. With `numbers`, each has that among all files of the source."""
        if self._storage is None:
            return None
        log = StreamLogReader(self._storage)
        try:
            source = source % len(log.offsets(batch_id) or [None])
            after, until = (_last_step(log, number, source) for number in (batch_id - 1, batch_id))
            files = log.files(source, after, until)
            if numbers:
                files = self._numbers.number(log, source, after, files)
        except (GeoswarmError, OSError, ValueError, LookupError):
            return None
        check_room(files)
        return sorted(files, key=lambda file: (file.modified_ms, str(file.path)))

    def ranges(self, batch_id: int, source: int) -> list[MessageRange] | None:
        """The messages of a batch, of a source that reads Kafka; None if this is not known. `source` may be -1."""
        if self._storage is None:
            return None
        log = StreamLogReader(self._storage)
        try:
            offsets = log.offsets(batch_id) or [None]
            source = source % len(offsets)
            end, begin = offsets[source] or {}, ((log.offsets(batch_id - 1) if batch_id else None) or offsets)[source]
            if not batch_id or begin is None:
                begin = log.first_offset(source)
            found = [
                MessageRange(topic, int(number), int(begin.get(topic, {}).get(number, 0)), int(last))
                for topic, partitions in end.items()
                for number, last in partitions.items()
            ]
        except (GeoswarmError, OSError, ValueError, LookupError, AttributeError):
            return None
        return sorted(span for span in found if span.first < span.end)

    def _files(self, source: int, offset: bytes) -> list[bytes]:
        """The log entries of a file source, whose offset is only the number of an entry."""
        assert self._storage is not None
        number = json.loads(offset).get("logOffset") if offset.startswith(b"{") else None
        if number is None:
            return []
        name = f"sources/{source}/{number}"
        held = self._storage.read(name if self._storage.exists(name) else f"{name}.compact")
        lines = (line for line in held.splitlines() if line.startswith(b"{"))
        return sorted(line for line in lines if json.loads(line).get("batchId") == number)


def _last_step(log: StreamLogReader, batch_id: int, source: int) -> int:
    """The last step of a source that takes files, at the end of a batch; raises if that is not in the log."""
    offsets = log.offsets(batch_id) if batch_id >= 0 else [None] * (source + 1)
    if offsets is None:
        raise StreamError(f"batch {batch_id} is not in the log")
    offset = offsets[source]
    return -1 if offset is None else int(offset["logOffset"])
