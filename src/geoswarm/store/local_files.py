"""Write local files that other processes see whole or not at all, also after a power cut (`storage.py`)."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from geoswarm.errors import SettingsError
from geoswarm.store.vault import Chunks

SYNC_BYTES = 16 << 20
"""Bytes of a file that go to the disk at once. A small file of another process, such as the manifest of a batch, waits
behind them; behind all of a large file it would wait for seconds."""


def _start_flushers() -> None:
    global _flushers
    _flushers = ThreadPoolExecutor(4, "geoswarm-flush")


_flushers: ThreadPoolExecutor
_start_flushers()
os.register_at_fork(after_in_child=_start_flushers)  # a forked process has no threads but its own


def claim_folder(folder: Path) -> None:
    """Make a folder that no other user can write to: files cached in it are trusted."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = folder.lstat()
    if held.st_uid != os.getuid() or not stat.S_ISDIR(held.st_mode):
        raise SettingsError(f"{folder} belongs to somebody else: remove it, or set TMPDIR to a folder of your own")
    if held.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        folder.chmod(0o700)


def publish(path: Path, chunks: Chunks, place: Callable[[str, Path], None], durable: bool = True) -> None:
    """Write a file and put it in place in one step: `place` is `os.replace`, or `os.link`, which replaces no file. An
    incomplete file has a dot before its name."""
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        if durable:
            sync_to_disk(path.parent.parent)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    waiting = 0
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            os.fchmod(handle, 0o644)  # workers may run as another user
            for chunk in chunks:
                rest = memoryview(chunk)
                waiting += len(rest)
                while len(rest):
                    rest = rest[file.write(rest) :]
                if durable and waiting >= SYNC_BYTES:
                    os.fdatasync(handle)
                    waiting = 0
            if durable:
                os.fsync(file.fileno())
        place(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)  # gone already after a replace
    if durable:
        sync_to_disk(path.parent)


def make_durable(paths: Iterable[Path]) -> None:
    """Flush files that are in place, and their folders, to the disk: all at once, since each flush waits."""
    files = list(paths)
    list(_flushers.map(sync_to_disk, {*files, *(file.parent for file in files)}))


def sync_to_disk(path: Path) -> None:
    """Let a file, or the names in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
