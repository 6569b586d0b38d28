"""Tests pairs (event, subscription) from a list or an index: live, words, region, in bulk.

`sps.py` tests all pairs there are, `replicated_index.py` those that the router found. Pairs are two arrays: the row of
the event, and the ordinal in the segment.
"""

from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import xy
from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, SubIds, kernel
from geoswarm.core.index.kernels import are_live
from geoswarm.core.index.regions import Regions
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.index.word_kernels import Conditions
from geoswarm.core.shapes.points import Predicate, points_in
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import Tokens
from geoswarm.flow.match.areas import Areas, are_met, areas_of
from geoswarm.flow.match.match import MatchRun
from geoswarm.model import PREDICATES

_PREDICATES = cast(tuple[Predicate, ...], PREDICATES)  # by their codes


class EventPlaces(NamedTuple):
    """The places of events."""

    x: Floats
    y: Floats
    boxes: Floats
    """(n, 4): the rectangle round each; for a point, the point itself."""
    areas: Areas | None
    """None: all are points."""
    number: Ints
    """The number of each event among the areas; -1: it is a point."""


def locate_events(events: pa.RecordBatch, grid: Grid) -> EventPlaces:
    x, y = xy(events)
    boxes, number = np.stack([x, y, x, y], axis=1), np.full(len(events), -1, np.int64)
    areas = areas_of(events, grid)
    if areas is not None:
        boxes[areas.rows], number[areas.rows] = areas.boxes, np.arange(len(areas))
    return EventPlaces(x, y, boxes, areas, number)


def regions_hold(places: EventPlaces, rows: Ints, segment: Searchable, ordinals: Ints, now_us: int) -> Bools:
    """Which pairs, whose rectangles meet, have a live subscription whose predicate holds."""
    holds = are_live(ordinals, segment.records, now_us)
    if places.areas is not None:
        asked = np.flatnonzero(holds & (places.number[rows] >= 0))
        owners, wordless = places.number[rows[asked]], segment._replace(text=None, conditions=None)
        holds[asked] = are_met(places.areas, owners, ordinals[asked], wordless, None, None)
    if segment.regions is not None:
        asked = np.flatnonzero(holds & (places.number[rows] < 0))
        holds[asked] = _in_regions(places, rows[asked], segment.regions, ordinals[asked])
    return holds


def _in_regions(places: EventPlaces, rows: Ints, regions: Regions, ordinals: Ints) -> Bools:
    """Whether points, which are in the rectangles, are in the regions, too."""
    inside = np.ones(len(rows), np.bool_)
    number, shaped = number_of(regions, ordinals)
    codes = regions.predicates[number] if len(regions.predicates) else np.zeros(len(number), np.uint8)
    for code, predicate in enumerate(_PREDICATES):
        asked = np.flatnonzero(shaped & (codes == code))
        if len(asked):
            inside[asked] = points_in(regions.shapes, places.x, places.y, rows[asked], number[asked], predicate)
    return inside


def number_of(regions: Regions, ordinals: Ints) -> tuple[Ints, Bools]:
    """The number of each ordinal among the regions, and whether it has one."""
    number = np.searchsorted(regions.ordinals, ordinals)
    number[number == len(regions.ordinals)] = 0
    return number, regions.ordinals[number] == ordinals


def are_reported_here(places: EventPlaces, rows: Ints, rects: Floats, plan: Plan, slot: int) -> Bools:
    """Whether this partition reports each pair. An area meets a subscription in every partition that both are in; the
    one with the top left cell of the intersection of their rectangles reports the pair. A point is in one only."""
    here = np.ones(len(rows), np.bool_)
    asked = np.flatnonzero(places.number[rows] >= 0)
    boxes, rects = places.boxes[rows[asked]], rects[asked]
    left, top = np.maximum(boxes[:, 0], rects[:, 0]), np.minimum(boxes[:, 3], rects[:, 3])
    here[asked] = plan.route(plan.grid.locate(left, top)) == slot
    return here


@kernel
def words_hold(rows: Ints, ordinals: Ints, tokens: Tokens, conditions: Conditions, terms: Hashes) -> Bools:
    """Which pairs have an event with the words of the subscription, if that has any. `terms` has the hash of each word
    of the conditions."""
    says = np.empty(len(rows), np.bool_)
    for i in range(len(rows)):
        begin, end = conditions.conjunctions_offsets[ordinals[i]], conditions.conjunctions_offsets[ordinals[i] + 1]
        says[i] = begin == end
        for c in range(begin, end):
            said = True
            for t in range(conditions.terms_offsets[c], conditions.terms_offsets[c + 1]):
                term = conditions.terms[t]
                word = ~term if term < 0 else term
                if _is_said(rows[i], terms[word], word, tokens, conditions) == (term < 0):
                    said = False
                    break
            if said:
                says[i] = True
                break
    return says


@kernel
def _is_said(event: int, hash_: int, term: int, tokens: Tokens, conditions: Conditions) -> bool:
    low, high = tokens.offsets[event], tokens.offsets[event + 1]
    last = high
    while low < high:
        middle = (low + high) // 2
        if tokens.hashes[middle] < hash_:
            low = middle + 1
        else:
            high = middle
    words = conditions.words
    while low < last and tokens.hashes[low] == hash_:  # other words may have the same hash
        if _are_equal(
            tokens.folded, tokens.starts[low], tokens.ends[low], words.data, words.begins[term], words.ends[term]
        ):
            return True
        low += 1
    return False


@kernel
def _are_equal(one: Bytes, begin: int, end: int, other: Bytes, other_begin: int, other_end: int) -> bool:
    if end - begin != other_end - other_begin:
        return False
    for i in range(end - begin):  # noqa: SIM110 - numba has no all()
        if one[begin + i] != other[other_begin + i]:
            return False
    return True


def gather_matches(events: pa.RecordBatch, found: list[tuple[Ints, SubIds]]) -> MatchRun:
    """The matches of each event, from pairs (row, id) of one segment after another."""
    rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in found)])
    subs = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in found)])
    if len(found) > 1:
        order = np.argsort(rows, kind="stable")
        rows, subs = rows[order], subs[order]
    counts = np.bincount(rows, minlength=len(events))
    return MatchRun(events, np.concatenate([[0], np.cumsum(counts)]), subs)
