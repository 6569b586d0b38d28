"""Events against subscriptions: which of them each event meets. Checks and packs; `kernels.py` loops.

Exact: a point on a rectangle's border is inside, and every live subscription is found once, whichever segment holds it.
`sim/oracle.py` gives the same answer the slow way.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.flow.batches import xy
from geoswarm.flow.match.index import CellIndex, codes_of, frame_of
from geoswarm.flow.match.kernels import Hits, Points, Progress, Records, interleave, match_level
from geoswarm.flow.match.text_kernels import Conditions, TextIndex, match_text
from geoswarm.jit import Bools, Ints, SubIds
from geoswarm.model import TEXT
from geoswarm.space.grid import Grid
from geoswarm.space.plan import Plan
from geoswarm.text.cut import TermCut
from geoswarm.text.kernels import Hashes
from geoswarm.text.tokens import Tokens, tokenize


class Searchable(NamedTuple):
    """One segment, as the matcher sees it."""

    records: Records
    levels: CellIndex
    text: TextIndex | None = None
    """None: nobody in it asks for words."""
    conditions: Conditions | None = None


class TermShare(NamedTuple):
    """The terms of one partition, where a place's terms are divided."""

    cut: TermCut
    shares: tuple[int, ...]

    @classmethod
    def of(cls, plan: Plan, partition_id: int) -> "TermShare | None":
        """None: all terms of the place are here."""
        partition = plan.partition(partition_id)
        return None if partition.cut is None else cls(plan.cuts[partition.cut], partition.shares)

    @property
    def plain(self) -> bool:
        """Share 0 also has those who ask for no words."""
        return 0 in self.shares

    def probe(self, hashes: Hashes) -> Bools:
        mine = np.zeros(self.cut.count, np.bool_)
        mine[list(self.shares)] = True
        return mine[self.cut.shares_of(hashes)]


_ALL: Bools = np.empty(0, np.bool_)

FIRST_ROWS = 32_768
"""About a parcel. Every run asks each level of each segment once, which many short runs would feel."""
EASE = 8
"""A run is expected to have an eighth of the pairs it may: the next place may be denser, and short arrays come from
memory that was used before."""
ROOM_MIN = 1024
"""Hits beyond those expected that a run has room for; more, and it is made longer as it goes."""


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
    terms: TermShare | None = None,
) -> Iterator[Met]:
    """`events` are in Z-order, as `route` leaves them; `terms` are those under which lists are looked up, if not all.
    Yields events in order, in runs of at most `rows_max` and about `pairs_max` pairs; a single event may have more
    than that."""
    x, y = xy(events)
    points = Points(codes_of(x, y, frame_of(grid)), x, y)
    tokens = _tokens(events, segments)
    probe = terms.probe(tokens.hashes) if terms is not None and tokens is not None else _ALL
    # A search that is thrown away costs as much as one that counts, so runs grow from a short one that tells how dense
    # it is here.
    start, length_max, density = 0, min(rows_max, FIRST_ROWS), 2.0
    while start < len(events):
        length = min(length_max, len(events) - start)
        while True:
            said = tokens and tokens.between(start, start + length)
            run = _Run(points.between(start, start + length), said, probe, terms is None or terms.plain, now_us)
            room = min(int(density * length), pairs_max) + ROOM_MIN
            hits = _search(run, segments, room, pairs_max if length > 1 else None)
            if hits is not None:
                break
            length = max(1, length // 4)
        density = max(2.0, 1.25 * len(hits.subs) / length)
        length_max = max(1, min(rows_max, 2 * length, int(pairs_max / EASE / density)))
        yield Met(events.slice(start, length), np.concatenate([[0], hits.ends]), hits.subs)
        start += length


class _Run(NamedTuple):
    """Events that are matched at once."""

    points: Points
    tokens: Tokens | None
    probe: Bools
    """Of each token: whether lists are looked up under it; empty: under all."""
    plain: bool
    """Whether those who ask for no words are looked for, too."""
    now_us: int


def _tokens(events: pa.RecordBatch, segments: Sequence[Searchable]) -> Tokens | None:
    """What the events say, if anybody asks. Events without a column `text` say nothing."""
    if TEXT.name not in events.schema.names or all(segment.text is None for segment in segments):
        return None
    return tokenize(events.column(TEXT.name))


def _search(run: _Run, segments: Sequence[Searchable], room: int, pairs_max: int | None) -> Hits | None:
    """The hits at all levels of all segments, or None if they are more than `pairs_max`."""
    found: list[Hits] = []
    total = 0
    for advance in _searches(run, segments):
        hits, done = Hits(np.empty(len(run.points.codes), np.int64), np.empty(room, np.int64)), Progress(0, 0, 0)
        while done.points < len(run.points.codes):
            done = advance(hits, done)
            if pairs_max is not None and total + done.hits > pairs_max:
                return None
            if done.wanted > len(hits.subs):
                expected = int(1.25 * done.hits * len(run.points.codes) / max(1, done.points))
                hits = hits.longer(max(2 * len(hits.subs), done.wanted, expected))
        total += done.hits
        if done.hits:
            found.append(Hits(hits.ends, hits.subs[: done.hits]))
    if len(found) == 1:
        return found[0]
    if not found:
        return Hits(np.zeros(len(run.points.codes), np.int64), np.empty(0, np.int64))
    return Hits(*interleave(np.stack([h.ends for h in found]), np.concatenate([h.subs for h in found])))


def _searches(run: _Run, segments: Sequence[Searchable]) -> Iterator[Callable[[Hits, Progress], Progress]]:
    """One for each level of each segment that the run comes near to, and one for the words of each segment."""
    points = run.points
    for records, levels, text, conditions in segments:
        for level, cells in levels.items() if run.plain else ():
            shift = 2 * level
            if cells.keys[-1] >= points.codes[0] >> shift and cells.keys[0] <= points.codes[-1] >> shift:
                yield partial(match_level, points, shift, cells, records, run.now_us)
        if text is not None and conditions is not None and run.tokens is not None:
            yield partial(match_text, points, run.tokens, text, conditions, records, run.now_us, run.probe)
