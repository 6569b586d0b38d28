"""The only reader of the journal: all entries of some kinds, the newest of a kind, or those written from now on.

It takes no lock, so any number of readers may read while an engine writes. A line that was cut short by a crash is
skipped, and so is one whose kind or fields only another version of geoswarm knows.
"""

import json
from collections.abc import Iterator
from typing import Generic, TypeVar

from geoswarm.core.journal_entry_base import JournalEntry
from geoswarm.store.journal.entries import ENTRY_KINDS, BatchEntry, RunTotals, SilenceEntry
from geoswarm.store.journal.mapping import Json, UnreadableError, from_json, to_json
from geoswarm.store.journal.writer import JOURNAL_FOLDER, entry_json
from geoswarm.store.lines import read_lines
from geoswarm.store.storage import Storage

E = TypeVar("E", bound=JournalEntry)


class JournalReader:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self, *kinds: type[E]) -> Iterator[E]:
        """The entries of these kinds, oldest first; of all kinds by `read(JournalEntry)`."""
        for name in self._storage.names(JOURNAL_FOLDER):
            for line in read_lines(self._storage, f"{JOURNAL_FOLDER}/{name}")[0]:
                entry = parse_line(line, *kinds)
                if entry is not None:
                    yield entry

    def last(self, *kinds: type[E]) -> E | None:
        """The newest entry of these kinds."""
        for name in reversed(self._storage.names(JOURNAL_FOLDER)):
            for line in reversed(read_lines(self._storage, f"{JOURNAL_FOLDER}/{name}")[0]):
                entry = parse_line(line, *kinds)
                if entry is not None:
                    return entry
        return None

    def progress(self) -> dict[str, Json]:
        """The part of every `status` that comes from the journal: the sums of all batches, and the newest batch."""
        newest: JournalEntry | None = self.last(BatchEntry, SilenceEntry)
        last = newest if isinstance(newest, BatchEntry) else self.last(BatchEntry)
        totals = RunTotals() if last is None else last.totals
        why = newest.why if isinstance(newest, SilenceEntry) else () if last is None else last.silent_why
        return {**to_json(totals), "silent": [*why], "last_batch": None if last is None else entry_json(last)}

    def follow(self, *kinds: type[E]) -> "Follower[E]":
        """A follower of the entries that are written from now on."""
        return Follower(self._storage, *kinds)


class Follower(Generic[E]):
    """Each call of `new` returns the entries written since the call before; the first, since the follower was made. An
    incomplete line is left for the next call."""

    def __init__(self, storage: Storage, *kinds: type[E]) -> None:
        self._storage, self._kinds = storage, kinds
        self._offsets: dict[str, int] = {}  # bytes of each file that were read
        for _ in self._lines():
            pass  # skips what was there before

    def new(self) -> list[E]:
        entries = (parse_line(line, *self._kinds) for line in self._lines())
        return [entry for entry in entries if entry is not None]

    def _lines(self) -> Iterator[str]:
        names = self._storage.names(JOURNAL_FOLDER)
        newest_read = max(self._offsets, default="")
        self._offsets = {name: self._offsets.get(name, 0) for name in names}
        for name in names:
            if name >= newest_read:
                lines, self._offsets[name] = read_lines(self._storage, f"{JOURNAL_FOLDER}/{name}", self._offsets[name])
                yield from lines


def parse_line(line: str, *kinds: type[E]) -> E | None:
    """The entry of a line; None if it is of another kind, or cannot be read."""
    try:
        written = json.loads(line)
    except ValueError:
        return None  # cut short by a crash
    name = written.pop("kind", None) if isinstance(written, dict) else None
    kind = ENTRY_KINDS.get(name) if isinstance(name, str) else None
    if kind is None or not issubclass(kind, kinds):
        return None
    try:
        return from_json(kind, written)
    except UnreadableError:
        return None  # written by another version
