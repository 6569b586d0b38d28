"""The demo's posts come as files, as from somebody outside: a thread writes them, a little ahead of the stream.

A file is a batch of the stream, and is removed once a later one is through. The tasks read it themselves, so the posts
cost Spark nothing, and no process of Spark's plans them; `scenario.py` starts the stream over the folder.
"""

import threading
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.lab.workload.tweets import Tweets

AHEAD = 8
"""The number of files that wait for the stream: 40 MB, and a second or two of its work."""
GROUPS = 4
"""Row groups of a file, which tasks share."""
LOOK_S = 0.01


class Feed:
    """A folder with the posts from `used` on, which are those that earlier runs on the same folder have left to do."""

    def __init__(self, workload: Tweets, folder: Path, used: int, file_rows: int) -> None:
        self._workload, self._folder, self._used, self._file_rows = workload, folder, used, file_rows
        self._is_streaming = False
        self._error: Exception | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-feed", daemon=True)

    def __enter__(self) -> "Feed":
        self._folder.mkdir(exist_ok=True)
        self._end = max(self._ends(), default=self._used)
        if self._end == self._used:
            self._write()  # the stream takes the columns from the first file
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def go_on(self, used: int) -> None:
        """Write what the stream needs after `used` posts in all. Raises what went wrong with the files, if anything."""
        self._used, self._is_streaming = used, True
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._done.wait(LOOK_S):
                if self._end - self._used < AHEAD * self._file_rows:
                    self._write()
                if self._is_streaming:  # until then, Spark looks into the files for their columns
                    self._remove_used()
        except Exception as error:  # told by `go_on`, to who waits for the stream
            self._error = error

    def _write(self) -> None:
        first, self._end = self._end, self._end + self._file_rows
        hidden = self._folder / f".{self._end:015d}"
        posts = pa.Table.from_batches([self._workload.events(first, self._file_rows)])
        pq.write_table(
            posts, hidden, row_group_size=self._file_rows // GROUPS, compression="none", use_dictionary=False
        )
        hidden.rename(self._path(self._end))

    def _remove_used(self) -> None:
        for end in self._ends():
            if end <= self._used - self._file_rows:  # the newest batch may have to run again
                self._path(end).unlink()

    def _ends(self) -> list[int]:
        """Files are named by the first post after them, so that they sort as they were written."""
        return [int(file.stem) for file in self._folder.glob("[0-9]*.parquet")]

    def _path(self, end: int) -> Path:
        return self._folder / f"{end:015d}.parquet"
