"""The append-only record of what the engine did: starts, batches with their loads, plans, refusals.

Nothing reads it to decide anything; `status`, `explain`, the demo's live view and the tests read it to tell. One JSON
object a line, in files of bounded length of which the newest are kept. A line torn by a crash is passed over. With a
key each line is encrypted by itself (`store/lines.py`).
"""

import json
from collections.abc import Iterator
from typing import Any

from geoswarm.store.lines import LineFile, read_lines
from geoswarm.store.storage import Storage

FOLDER = "journal"
LINES_PER_FILE = 10_000
FILES_MAX = 20
"""Together 200 000 entries, about 200 MB at 64 partitions a report."""


class Journal:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        numbers = [int(name.split(".")[0]) for name in storage.names(FOLDER)]
        self._number = max(numbers, default=-1) + 1
        self._file = self._next_file()

    def append(self, kind: str, **fields: Any) -> dict[str, Any]:
        """`fields` are plain JSON values; time is one of them where it matters. Returns the entry."""
        entry = {"kind": kind, **fields}
        self._file.append(json.dumps(entry, separators=(",", ":")))
        if self._file.lines == LINES_PER_FILE:
            self._file = self._next_file()
            for old in self._storage.names(FOLDER)[:-FILES_MAX]:
                self._storage.remove(f"{FOLDER}/{old}")
        return entry

    def _next_file(self) -> LineFile:
        number, self._number = self._number, self._number + 1
        return LineFile(self._storage, f"{FOLDER}/{number:08d}.jsonl")


def last(storage: Storage, kind: str) -> dict[str, Any] | None:
    """The newest entry of a kind."""
    for name in reversed(storage.names(FOLDER)):
        for line in reversed(_lines(storage, name)):
            entry = _parse(line)
            if entry is not None and entry["kind"] == kind:
                return entry
    return None


def read(storage: Storage, *kinds: str) -> Iterator[dict[str, Any]]:
    """The entries of these kinds, or all, oldest first."""
    for name in storage.names(FOLDER):
        for line in _lines(storage, name):
            entry = _parse(line)
            if entry is not None and (not kinds or entry["kind"] in kinds):
                yield entry


def follow(storage: Storage, name: str, start: int) -> tuple[list[dict[str, Any]], int]:
    """The entries of one file from byte `start` on, and where the next one will begin."""
    lines, end = read_lines(storage, f"{FOLDER}/{name}", start)
    return [entry for entry in map(_parse, lines) if entry is not None], end


def _lines(storage: Storage, name: str) -> list[str]:
    return read_lines(storage, f"{FOLDER}/{name}")[0]


def _parse(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None  # torn by a crash
    return entry if isinstance(entry, dict) else None
