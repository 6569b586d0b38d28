"""Make few large runs of kept events of many small ones, beside the stream.

Sixteen neighbours of a like size become one, so an event is written anew a logarithmic number of times, and an hour of
batches is a few dozen files. A run never gets so large that what has expired in it is more than an eighth of the
window. The newest run is left alone: its batch may be run again.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from geoswarm.config import WindowSettings
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keep import BATCH, KeptPart, arrays_of_rows, part_of, sort_by_place
from geoswarm.flow.recall import open_part
from geoswarm.store.kept.files import PARTS_FOLDER, KeptRun, write
from geoswarm.store.storage import Storage

FANOUT = 16
"""Runs of a like size that are merged into one."""
SMALL_ROWS = 4096
"""Runs of fewer rows are of a like size."""
MERGED_ROWS_MAX, MERGED_BYTES_MAX = 4_000_000, 512 << 20
"""Of a merged run: what a merge holds in memory, three times over while it sorts."""
WINDOW_SHARE = 8
"""A merged run covers at most this part of the window."""


class BackgroundMerge:
    """Merges in a thread of its own; most of the work is done without the interpreter's lock."""

    def __init__(self, storage: Storage, grid: Grid, window: WindowSettings) -> None:
        self._storage, self._grid, self._window = storage, grid, window
        self._pool = ThreadPoolExecutor(1, "geoswarm-kept")
        self._running: Future[KeptRun] | None = None

    def take_result(self) -> KeptRun | None:
        """A run that is ready to take the place of those it was made of."""
        if self._running is None or not self._running.done():
            return None
        done, self._running = self._running, None
        return done.result()

    def begin(self, runs: Sequence[KeptRun]) -> None:
        """Start a merge if one is due and none is under way."""
        chosen = runs_to_merge(runs, self._window)
        if self._running is None and chosen:
            self._running = self._pool.submit(merge_runs, self._storage, self._grid, chosen)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def runs_to_merge(runs: Sequence[KeptRun], window: WindowSettings) -> Sequence[KeptRun]:
    """Neighbours to merge: the smallest that are sixteen or more of a like size; none if there are not so many."""
    settled = runs[:-1]
    for size in sorted({_size_class(run) for run in settled}):
        first = len(settled)
        while first and _size_class(settled[first - 1]) <= size:
            first -= 1
        chosen = _within_limits(settled[first:], window)
        if len(chosen) >= FANOUT:
            return chosen
    return ()


def _size_class(run: KeptRun) -> int:
    return int(np.log2(max(run.rows, SMALL_ROWS) / SMALL_ROWS) // np.log2(FANOUT))


def _within_limits(runs: Sequence[KeptRun], window: WindowSettings) -> Sequence[KeptRun]:
    """The oldest of neighbours that may be one run."""
    rows = size = 0
    for place, run in enumerate(runs):
        rows += run.rows
        size += sum(batch.bytes for batch in run.batches)
        span_s = (run.batches[-1].now_us - runs[0].batches[0].now_us) * 1e-6
        too_long = window.seconds is not None and span_s * WINDOW_SHARE > window.seconds
        too_many = window.events is not None and rows * WINDOW_SHARE > window.events
        too_large = rows > MERGED_ROWS_MAX or size > min(MERGED_BYTES_MAX, window.bytes / WINDOW_SHARE)
        if too_long or too_many or too_large:
            return runs[:place]
    return runs


def merge_runs(storage: Storage, grid: Grid, runs: Sequence[KeptRun]) -> KeptRun:
    """One run of the same events, with a single part; its file is on disk, the run is not."""
    tables = [_rows_of(storage, part, run) for run in runs for part in run.parts]
    batches = tuple(batch for run in runs for batch in run.batches)
    parts = list[KeptPart]()
    if tables:
        whole = pa.concat_tables(tables, promote_options="default").combine_chunks()
        (events,) = whole.to_batches(max_chunksize=len(whole))
        events = sort_by_place(events, grid)
        arrays = arrays_of_rows(events, grid)
        name = f"{batches[0].number:012d}-{batches[-1].number:012d}"
        parts.append(part_of(*write(storage, name, arrays), len(events), arrays))
    return KeptRun(batches, tuple(parts), runs[-1].first_kept, runs[-1].cut)


def _rows_of(storage: Storage, part: KeptPart, run: KeptRun) -> pa.Table:
    """The rows of a part, each with its batch."""
    rows = open_part(storage.map_arrays(f"{PARTS_FOLDER}/{part.name}")).rows
    if BATCH.name not in rows.schema.names:
        rows = rows.append_column(BATCH, pa.array(np.full(len(rows), run.first)))
    return pa.Table.from_batches([rows])
