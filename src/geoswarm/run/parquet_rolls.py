"""The folder of a Parquet sink: small batches wait, hidden from readers, until several become one visible file.

    PATH/batch=N/                what readers see: batch N and those after it, until the next such folder
    PATH/_work/staged/...        a batch that tasks are writing
    PATH/_work/waiting/N/        a small batch, complete
    PATH/_work/rolled/...        several that waited, being written into one file
    PATH/_work/expired/...       a folder that is being removed

A file never changes once it is visible, and batches become visible in order, by one rename each time. So a reader sees
each row once, at any moment and after any crash: what was hidden still waits at the next start, or is behind the last
visible batch and is removed. Two engines that roll at once would give their folders one name, and one of them fails.

Files are rolled up by a thread beside the stream; batches do not wait for it unless it is far behind.
"""

import errno
import os
import re
import shutil
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.core.arrays.batches import gather
from geoswarm.errors import StreamError
from geoswarm.run.parquet_parts import open_part
from geoswarm.store.local_files import sync_to_disk

BATCHES_MAX = 1000
"""Batches in one file: rolling them up opens all of their files, one after the other."""
WAITING_MAX = 4 * BATCHES_MAX
"""Batches that may wait. Beyond, the stream waits, too: then the disk cannot keep up."""
READ_ROWS, GROUP_BYTES_MAX = 1 << 16, 64 << 20
"""Rows that are read at once, and bytes of a row group that is written: all that is in memory."""
EXPIRED_MAX = 8
"""Folders that one batch removes. It adds one, so what is left over from a long stop is caught up on."""
ARROW = "parquet-cpp-arrow"
"""Who wrote a file that may be rolled up. Spark writes what Arrow has no type for, and that stays as it is."""
ROLLED_NAME = re.compile(r"batches-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True)
class SmallBatch:
    number: int
    rows: int
    schema: pa.Schema | None
    """Its columns; None if it goes into a folder of its own."""


def first_roll(waiting: Sequence[SmallBatch], rows_max: int) -> tuple[list[SmallBatch], bool]:
    """The batches that become visible next, in one folder, and whether no further one can join them."""
    if not waiting:
        return [], False
    first, rows = waiting[0], 0
    for count, batch in enumerate(waiting):
        if count and (batch.schema is None or not batch.schema.equals(first.schema)):
            return list(islice(waiting, count)), True
        rows += batch.rows
        if first.schema is None or rows >= rows_max or count + 1 == BATCHES_MAX:
            return list(islice(waiting, count + 1)), True
    return list(waiting), False


class RollingFolder:
    def __init__(self, path: Path, roll_rows: int, roll_s: float, keep_s: float | None) -> None:
        self.path, self._work = path, path / "_work"
        self._roll_rows, self._roll_s, self._keep_s = roll_rows, roll_s, keep_s
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ends = False
        self._error: BaseException | None = None
        self._due_s = -float("inf")
        """When what waits becomes visible, by the monotonic clock."""
        self._waiting = deque[SmallBatch]()
        self._visible = deque[int]()
        self._last = -1
        self._load()

    def has(self, batch_id: int) -> bool:
        """Whether the batch is here already, visible or waiting."""
        with self._changed:
            newest = self._waiting[-1].number if self._waiting else self._last
        return batch_id <= newest

    def stage(self, batch_id: int) -> Path:
        """A folder that does not exist, for the tasks of a batch. Its name is new: a Spark that outlived its driver may
        still be writing the last one."""
        return self._work / "staged" / f"{batch_id}-{uuid.uuid4().hex}"

    def add(self, staged: Path, batch_id: int) -> None:
        """Take over the files of a batch, which are complete."""
        batch = self._measure(staged, batch_id)
        with self._changed:
            self._raise_error()
            if not self._waiting and (batch.schema is None or time.monotonic() >= self._due_s):
                self._show(staged, batch_id, batch_id)
            else:
                staged.rename(self._place(batch_id))
                self._waiting.append(batch)
                self._start()
                self._changed.notify_all()
                self._changed.wait_for(lambda: len(self._waiting) <= WAITING_MAX or self._error is not None)
        self._expire()

    def end(self) -> None:
        """Make visible what waits, and end the thread; the next batch would start another."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._ends = True
            self._changed.notify_all()
        if thread is not None:
            thread.join()
        self._ends = False
        self._raise_error()

    # -- the state on the disk

    def _load(self) -> None:
        """Remove what a killed process did not complete, and roll up what it left."""
        for name in ("staged", "rolled", "expired"):
            shutil.rmtree(self._work / name, ignore_errors=True)
        for name in ("staged", "rolled", "expired", "waiting"):
            (self._work / name).mkdir(parents=True, exist_ok=True)
        waiting = _numbers(self._work / "waiting")
        self._visible = deque(_numbers(self.path, "batch="))
        self._last = _last_batch(self.path, self._visible)
        for number in waiting:
            if number <= self._last:  # rolled up, and not removed before the process was killed
                shutil.rmtree(self._place(number))
            else:
                self._waiting.append(self._measure(self._place(number), number))
        if self._waiting:
            self._start()

    def _place(self, number: int) -> Path:
        return self._work / "waiting" / str(number)

    def _measure(self, folder: Path, number: int) -> SmallBatch:
        if not self._roll_s:
            return SmallBatch(number, 0, None)
        footers = [pq.read_metadata(part) for part in _parts(folder)]
        rows = sum(footer.num_rows for footer in footers)
        is_small = rows < self._roll_rows and all(str(f.created_by).startswith(ARROW) for f in footers)
        return SmallBatch(number, rows, footers[0].schema.to_arrow_schema() if is_small and footers else None)

    def _show(self, folder: Path, first: int, last: int) -> None:
        """The one step in which batches become visible."""
        try:
            folder.rename(self.path / f"batch={first}")
        except OSError as error:
            raise self._explain(error) from error
        self._visible.append(first)
        self._last, self._due_s = last, time.monotonic() + self._roll_s

    def _expire(self) -> None:
        """Remove the oldest folders, but never the newest, which has the number of the last batch."""
        if self._keep_s is None:
            return
        expired = self._work / "expired"
        for _ in range(EXPIRED_MAX):
            with self._changed:
                if len(self._visible) < 2:
                    break
                folder = self.path / f"batch={self._visible[0]}"
                try:
                    if folder.stat().st_mtime + self._keep_s > time.time():
                        break
                    folder.rename(expired / folder.name)
                except FileNotFoundError:
                    pass  # somebody else removed it
                self._visible.popleft()
            shutil.rmtree(expired / folder.name, ignore_errors=True)

    # -- the thread

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._roll_all, name="geoswarm-rolls", daemon=True)
            self._thread.start()

    def _roll_all(self) -> None:
        try:
            while batches := self._next_roll():
                self._roll(batches)
        except BaseException as error:
            with self._changed:
                self._error, self._thread = self._explain(error), None
                self._changed.notify_all()

    def _next_roll(self) -> list[SmallBatch]:
        """Wait for batches to roll up; none at the end."""
        with self._changed:
            while True:
                batches, is_full = first_roll(self._waiting, self._roll_rows)
                rest_s = self._due_s - time.monotonic() if batches else None
                if is_full or self._ends or (rest_s is not None and rest_s <= 0):
                    return batches
                self._changed.wait(rest_s)

    def _roll(self, batches: Sequence[SmallBatch]) -> None:
        first, last = batches[0].number, batches[-1].number
        if len(batches) == 1:
            folder = self._place(first)
        else:
            folder = self._work / "rolled" / f"{first}-{uuid.uuid4().hex}"
            folder.mkdir()
            parts = [part for batch in batches for part in _parts(self._place(batch.number))]
            _write_rolled(folder / f"batches-{first}-{last}.parquet", parts, batches[0].schema, self._roll_rows)
        with self._changed:
            self._show(folder, first, last)
            for _ in batches:
                self._waiting.popleft()
            self._changed.notify_all()
        if len(batches) > 1:
            sync_to_disk(self.path)
            for batch in batches:
                shutil.rmtree(self._place(batch.number))

    def _explain(self, error: BaseException) -> BaseException:
        if not isinstance(error, OSError) or error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            return error
        return StreamError(f"another engine writes to {self.path} ({error}): stop one of the two, and start again")

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _numbers(folder: Path, prefix: str = "") -> list[int]:
    names = [entry.name.removeprefix(prefix) for entry in folder.glob(f"{prefix}*")]
    return sorted(int(name) for name in names if name.isdecimal())


def _last_batch(path: Path, visible: Sequence[int]) -> int:
    """The last batch that is visible, from the name of the newest file; -1 if there is none."""
    if not visible:
        return -1
    found = [ROLLED_NAME.fullmatch(part.name) for part in _parts(path / f"batch={visible[-1]}")]
    return max([visible[-1], *(int(match[2]) for match in found if match)])


def read_folder(path: Path) -> pa.Table:
    """All rows, waiting or visible, with the first batch of their folder in the column `batch`. It changes nothing, and
    may be called while another process writes."""
    while True:
        waiting = _numbers(path / "_work" / "waiting")
        visible = _numbers(path, "batch=")
        last = _last_batch(path, visible)
        folders = {n: path / f"batch={n}" for n in visible}
        small = {n: path / "_work" / "waiting" / str(n) for n in waiting if n > last}
        try:
            found = [_read_parts(folder, first) for first, folder in (folders | small).items()]
        except FileNotFoundError:
            continue  # a folder became visible, or was removed, since the names were read
        if small and _last_batch(path, _numbers(path, "batch=")) != last:
            continue  # perhaps some of their files were removed before they were read
        return pa.concat_tables(found, promote_options="default") if found else pa.table({})


def _read_parts(folder: Path, first: int) -> pa.Table:
    tables = [pq.read_table(part, partitioning=None) for part in _parts(folder)]
    table = pa.concat_tables(tables) if tables else pa.table({})
    return table.append_column("batch", pa.array(np.full(len(table), first)))


def _write_rolled(path: Path, parts: Sequence[Path], schema: pa.Schema, group_rows: int) -> None:
    with open_part(str(path), schema) as writer:
        for batch in gather(_read(parts), group_rows, GROUP_BYTES_MAX):
            writer.write_batch(batch)
    with path.open("rb") as file:
        os.fsync(file.fileno())  # the small files are removed, so this one must survive a power cut
    sync_to_disk(path.parent)


def _read(parts: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        with pq.ParquetFile(part) as file:
            yield from file.iter_batches(READ_ROWS, use_threads=False)
