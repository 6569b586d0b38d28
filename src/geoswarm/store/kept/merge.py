"""Make few large runs of kept events of many small ones, beside the stream.

Sixteen neighbours of a like size become one, so an event is written anew a logarithmic number of times; so do fewer
that are as large together as a run may be. Thus an hour of batches is a few dozen runs. A run never gets so large that
what has expired in it is more than an eighth of the window. The newest run is left alone: its batch may be run again.

A task's file covers the world. A merged run is cut by place into several files (`core/index/tiles.py`), so that a small
region needs one or two of them.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.config import WindowSettings
from geoswarm.core.arrays.batches import xy
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.tiles import tiles_of
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
"""Of a merged run: what a merge holds in memory, besides one of its files."""
WINDOW_SHARE = 8
"""A merged run covers at most this part of the window."""
TILES_PER_SIDE_MAX = 4
"""A merged run has at most 16 files, or as many for each set of types that its columns had."""
TILE_ROWS_MIN = 16_384
"""Rows of such a file, about: fewer are read in less time than another file is opened."""


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

    def begin(self, runs: Sequence[KeptRun]) -> None:
        """Start a merge if one is due and none is under way."""
        chosen = runs_to_merge(runs, self._limits) if self._running is None else ()
        if chosen:
            self._running = self._pool.submit(merge_runs, self._storage, self._grid, chosen)

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


def merge_runs(storage: Storage, grid: Grid, runs: Sequence[KeptRun]) -> KeptRun:
    """One run of the same events, cut by place; its files are on disk, the run is not."""
    tables = [_rows_of(storage, part, run) for run in runs for part in run.parts]
    batches = tuple(batch for run in runs for batch in run.batches)
    parts = list[KeptPart]()
    stem = f"{batches[0].number:012d}-{batches[-1].number:012d}"
    for alike in _groups_of_like_types(tables):
        whole = join_tables(alike).combine_chunks()
        (events,) = whole.to_batches(max_chunksize=len(whole))
        for rows in rows_by_tile(events):
            tile = sort_by_place(events.take(pa.array(rows)), grid)
            arrays = arrays_of_rows(tile, grid)
            parts.append(part_of(*write(storage, stem, arrays), len(tile), arrays))
    return KeptRun(batches, tuple(parts), runs[-1].first_kept, runs[-1].cut)


def _groups_of_like_types(tables: Sequence[pa.Table]) -> list[list[pa.Table]]:
    """The tables by the types of their columns, which may have changed while the stream went on: each keeps its own."""
    groups, schemas = list[list[pa.Table]](), list[pa.Schema]()
    for table in tables:
        for place, schema in enumerate(schemas):
            try:
                schemas[place] = pa.unify_schemas([schema, table.schema])
            except pa.ArrowTypeError:
                continue
            groups[place].append(table)
            break
        else:
            groups.append([table])
            schemas.append(table.schema)
    return groups


def rows_by_tile(events: pa.RecordBatch) -> list[Ints]:
    """The rows of each tile that has any."""
    side = max(1, min(TILES_PER_SIDE_MAX, int((len(events) / TILE_ROWS_MIN) ** 0.5)))
    tiles = tiles_of(*xy(events), side)
    rows, ends = sort_order(tiles, side * side - 1), np.cumsum(np.bincount(tiles)).tolist()
    return [rows[first:end] for first, end in pairwise([0, *ends]) if end > first]


def _rows_of(storage: Storage, part: KeptPart, run: KeptRun) -> pa.Table:
    """The rows of a part, each with its batch."""
    rows = open_part(storage.map_arrays(f"{PARTS_FOLDER}/{part.name}")).rows
    if BATCH.name not in rows.schema.names:
        rows = rows.append_column(BATCH, pa.array(np.full(len(rows), run.first)))
    return pa.Table.from_batches([rows])
