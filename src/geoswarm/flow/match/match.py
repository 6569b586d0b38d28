"""Finds the subscriptions that each event meets. Checks and packs; `core/index/` has the loops.

Exact: a point on a rectangle's border is inside, and every live subscription is found once, whichever segment holds it.
`run/oracle/oracle.py` finds the same the slow way. Events that are areas are matched in `areas.py`, and added here.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import xy
from geoswarm.core.arrays.jit import Bools, Bytes, Ints, SubIds, read_only
from geoswarm.core.index.cell_kernels import match_cells
from geoswarm.core.index.cells import CellIndex, codes_of, frame_of
from geoswarm.core.index.demands import Lists
from geoswarm.core.index.kernels import Hits, Points, Records, SearchProgress, interleave
from geoswarm.core.index.list_kernels import match_values
from geoswarm.core.index.regions import Level, Regions, match_regions, outside
from geoswarm.core.index.searchable import Searchable as Searchable  # where most look for it
from geoswarm.core.index.word_kernels import Conditions, TextIndex
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.cut import TermCut
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import Tokens, tokenize
from geoswarm.flow.match.area_kernels import are_satisfied
from geoswarm.flow.match.areas import areas_of, match_areas
from geoswarm.flow.match.facts import Facts, compact
from geoswarm.flow.match.word_match import match_text
from geoswarm.flow.sound import drop_mark
from geoswarm.model import GEOMETRY, TEXT


class TermShare(NamedTuple):
    """The terms of one partition, where a place's terms are divided."""

    cut: TermCut
    shares: tuple[int, ...]

    @classmethod
    def of(cls, plan: Plan, partition_id: int) -> "TermShare | None":
        """None: all terms of the place belong to the partition."""
        partition = plan.partition(partition_id)
        return None if partition.cut is None else cls(plan.cuts[partition.cut], partition.shares)

    @property
    def plain(self) -> bool:
        """Whether subscriptions without words belong to it, as they do to share 0."""
        return 0 in self.shares

    def probe(self, hashes: Hashes) -> Bools:
        mine = np.zeros(self.cut.count, np.bool_)
        mine[list(self.shares)] = True
        return mine[self.cut.shares_of(hashes)]


_ALL: Bools = np.empty(0, np.bool_)
NO_LISTS: Bytes = read_only(np.empty(0, np.uint8))

FIRST_ROWS = 32_768
"""Rows of the first run, about a parcel. A run searches each segment, so short runs are slow."""
RUN_MARGIN = 8
"""A run ends at an eighth of the pairs that it may have, since short arrays reuse memory: at 300 matches an event, the
fresh pages of long ones were a third of all work."""
RUN_ROOM_MIN = 8192
"""Room for hits beyond those expected; if there are more, the arrays are made longer. A long document alone has a
thousand candidates, and would be searched twice."""


class MatchRun(NamedTuple):
    """A run of events and the subscriptions that they met: those of event i are subs[offsets[i]:offsets[i + 1]]."""

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
) -> Iterator[MatchRun]:
    """`events` are in Z-order, as `route` returns them; `terms` are those whose lists are searched, if not all. Yields
    events in order, in runs of at most `rows_max` events and about `pairs_max` pairs; a single event may have more
    pairs. An event with a geometry is matched by all terms: only one partition of its place gets it."""
    areas = areas_of(events, grid)
    events = drop_mark(events)
    if areas is None:
        yield from _match_points(events, Facts(events), segments, grid, now_us, rows_max, pairs_max, terms)
        return
    half = max(1, pairs_max // 2)  # matches of points wait for those of areas, and the other way round
    point_rows = np.setdiff1d(np.arange(len(events)), areas.rows, assume_unique=True)
    names = [name for name in ("x", "y", TEXT.name, GEOMETRY.name) if name in events.schema.names]
    points = events.select(names).take(pa.array(point_rows))
    by_points = _match_points(points, Facts(events, point_rows), segments, grid, now_us, rows_max, half, terms)
    tokens = _tokens(events.select(names).take(pa.array(areas.rows)), segments)
    by_areas = match_areas(areas, tokens, Facts(events, areas.rows), segments, grid, now_us, half)
    met_points = _Feed(point_rows, (Hits(met.offsets[1:], met.subs) for met in by_points), len(events))
    met_areas = _Feed(areas.rows, by_areas, len(events))
    start = 0
    while start < len(events):
        stop = min(met_points.reach(), met_areas.reach(), start + rows_max)
        yield _join_runs(events, start, stop, met_points.until(stop), met_areas.until(stop))
        start = stop


class _Feed:
    """The matches of some of the events, fetched run by run when they are needed."""

    def __init__(self, rows: Ints, runs: Iterator[Hits], total: int) -> None:
        """`rows` are the places of these events among all `total`."""
        self._rows, self._runs, self._total = rows, runs, total
        self._run, self._used, self._done = Hits(rows[:0], rows[:0]), 0, 0

    def reach(self) -> int:
        """The event up to which the matches are known."""
        if self._used == len(self._run.ends) and self._done < len(self._rows):
            self._run, self._used = next(self._runs), 0
        behind = self._done + len(self._run.ends) - self._used
        return int(self._rows[behind]) if behind < len(self._rows) else self._total

    def until(self, stop: int) -> tuple[Ints, Ints, SubIds]:
        """The next events up to `stop`: their places, the number of matches of each, and the subscriptions."""
        count = int(np.searchsorted(self._rows, stop)) - self._done
        rows, ends = self._rows[self._done : self._done + count], self._run.ends[self._used : self._used + count]
        begin = int(self._run.ends[self._used - 1]) if self._used else 0
        self._used, self._done = self._used + count, self._done + count
        return rows, np.diff(ends, prepend=begin), self._run.subs[begin : ends[-1] if count else begin]


def _join_runs(
    events: pa.RecordBatch, start: int, stop: int, one: tuple[Ints, Ints, SubIds], two: tuple[Ints, Ints, SubIds]
) -> MatchRun:
    counts, is_two = np.zeros(stop - start, np.int64), np.zeros(stop - start, np.bool_)
    counts[one[0] - start], counts[two[0] - start] = one[1], two[1]
    is_two[two[0] - start] = True
    offsets = np.concatenate([[0], np.cumsum(counts)])
    mine, subs = np.repeat(is_two, counts), np.empty(offsets[-1], np.int64)
    subs[~mine], subs[mine] = one[2], two[2]
    return MatchRun(events.slice(start, stop - start), offsets, subs)


def _match_points(
    events: pa.RecordBatch,
    facts: Facts,
    segments: Sequence[Searchable],
    grid: Grid,
    now_us: int,
    rows_max: int,
    pairs_max: int,
    terms: TermShare | None,
) -> Iterator[MatchRun]:
    x, y = xy(events)
    points = Points.of(codes_of(x, y, frame_of(grid)), x, y)
    tokens = _tokens(events, segments)
    probe = _probe(events, tokens, terms) if terms is not None and tokens is not None else _ALL
    # Pairs beyond `pairs_max` are lost work, so the first run is short and measures how dense it is here.
    start, length_max, density = 0, min(rows_max, FIRST_ROWS), 2.0
    run_pairs_max = max(1, pairs_max // RUN_MARGIN)
    while start < len(events):
        length = min(length_max, len(events) - start)
        said = tokens and tokens.between(start, start + length)
        some, plain = points.between(start, start + length), terms is None or terms.plain
        run = _Run(some, said, probe, plain, now_us, facts, start)
        hits = _search(run, segments, min(int(density * length), run_pairs_max) + RUN_ROOM_MIN, run_pairs_max)
        hits = _drop_outside(run, hits, segments)
        length = len(hits.ends)
        density = max(2.0, 1.25 * len(hits.subs) / length)
        length_max = max(1, min(rows_max, 2 * length, int(run_pairs_max / density)))
        yield MatchRun(events.slice(start, length), np.concatenate([[0], hits.ends]), hits.subs)
        start += length


class _Run(NamedTuple):
    """Events that are matched at once."""

    points: Points
    tokens: Tokens | None
    probe: Bools
    """Whether the list of each token is searched; empty: those of all tokens."""
    plain: bool
    """Whether subscriptions without words are searched, too."""
    now_us: int
    facts: Facts
    """Of all events of the parcel."""
    first: int
    """The place of the first event among them."""

    def head(self, count: int) -> "_Run":
        if count == len(self.points.codes):
            return self
        tokens = self.tokens and self.tokens.between(0, count)
        return self._replace(points=self.points.between(0, count), tokens=tokens)


def _tokens(events: pa.RecordBatch, segments: Sequence[Searchable]) -> Tokens | None:
    """The words of the events; None if they have no column `text`, or no subscription asks for words."""
    if TEXT.name not in events.schema.names or all(segment.text is None for segment in segments):
        return None
    return tokenize(events.column(TEXT.name))


def _probe(events: pa.RecordBatch, tokens: Tokens, terms: TermShare) -> Bools:
    mine = terms.probe(tokens.hashes)
    if GEOMETRY.name in events.schema.names:  # a point, but no other partition gets the event
        whole = events.column(GEOMETRY.name).is_valid().to_numpy(zero_copy_only=False)
        mine |= np.repeat(whole, np.diff(tokens.offsets))
    return mine


def _search(run: _Run, segments: Sequence[Searchable], room: int, pairs_max: int) -> Hits:
    """The hits at all levels of all segments, of as many events as have `pairs_max` together, and of one at least."""
    # All searches write into the same array, one after the other; the room of events that are given up is used again.
    subs, begins, ends = np.empty(room, np.int64), [0], list[Ints]()
    pairs = np.zeros(len(run.points.codes), np.int64)  # up to each event
    for search in _searches(run, segments):
        begin, count = begins[-1], len(pairs)
        hits, done = Hits(np.empty(count, np.int64), subs), SearchProgress(0, begin, 0)
        while done.points < count:
            done = search(run.head(len(pairs)), hits, done)
            reached = pairs[: done.points] + hits.ends[: done.points] - begin
            if done.points and reached[-1] + max(0, done.wanted - done.hits) > pairs_max:
                count = max(1, int(np.searchsorted(reached, pairs_max, "right")))
            if done.points < count:
                expected = int(1.25 * (done.hits - begin) * count / max(1, done.points))
                hits = hits.longer(max(2 * len(hits.subs), done.wanted, begin + min(expected, pairs_max)))
        subs, pairs = hits.subs, reached[:count]
        if hits.ends[count - 1] > begin:
            begins.append(int(hits.ends[count - 1]))
            ends.append(hits.ends)
    if len(ends) == 1:
        return Hits(ends[0][: len(pairs)], subs[: pairs[-1]])  # a later search may have reached fewer events
    if not ends:
        return Hits(pairs, np.empty(0, np.int64))
    return Hits(pairs, interleave(np.array(begins), np.stack([part[: len(pairs)] for part in ends]), subs, pairs))


def _drop_outside(run: _Run, hits: Hits, segments: Sequence[Searchable]) -> Hits:
    """The hits without those found by words whose regions do not contain the point."""
    worded = [s for s in segments if s.regions is not None and len(s.regions.worded)]
    if not worded or not len(hits.subs):
        return hits
    owner = np.repeat(np.arange(len(hits.ends)), np.diff(hits.ends, prepend=0))
    wrong = np.zeros(len(hits.subs), np.bool_)
    for segment in worded:
        assert segment.regions is not None
        wrong |= outside(run.points, owner, hits.subs, segment.regions, segment.records, run.now_us)
    if not wrong.any():
        return hits
    counts = np.bincount(owner[~wrong], minlength=len(hits.ends))
    return Hits(np.cumsum(counts), hits.subs[~wrong])


Search = Callable[[_Run, Hits, SearchProgress], SearchProgress]
"""Goes on from where it has come, into the room that there is."""


def _searches(run: _Run, segments: Sequence[Searchable]) -> Iterator[Search]:
    """The searches of each segment that may have hits: one for rectangles, one for each level of regions, and one for
    words."""
    for segment in segments:
        if segment.demands is None:
            yield from _searches_in(run, segment)
            continue
        by_ordinal = segment._replace(
            records=segment.records._replace(ids=segment.demands.ordinals),
            text=segment.text and segment.demands.by_ordinal(segment.text),
        )
        for search in _searches_in(run, by_ordinal):
            yield partial(_demanding, search, segment, False)
        lists = segment.demands.lists
        if lists is not None and run.plain:
            said = run.facts.tokens(lists.columns)
            if len(said.hashes):
                yield partial(_demanding, partial(_listed, lists, said, by_ordinal.records), segment, True)


def _searches_in(run: _Run, segment: Searchable) -> Iterator[Search]:
    records, regions = segment.records, segment.regions
    if segment.rectangles is not None and run.plain:
        yield partial(_rectangles, segment.rectangles, records)
    if regions is not None and run.plain:
        for level, cells in regions.cells.items():
            if _may_meet(run.points, 2 * level, cells):
                yield partial(_regions, 2 * level, cells, regions, records)
    if segment.text is not None and segment.conditions is not None and run.tokens is not None:
        yield partial(_words, segment.text, segment.conditions, records)


def _demanding(
    search: Search, segment: Searchable, by_lists: bool, run: _Run, hits: Hits, done: SearchProgress
) -> SearchProgress:
    """A search that finds ordinals, and of them keeps the ids of those whose demands are met."""
    found, demands = search(run, hits, done), segment.demands
    if found.hits == done.hits or demands is None:
        return found
    how = demands.lists.how if by_lists and demands.lists is not None else NO_LISTS
    kept = run.facts.table(demands).decide(run.first, hits, done, found, how)
    if segment.conditions is not None and by_lists:
        kept &= _says_words(run, segment, segment.conditions, hits, done, found)
    if demands.objects is not None and demands.lists is None:
        owners, ordinals = _pairs(hits, done, found)
        kept &= run.facts.meet(demands, run.first + owners, ordinals)
    end = compact(kept, segment.records.ids, hits, done, found)
    return SearchProgress(found.points, end, found.wanted)


def _says_words(
    run: _Run, segment: Searchable, conditions: Conditions, hits: Hits, done: SearchProgress, found: SearchProgress
) -> Bools:
    """Whether the event of each hit has the words that the subscription asks for, if it asks for any."""
    owners, ordinals = _pairs(hits, done, found)
    offsets = conditions.conjunctions_offsets
    says: Bools = offsets[ordinals + 1] == offsets[ordinals]
    asked = np.flatnonzero(~says)
    if len(asked) and run.tokens is not None and segment.text is not None:
        says[asked] = are_satisfied(run.tokens, segment.text, conditions, owners[asked], ordinals[asked])
    return says


def _pairs(hits: Hits, done: SearchProgress, found: SearchProgress) -> tuple[Ints, Ints]:
    """The point of each hit since `done`, and the hit."""
    counts = np.diff(hits.ends[done.points : found.points], prepend=done.hits)
    return np.repeat(np.arange(done.points, found.points), counts), hits.subs[done.hits : found.hits].copy()


def _listed(
    lists: Lists, said: Tokens, records: Records, run: _Run, hits: Hits, done: SearchProgress
) -> SearchProgress:
    said = said.between(run.first, run.first + len(run.points.codes))
    return match_values(run.points, said, lists.by_value, lists.words, records, run.now_us, hits, done)


def _may_meet(points: Points, shift: int, cells: Level) -> bool:
    """Whether the level has any cell between those of the first and the last point."""
    return bool(cells.keys[-1] >= points.codes[0] >> shift and cells.keys[0] <= points.codes[-1] >> shift)


def _rectangles(cells: CellIndex, records: Records, run: _Run, hits: Hits, done: SearchProgress) -> SearchProgress:
    return match_cells(run.points, cells, records, run.now_us, hits, done)


def _regions(
    shift: int, cells: Level, regions: Regions, records: Records, run: _Run, hits: Hits, done: SearchProgress
) -> SearchProgress:
    return match_regions(run.points, shift, cells, regions, records, run.now_us, hits, done)


def _words(
    text: TextIndex, conditions: Conditions, records: Records, run: _Run, hits: Hits, done: SearchProgress
) -> SearchProgress:
    assert run.tokens is not None
    return match_text(run.points, run.tokens, text, conditions, records, run.now_us, run.probe, hits, done)
