"""The only writer of the journal: one JSON object per line, in files of bounded length of which the newest are kept.

With a key each line is encrypted by itself (`store/lines.py`). `entries.py` declares what may be written.
"""

import json

from geoswarm.core.journal_entry_base import JournalEntry
from geoswarm.store.journal.mapping import Json, to_json
from geoswarm.store.lines import LineFile
from geoswarm.store.storage import Storage

JOURNAL_FOLDER = "journal"
LINES_PER_FILE = 10_000
FILES_MAX = 20
"""The number of files kept: 200 000 entries, about 200 MB with 64 partitions per report."""


class Journal:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        numbers = [int(name.split(".")[0]) for name in storage.names(JOURNAL_FOLDER)]
        self._number = max(numbers, default=-1) + 1
        self._file = self._next_file()

    def append(self, entry: JournalEntry) -> None:
        self._file.append(json.dumps(entry_json(entry), separators=(",", ":")))
        if self._file.lines == LINES_PER_FILE:
            self._file = self._next_file()
            for old in self._storage.names(JOURNAL_FOLDER)[:-FILES_MAX]:
                self._storage.remove(f"{JOURNAL_FOLDER}/{old}")

    def _next_file(self) -> LineFile:
        number, self._number = self._number, self._number + 1
        return LineFile(self._storage, f"{JOURNAL_FOLDER}/{number:08d}.jsonl")


def entry_json(entry: JournalEntry) -> dict[str, Json]:
    """An entry as it lies on disk, and as the command line prints it with --json."""
    return {"kind": entry.kind, **to_json(entry)}
