"""Keep the events of a task, if there is a window, while the task goes on with them.

A thread of its own writes a file, since most of that is waiting for the disk. The task reports what it has kept when
all of it is on the disk, and not before: so a batch that is committed has its files. `flow/keep.py` makes the arrays.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import pyarrow as pa

from geoswarm.core.arrays.jit import Array
from geoswarm.flow.keep import KeptPart, arrays_of_rows, choose_columns, part_of
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.stages.task import BatchTask


class KeepsEvents:
    """Of one task. What it kept, and the CPU time of writing it, are in the task's report behind the `with`."""

    def __init__(self, task: BatchTask, number: int, counted: LoadReport) -> None:
        self._task, self._window, self._counted = task, task.tuning.window, counted
        self._number, self._files = number, 0
        self._pool = ThreadPoolExecutor(1, "geoswarm-keep")
        self._writing: Future[tuple[KeptPart, float]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown()
        if kind is None:
            self._wait()

    def keep(self, events: pa.RecordBatch) -> None:
        """Begin to write events, which are in Z-order. One file is written at a time, so that no more than one is in
        memory."""
        if self._window is None or not len(events):
            return
        chosen = choose_columns(events, self._window.columns)
        arrays = arrays_of_rows(chosen, self._task.grid)
        self._wait()
        self._writing = self._pool.submit(self._write, f"{self._number:05d}-{self._files:04d}", arrays, len(chosen))
        self._files += 1

    def _write(self, part: str, arrays: dict[str, Array], rows: int) -> tuple[KeptPart, float]:
        began_s = self._task.cpu_s()
        written = part_of(*self._task.state.keep(part, arrays), rows, arrays)
        return written, self._task.cpu_s() - began_s

    def _wait(self) -> None:
        if self._writing is not None:
            part, cpu_s = self._writing.result()
            self._counted.kept.append(part)
            self._counted.route_cpu_us += int(cpu_s * 1e6)
            self._writing = None
