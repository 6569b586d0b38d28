"""Find the kept events that are nearest to a place, and read only the blocks that may have one of them.

No event of a block is nearer than the block's box, nor than the box of its file. So files and blocks are taken up in
the order of their boxes, and once k events are found, those that begin farther away than the last of them are left
alone. Where words are asked for, the events of the blocks are matched first, as in `recall.py`. Distances are those of
circles (`core/shapes/circle.py`), along the sphere, over the antimeridian and the poles.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints, read_only
from geoswarm.core.index.blocks import BLOCK_ROWS
from geoswarm.core.shapes.circle import SLACK_M, distances_m, distances_to_boxes_m
from geoswarm.core.space.grid import Grid
from geoswarm.flow.recall import (
    RUN_ROWS_MAX,
    OpenPart,
    PastQuery,
    blocks_touched,
    candidates,
    join_tables,
    matched_events,
)
from geoswarm.model import TEXT

DISTANCE = pa.field("distance_m", pa.float64(), nullable=False)
"""The column that an answer has beside those of the events. One of the user's own with this name makes way."""
ORDER = ((DISTANCE.name, "ascending"), ("ts", "descending"), ("event_id", "ascending"))
"""Of an answer; of events at one distance the newest comes first, then the lowest id."""
FIRST_BLOCKS = 16
"""Blocks that are read first, some 4,000 events; then twice as many each time. To read a few often takes longer."""


class NearestQuery(NamedTuple):
    lon: float
    lat: float
    k: int
    within_m: float
    past: PastQuery
    """The time, and a subscription to the words anywhere."""
    has_words: bool


class NearPart(NamedTuple):
    """A file of kept events that is opened when its box is the nearest."""

    box: tuple[float, float, float, float]
    open: Callable[[], OpenPart]


class NearestFound(NamedTuple):
    events: pa.Table | None
    """In order; None: no block was read."""
    blocks: dict[int, tuple[int, int]]
    """Of each part that was opened, by its number: the blocks that were read, and those that it has."""


def nearest_events(parts: Sequence[NearPart], query: NearestQuery, grid: Grid, first_kept: int) -> NearestFound:
    """Of batches from `first_kept` on."""
    frontier = _Frontier(parts, query)
    best: pa.Table | None = None
    limit_m, read = query.within_m, dict[int, int]()
    blocks_max = max(FIRST_BLOCKS, query.k // BLOCK_ROWS)
    while chosen := frontier.take(limit_m, blocks_max):
        tables = list[pa.Table]()
        for number, blocks in chosen.items():
            part = frontier.opened[number]
            touched = np.zeros(len(part.blocks.boxes), np.bool_)
            touched[blocks] = True
            read[number] = read.get(number, 0) + len(blocks)
            tables.append(candidates(part, touched, query.past, first_kept))
        near = _with_distances(join_tables(tables), query, limit_m)
        near = _with_words(near, query, grid)
        whole = near if best is None else join_tables([best, near])
        best = whole.sort_by(list(ORDER)).slice(0, query.k)
        if len(best) == query.k:
            limit_m = min(limit_m, best[DISTANCE.name][-1].as_py())
        blocks_max = min(2 * blocks_max, max(1, RUN_ROWS_MAX // BLOCK_ROWS))
    sizes = {number: len(part.blocks.boxes) for number, part in frontier.opened.items()}
    return NearestFound(best, {number: (read.get(number, 0), size) for number, size in sizes.items()})


def _with_distances(events: pa.Table, query: NearestQuery, limit_m: float) -> pa.Table:
    """The events within the limit, and how far they are."""
    x, y = (events.column(axis).to_numpy() for axis in ("x", "y"))
    metres = distances_m(query.lon, query.lat, read_only(x), read_only(y))
    if DISTANCE.name in events.schema.names:
        events = events.drop_columns([DISTANCE.name])
    return events.append_column(DISTANCE, pa.array(metres)).filter(pa.array(metres <= limit_m))


def _with_words(events: pa.Table, query: NearestQuery, grid: Grid) -> pa.Table:
    if not query.has_words or not len(events):
        return events
    if TEXT.name not in events.schema.names:
        return events.slice(0, 0)  # these batches have no text; others may
    found = matched_events([events], query.past, grid)
    return events.slice(0, 0) if found is None else found


class _Frontier:
    """The blocks that have not been read, nearest first. Of each part one is known: its next."""

    def __init__(self, parts: Sequence[NearPart], query: NearestQuery) -> None:
        self._parts, self._query = parts, query
        self.opened: dict[int, OpenPart] = {}
        self._left: dict[int, Iterator[tuple[float, int]]] = {}
        boxes = np.array([part.box for part in parts], np.float64).reshape(-1, 4)
        self._next = [(metres, number, -1) for number, metres in enumerate(self._distances(boxes).tolist())]
        heapify(self._next)

    def take(self, limit_m: float, many: int) -> dict[int, Ints]:
        """The next blocks, at most so many, that may have events within the limit, by their part."""
        chosen = dict[int, list[int]]()
        while many and self._next and self._next[0][0] <= limit_m:
            _, number, block = self._next[0]
            if block >= 0:
                chosen.setdefault(number, []).append(block)
                many -= 1
            else:
                self._open(number)
            following = next(self._left[number], None)
            if following is None:
                heappop(self._next)
            else:
                heapreplace(self._next, (following[0], number, following[1]))
        return {number: np.array(blocks) for number, blocks in chosen.items()}

    def _open(self, number: int) -> None:
        part = self.opened[number] = self._parts[number].open()
        blocks = np.flatnonzero(blocks_touched(part, self._query.past))
        metres = self._distances(part.blocks.boxes[blocks])
        order = np.argsort(metres, kind="stable")
        self._left[number] = zip(metres[order].tolist(), blocks[order].tolist(), strict=True)

    def _distances(self, boxes: Floats) -> Floats:
        """How near their events can be."""
        return distances_to_boxes_m(self._query.lon, self._query.lat, read_only(boxes)) - SLACK_M
