"""The append-only record of what the engine did: starts, batches with their loads, plans, refusals.

Nothing reads it to decide anything; `status`, `explain`, the demo's live view and the tests read it to tell. One JSON
object a line, in files of bounded length of which the newest are kept. A line torn by a crash is passed over.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geoswarm.state.storage import Storage

FOLDER = "journal"
LINES_PER_FILE = 10_000
FILES_MAX = 20
"""Together 200 000 entries, about 200 MB at 64 partitions a report."""


class Journal:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        numbers = [int(name.split(".")[0]) for name in storage.names(FOLDER)]
        self._number = max(numbers, default=-1) + 1
        self._count = 0
        self._lines: list[str] = []
        """Of the file under way, where it must be written whole each time."""

    def append(self, kind: str, **fields: Any) -> dict[str, Any]:
        """`fields` are plain JSON values; time is one of them where it matters. Returns the entry."""
        entry = {"kind": kind, **fields}
        line = json.dumps(entry, separators=(",", ":"))
        name = f"{FOLDER}/{self._number:08d}.jsonl"
        self._count += 1
        if self._storage.is_remote:  # object stores cannot append
            self._lines.append(line)
            self._storage.write(name, ("\n".join(self._lines) + "\n").encode())
        else:
            path = Path(self._storage.path(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(line + "\n")
        if self._count == LINES_PER_FILE:
            self._number, self._count, self._lines = self._number + 1, 0, []
            for old in self._storage.names(FOLDER)[:-FILES_MAX]:
                self._storage.remove(f"{FOLDER}/{old}")
        return entry


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


def _lines(storage: Storage, name: str) -> list[str]:
    return storage.read(f"{FOLDER}/{name}").decode(errors="replace").splitlines()


def _parse(line: str) -> dict[str, Any] | None:
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return None  # torn by a crash
    return entry
