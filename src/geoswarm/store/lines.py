"""Files that grow by a line at a time, each line encrypted by itself, so that a reader can follow while they grow.

`storage.py` writes whole files. A line that was cut short by a crash, or that is not what was written at its position,
is skipped: it is never trusted, and never stops a reader.
"""

from geoswarm.store.storage import Storage


class LineFile:
    """Appends lines to a new file, from one process."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage, self._name = storage, name
        self._before = b""  # all lines so far, for storage that cannot append
        self.lines = 0

    def append(self, text: str) -> None:
        line = self._storage.vault.encrypt_line(self._name, self.lines, text.encode()) + b"\n"
        self.lines += 1
        if self._storage.is_remote:  # object stores cannot append
            self._before += line
            self._storage.write_as_is(self._name, self._before)
        else:
            self._storage.append_as_is(self._name, line)


def read_lines(storage: Storage, name: str, start: int = 0) -> tuple[list[str], int]:
    """The whole lines from byte `start` on, and where the next one will begin."""
    whole, ended, _ = storage.read_as_is(name, start).rpartition(b"\n")
    lines = storage.vault.decrypt_lines(name, whole.split(b"\n") if ended else [])
    return [line.decode(errors="replace") for line in lines], start + len(whole) + len(ended)
