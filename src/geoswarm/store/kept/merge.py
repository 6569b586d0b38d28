"""Make few large runs of kept events of many small ones, beside the stream.

Sixteen neighbours of a like size become one, so an event is written anew a logarithmic number of times; so do fewer
that are as large together as a run may be. Thus an hour of batches is a few dozen runs. A run never gets so large that
what has expired in it is more than an eighth of the window. The newest run is left alone: its batch may be run again.

A task's file covers the world. A merged run is cut by place into several files (`core/index/tiles.py`), so that a small
region needs one or two of them. While the stream has no time to spare, a file that is as large as those is not written
anew, since there would be no fewer of them: the run names it as it is.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.config import WindowSettings
from geoswarm.core.arrays.batches import xy
from geoswarm.core.arrays.jit import Ints, ZCodes
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.tiles import SAMPLE_POINTS, draw_tiles
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keep import BATCH, KeptPart, arrays_of_rows, part_of, sort_by_place
from geoswarm.flow.recall import join_tables, open_part
from geoswarm.store.kept.files import PARTS_FOLDER, KeptRun, write
from geoswarm.store.storage import Storage

FANOUT = 16
"""Runs of a like size that are merged into one."""
SMALL_ROWS = 4096
"""Runs of fewer rows are of a like size."""
MERGED_ROWS_MAX, MERGED_BYTES_MAX = 4_000_000, 512 << 20
"""Of a merged run: what a merge maps. In memory it holds one of the files that it writes, and what that is made of."""
WINDOW_SHARE = 8
"""A merged run covers at most this part of the window."""
TILES_PER_SIDE_MAX = 4
"""A merged run has at most 16 files, or as many for each set of types that its columns had."""
TILE_ROWS_MIN = 16_384
"""Rows of such a file, about: fewer are read in less time than another file is opened."""
LARGE_ROWS, LARGE_BYTES = 131_072, 16 << 20
"""A file with as many of either is large: half of what the files of the largest runs have. To write an event anew takes
longer than all else that is done to keep it."""


class BackgroundMerge:
    """Merges in a thread of its own; most of the work is done without the interpreter's lock."""

    def __init__(self, storage: Storage, grid: Grid, window: WindowSettings) -> None:
        self._storage, self._grid, self._limits = storage, grid, MergeLimits.of(window)
        self._pool = ThreadPoolExecutor(1, "geoswarm-kept")
        self._running: Future[KeptRun] | None = None

    def take_result(self) -> KeptRun | None:
        """A run that is ready to take the place of those it was made of."""
        if self._running is None or not self._running.done():
            return None
        done, self._running = self._running, None
        return done.result()

    def begin(self, runs: Sequence[KeptRun], has_time: bool) -> None:
        """Start a merge if one is due and none is under way: of large files, too, if there is time for it."""
        chosen = runs_to_merge(runs, self._limits) if self._running is None else ()
        if chosen:
            self._running = self._pool.submit(merge_runs, self._storage, self._grid, chosen, has_time)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class MergeLimits(NamedTuple):
    """Of a merged run."""

    span_us: float
    rows: float
    bytes: float

    @classmethod
    def of(cls, window: WindowSettings) -> "MergeLimits":
        span_us = math.inf if window.seconds is None else window.seconds * 1e6 / WINDOW_SHARE
        rows = math.inf if window.events is None else window.events / WINDOW_SHARE
        return cls(span_us, min(MERGED_ROWS_MAX, rows), min(MERGED_BYTES_MAX, window.bytes / WINDOW_SHARE))


def runs_to_merge(runs: Sequence[KeptRun], limits: MergeLimits) -> Sequence[KeptRun]:
    """Neighbours to merge: the smallest that are sixteen or more of a like size, or as many as may be one run; none if
    there are no such neighbours."""
    settled, sizes = runs[:-1], [_size_class(run) for run in runs[:-1]]
    for size in sorted(set(sizes)):
        first = len(settled)
        while first and sizes[first - 1] <= size:
            first -= 1
        while first < len(settled):
            end = first + _within_limits(settled[first:], limits)
            many, is_full = sizes[first:end].count(size), end < len(settled)
            if many >= FANOUT or (is_full and many > 1):
                return settled[first:end]
            first = end
    return ()


def _size_class(run: KeptRun) -> int:
    return int(math.log2(max(run.rows, SMALL_ROWS) / SMALL_ROWS) // math.log2(FANOUT))


def _within_limits(runs: Sequence[KeptRun], limits: MergeLimits) -> int:
    """How many neighbours may be one run, from the oldest on; at least one."""
    rows = size = 0
    for place, run in enumerate(runs):
        rows += run.rows
        size += run.bytes
        span_us = run.batches[-1].now_us - runs[0].batches[0].now_us
        if place and (span_us > limits.span_us or rows > limits.rows or size > limits.bytes):
            return place
    return len(runs)


def merge_runs(storage: Storage, grid: Grid, runs: Sequence[KeptRun], has_time: bool) -> KeptRun:
    """One run of the same events, cut by place, those of large files only if there is time; its files are on disk, the
    run is not."""
    known = [_with_batch(part, run) for run in runs for part in run.parts]
    parts = [part for part in known if _is_large(part) and not has_time]
    held = [_rows_of(storage, part) for part in known if has_time or not _is_large(part)]
    batches = tuple(batch for run in runs for batch in run.batches)
    stem = f"{batches[0].number:012d}-{batches[-1].number:012d}"
    for alike in _groups_of_like_types(held):
        for rows in cut_by_place(alike):
            tile = sort_by_place(rows, grid)
            arrays = arrays_of_rows(tile, grid)
            parts.append(part_of(*write(storage, stem, arrays), len(tile), arrays))
    return KeptRun(batches, tuple(parts), runs[-1].first_kept, runs[-1].cut)


def _is_large(part: KeptPart) -> bool:
    return part.rows >= LARGE_ROWS or part.bytes >= LARGE_BYTES


def _with_batch(part: KeptPart, run: KeptRun) -> KeptPart:
    """As a run of several batches names it."""
    return part._replace(batch=run.first) if len(run.batches) == 1 else part


class HeldRows(NamedTuple):
    """The rows of a file, mapped, which are all of one batch, unless they say of which each is."""

    rows: pa.RecordBatch
    batch: int | None

    def take(self, rows: Ints) -> pa.Table:
        """Some of the rows, each with its batch."""
        taken = self.rows.take(pa.array(rows))
        if BATCH.name not in taken.schema.names:
            taken = taken.append_column(BATCH, pa.array(np.full(len(rows), self.batch)))
        return pa.Table.from_batches([taken])


def cut_by_place(held: Sequence[HeldRows]) -> Iterator[pa.RecordBatch]:
    """The rows of all files by tiles, of which no two overlap. In memory is no more than one tile, which is copied
    while it is in the caches; the rows of all together would be fresh memory for every merge."""
    points = [xy(file.rows) for file in held]
    total = sum(len(x) for x, _ in points)
    side = max(1, min(TILES_PER_SIDE_MAX, int((total / TILE_ROWS_MIN) ** 0.5)))
    every = max(1, total // SAMPLE_POINTS)
    x, y = (np.concatenate([point[axis][::every] for point in points]) for axis in range(2))
    tiles = draw_tiles(x, y, side)
    rows_of_tiles = [_by_tile(tiles.of(*point), side * side) for point in points]
    for tile in range(side * side):
        # Of files without rows here, too: their columns and types belong to the answer of each tile.
        joined = join_tables([file.take(rows[tile]) for file, rows in zip(held, rows_of_tiles, strict=True)])
        if len(joined):
            (events,) = joined.combine_chunks().to_batches(max_chunksize=len(joined))
            yield _narrow(events)


def _narrow(events: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the numbers of their batches in 4 bytes; the 2^31st batch comes after seven years of ten a second,
    and has 8. Readers compare numbers of either type."""
    place = events.schema.get_field_index(BATCH.name)
    numbers = events.column(place)
    if pc.max(numbers).as_py() > np.iinfo(np.int32).max:
        return events
    return events.set_column(place, BATCH.with_type(pa.int32()), numbers.cast(pa.int32()))


def _by_tile(tiles: ZCodes, many: int) -> list[Ints]:
    """The rows of each tile."""
    rows, ends = sort_order(tiles, many - 1), np.cumsum(np.bincount(tiles, minlength=many)).tolist()
    return [rows[first:end] for first, end in pairwise([0, *ends])]


def _groups_of_like_types(held: Sequence[HeldRows]) -> list[list[HeldRows]]:
    """The files by the types of their columns, which may have changed while the stream went on: each keeps its own."""
    groups, schemas = list[list[HeldRows]](), list[pa.Schema]()
    for file in held:
        given = file.rows.schema
        given = given.remove(i) if (i := given.get_field_index(BATCH.name)) >= 0 else given
        for place, schema in enumerate(schemas):
            try:
                schemas[place] = pa.unify_schemas([schema, given])
            except pa.ArrowTypeError:
                continue
            groups[place].append(file)
            break
        else:
            groups.append([file])
            schemas.append(given)
    return groups


def _rows_of(storage: Storage, part: KeptPart) -> HeldRows:
    return HeldRows(open_part(storage.map_arrays(f"{PARTS_FOLDER}/{part.name}")).rows, part.batch)
