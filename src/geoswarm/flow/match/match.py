"""Events against subscriptions: which of them each event meets. Checks and packs; `kernels.py` loops.

Exact: a point on a rectangle's border is inside, and every live subscription is found once, whichever segment holds it.
`sim/oracle.py` gives the same answer the slow way.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.flow.batches import xy
from geoswarm.flow.match.index import CellIndex, codes_of, frame_of
from geoswarm.flow.match.kernels import Hits, Points, Progress, Records, interleave, match_level
from geoswarm.jit import Ints, SubIds
from geoswarm.space.grid import Grid


class Searchable(NamedTuple):
    """One segment, as the matcher sees it."""

    records: Records
    levels: CellIndex


class Met(NamedTuple):
    """A run of events and what they met: the subscriptions of event i are subs[offsets[i]:offsets[i + 1]]."""

    events: pa.RecordBatch
    offsets: Ints
    subs: SubIds


def match(
    events: pa.RecordBatch,
    segments: Sequence[Searchable],
    grid: Grid,
    now_us: int,
    *,
    rows_max: int,
    pairs_max: int,
) -> Iterator[Met]:
    """`events` are in Z-order, as `route` leaves them. Yields them in order, in runs of at most `rows_max` events and
    about `pairs_max` pairs; only a single event with more than that makes a longer run."""
    x, y = xy(events)
    points = Points(codes_of(x, y, frame_of(grid)), x, y)
    start, room, length_max = 0, 0, rows_max
    while start < len(events):
        length = min(length_max, len(events) - start)
        while True:
            run = points.between(start, start + length)
            hits = _search(run, segments, now_us, max(room, 2 * length), pairs_max if length > 1 else None)
            if hits is not None:
                break
            length = max(1, length // 4)
        # Where one run was too dense the next will be: a search that is thrown away costs as much as one that counts.
        length_max = min(rows_max, 2 * length if len(hits.subs) < pairs_max // 4 else length)
        room = len(hits.subs)
        yield Met(events.slice(start, length), np.concatenate([[0], hits.ends]), hits.subs)
        start += length


def _search(
    points: Points, segments: Sequence[Searchable], now_us: int, room: int, pairs_max: int | None
) -> Hits | None:
    """The hits at all levels of all segments, or None if they are more than `pairs_max`."""
    found: list[Hits] = []
    total = 0
    for records, levels in segments:
        for level, cells in levels.items():
            shift = 2 * level
            if cells.keys[-1] < points.codes[0] >> shift or cells.keys[0] > points.codes[-1] >> shift:
                continue
            hits, done = Hits(np.empty(len(points.codes), np.int64), np.empty(room, np.int64)), Progress(0, 0, 0)
            while done.points < len(points.codes):
                done = match_level(points, shift, cells, records, now_us, hits, done)
                if pairs_max is not None and total + done.hits > pairs_max:
                    return None
                if done.wanted > len(hits.subs):
                    hits = hits.longer(max(2 * len(hits.subs), done.wanted))
            total += done.hits
            if done.hits:
                found.append(Hits(hits.ends, hits.subs[: done.hits]))
    if len(found) == 1:
        return found[0]
    if not found:
        return Hits(np.zeros(len(points.codes), np.int64), np.empty(0, np.int64))
    return Hits(*interleave(np.stack([h.ends for h in found]), np.concatenate([h.subs for h in found])))
