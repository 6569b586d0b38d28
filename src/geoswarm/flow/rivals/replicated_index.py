"""RIhPS and RIsPS: the router finds candidates, and the partitions of the candidates test them. Distributor §4.2.

    router     event ── index that every worker has ──► candidates ── the partition of each ──► (event, candidates)
    partition  (event, candidates) ── the partition's own list ──► rectangle, region ──► matches

The index has the rectangle round every region, and beside each subscription its partition ("partition ID–subscription
ID"); for subscriptions with words it is the index of words, after which only the place is left to test. An event has
candidates in several partitions, so the merger joins its rows (`flow/merge.py`). `shares.py` has the partition of each
subscription.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import row_bytes, xy
from geoswarm.core.arrays.jit import Bools, Ints, SubIds, read_only
from geoswarm.core.arrays.radix import argsort
from geoswarm.core.index.cells import CellIndex, build
from geoswarm.core.index.regions import WITHIN
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan, Slots
from geoswarm.core.text.tokens import Tokens, tokenize
from geoswarm.flow.match.area_kernels import find_boxes
from geoswarm.flow.match.areas import Areas
from geoswarm.flow.match.facts import Facts
from geoswarm.flow.match.match import MatchRun, Searchable, match
from geoswarm.flow.rivals.pairs import gather_matches, locate_events, regions_hold, words_hold
from geoswarm.flow.rivals.shares import PartitionSubs, condition_hashes
from geoswarm.flow.rivals.travel import number_in_order, pieces
from geoswarm.flow.route import locate_slots, split_into_parcels
from geoswarm.flow.route_terms import COPIES, Dispatch
from geoswarm.flow.sound import drop_mark
from geoswarm.model import GEOMETRY, TEXT

CANDIDATES = pa.field("_candidates", pa.list_(pa.field("element", pa.int64())), nullable=False)
"""The column of candidates: the subscriptions of a partition that the event may match."""


class ReplicatedIndex(NamedTuple):
    """The index of all subscriptions. It finds positions in the two arrays."""

    for_points: list[Searchable]
    for_areas: list[Searchable]
    ids: SubIds
    slots: Slots


def index_boxes(segment: Searchable, grid: Grid) -> CellIndex | None:
    """The index, by the rectangle round each, of the regions that are not rectangles, that a point may meet, and that
    have no words."""
    regions = segment.regions
    if regions is None:
        return None
    chosen = np.ones(len(regions.ordinals), np.bool_)
    chosen[regions.worded] = False
    if len(regions.predicates):
        chosen &= regions.predicates != WITHIN
    ordinals = regions.ordinals[chosen]
    return build(grid, segment.records.rects[ordinals]).renumber(ordinals)


def build_replicated_index(parts: Sequence[tuple[Searchable, CellIndex | None, Slots]]) -> ReplicatedIndex:
    """`parts` has for each segment: itself, its regions as `index_boxes`, and its slots as `home_slots`."""
    for_points, for_areas, first = list[Searchable](), list[Searchable](), 0
    for segment, boxes, _ in parts:
        count = len(segment.records.ids)
        records = segment.records._replace(ids=read_only(np.arange(first, first + count)))
        text = segment.text and segment.text.with_ids(records.ids)
        for_points.append(Searchable(records, segment.rectangles, text, segment.conditions, demands=segment.demands))
        if boxes is not None:
            for_points.append(Searchable(records, boxes, demands=segment.demands and segment.demands.by_place))
        for_areas.append(segment._replace(records=records))
        first += count
    ids = np.concatenate([np.empty(0, np.int64), *(segment.records.ids for segment, _, _ in parts)])
    slots = np.concatenate([np.empty(0, np.int32), *(slots for _, _, slots in parts)])
    return ReplicatedIndex(for_points, for_areas, ids, slots)


def route_candidates(
    events: pa.RecordBatch,
    plan: Plan,
    index: ReplicatedIndex,
    now_us: int,
    first_event: int,
    *,
    rows_max: int,
    pairs_max: int,
    every: bool = False,
) -> Iterator[Dispatch]:
    """`events` are validated, and numbered from `first_event` on. With `every`, an event without candidates goes to the
    partition of its own place."""
    travelling = number_in_order(events, first_event, plan.grid)
    places, done = locate_events(travelling, plan.grid), 0
    points = np.flatnonzero(places.number < 0)
    demands = any(segment.demands is not None for segment in index.for_points)
    names = [name for name in events.schema.names if name in ("x", "y", TEXT.name) or demands]
    names = [name for name in names if name != GEOMETRY.name]
    looking = travelling.select(names).take(pa.array(points))
    for met in match(looking, index.for_points, plan.grid, now_us, rows_max=rows_max, pairs_max=pairs_max):
        some = travelling.take(pa.array(points[done : done + len(met.events)]))
        yield from _dispatch(met._replace(events=some), plan, index, every)
        done += len(some)
    if places.areas is not None:
        areas = travelling.take(pa.array(places.areas.rows))
        for met in _near_areas(areas, places.areas, index, plan.grid, now_us, pairs_max):
            yield from _dispatch(met, plan, index, every)


def _near_areas(
    events: pa.RecordBatch, areas: Areas, index: ReplicatedIndex, grid: Grid, now_us: int, pairs_max: int
) -> Iterator[MatchRun]:
    """Candidates of events that are areas: the rectangles meet, and the event has the words."""
    tokens = tokenize(events.column(TEXT.name)) if TEXT.name in events.schema.names else None
    facts, start = Facts(drop_mark(events)), 0
    while start < len(events):
        boxes, found = areas.boxes[start:], list[tuple[Ints, SubIds]]()
        pairs = np.zeros(len(boxes), np.int64)
        for segment in index.for_areas:
            for cells in segment.by_rectangles(grid):
                near, ends = find_boxes(boxes[: len(pairs)], cells, segment.records, now_us, pairs, pairs_max)
                pairs = pairs[: len(ends)] + ends
                rows = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
                says = _words_hold(start + rows, near, segment, tokens)
                if segment.demands is not None:
                    says &= facts.meet(segment.demands, start + rows, near)
                found.append((rows[says], segment.records.ids[near[says]]))
        count = len(pairs)
        kept = [(rows[rows < count], places[rows < count]) for rows, places in found]
        yield gather_matches(events.slice(start, count), kept)
        start += count


def _words_hold(rows: Ints, ordinals: Ints, segment: Searchable, tokens: Tokens | None) -> Bools:
    if segment.conditions is None:
        return np.ones(len(rows), np.bool_)
    if tokens is None:
        wordless: Bools = np.diff(segment.conditions.conjunctions_offsets) == 0
        return wordless[ordinals]
    return words_hold(rows, ordinals, tokens, segment.conditions, condition_hashes(segment))


def _dispatch(met: MatchRun, plan: Plan, index: ReplicatedIndex, every: bool) -> Iterator[Dispatch]:
    """Send each event, with its candidates, to every partition that has some of them."""
    rows, slots, ends, candidates = _by_partition(met, plan, index, every)
    copies = np.bincount(rows, minlength=len(met.events)).astype(np.int32)
    events = met.events.set_column(met.events.schema.get_field_index(COPIES.name), COPIES, pa.array(copies))
    dropped = int(np.count_nonzero(copies == 0))
    counts, starts = (len(rows) - len(events) + dropped, dropped), np.concatenate([[0], ends])
    for first, last in pieces(row_bytes(events)[rows] + 8 * np.diff(starts)):
        lists = pa.ListArray.from_arrays(
            pa.array((starts[first : last + 1] - starts[first]).astype(np.int32)),
            pa.array(candidates[starts[first] : starts[last]]),
            type=CANDIDATES.type,
        )
        some = events.take(pa.array(rows[first:last])).append_column(CANDIDATES, lists)
        parcels = split_into_parcels(some, np.arange(len(some)), slots[first:last].astype(np.uint32), plan)
        yield Dispatch(parcels, *counts)
        counts = (0, 0)


def _by_partition(met: MatchRun, plan: Plan, index: ReplicatedIndex, every: bool) -> tuple[Ints, Slots, Ints, SubIds]:
    """A row for each event and partition that has candidates of it, by partition: event, slot, and the end of its
    candidates in the array of all."""
    rows, slots = np.repeat(np.arange(len(met.events)), np.diff(met.offsets)), index.slots[met.subs]
    candidates = index.ids[met.subs]
    order = argsort(slots.astype(np.uint32), np.arange(len(slots)), len(plan.partitions))
    rows, slots, candidates = rows[order], slots[order], candidates[order]
    last = np.ones(len(rows), np.bool_)
    last[:-1] = (rows[1:] != rows[:-1]) | (slots[1:] != slots[:-1])
    ends = np.flatnonzero(last) + 1
    rows, slots = rows[last], slots[last]
    if every:
        alone = np.flatnonzero(np.diff(met.offsets) == 0)
        x, y = xy(met.events)
        own = locate_slots(x[alone], y[alone], plan.grid.frame, plan.slot_of_cell).astype(np.int32)
        rows, slots = np.concatenate([rows, alone]), np.concatenate([slots, own])
        ends = np.concatenate([ends, np.full(len(alone), len(candidates))])
    return rows, slots, ends, candidates


def verify(events: pa.RecordBatch, shares: Sequence[PartitionSubs], grid: Grid, now_us: int) -> MatchRun:
    """The matches of a parcel's events among their candidates. `shares` are those of their partition."""
    lists = events.column(CANDIDATES.name)
    offsets = lists.offsets.to_numpy()
    rows, wanted = np.repeat(np.arange(len(events)), np.diff(offsets)), lists.flatten().to_numpy()
    events = events.drop_columns([CANDIDATES.name])
    places, found = locate_events(events, grid), list[tuple[Ints, SubIds]]()
    for share in shares:
        if not len(share.ids):
            continue
        place = np.searchsorted(share.ids, wanted)
        place[place == len(share.ids)] = 0
        here = np.flatnonzero(share.ids[place] == wanted)
        rects, boxes = share.rects[place[here]], places.boxes[rows[here]]
        near = (rects[:, 0] <= boxes[:, 2]) & (boxes[:, 0] <= rects[:, 2])
        near &= (rects[:, 1] <= boxes[:, 3]) & (boxes[:, 1] <= rects[:, 3])
        here = here[near]
        ordinals = share.ordinals[place[here]]
        here = here[regions_hold(places, rows[here], share.segment, ordinals, now_us)]
        found.append((rows[here], wanted[here]))
    return gather_matches(drop_mark(events), found)
