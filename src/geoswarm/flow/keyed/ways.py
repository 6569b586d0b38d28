"""Finds the regions that an object's way passes through: the straight line, in degrees, from one fix to the next.

A way may lead through places of any partition, and neither of its ends need be in the region. So its regions are not
looked up where events are matched, but here, where the object is followed: the worker maps all segments, and the box
round a way finds candidates in the cells of their index as an area's does (`flow/match/area_kernels.py`). A long way is
cut into pieces first, whose boxes are smaller.

    ┌───────┐                 b  two of the three pieces' boxes meet the region; the way
    │   ┌───┼──┐            ╱    passes through it, though neither a nor b is inside
    │   │   ╲  │
    └───┘ a  ── ...

Over the antimeridian a way leads where that is the nearer way round. Words, objects and conditions are asked of the fix
at the end of a way, last: few ways are left by then.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import shapely

from geoswarm.core.arrays.jit import Bools, Floats, Ints, SubIds, kernel
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.shapes.areas import edge_within
from geoswarm.core.shapes.circle import distance_m, is_degrees
from geoswarm.core.shapes.points import points_in
from geoswarm.core.shapes.shapes import Geometries, Shapes
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.tokens import tokenize
from geoswarm.flow.match.area_kernels import find_boxes
from geoswarm.flow.match.areas import are_asked_for
from geoswarm.flow.match.facts import Facts
from geoswarm.model import TEXT

PIECES_MAX = 16
"""Pieces of a way."""
PIECE_M = 1000.0
"""A way of up to so many metres is one piece: its box meets few fences that the way does not."""
PAIRS_MAX = 4_000_000
"""Candidates that are held at once, 16 bytes each; a single way may have more."""

OnCross = Callable[[], Sequence[tuple[Searchable, Ints]]]
"""The segments with subscriptions on `cross`, and the ordinals of these, ascending. `View.on_cross` is one."""


class Ways(NamedTuple):
    """From one fix to another, each as (n, 2) of degrees."""

    begins: Floats
    ends: Floats

    def take(self, rows: Ints | Bools) -> "Ways":
        return Ways(self.begins[rows], self.ends[rows])


class Ends(NamedTuple):
    """The fixes at the ends of some ways: rows[i] of these events is that of way i."""

    events: pa.RecordBatch
    rows: Ints

    def meet(self, segment: Searchable, ways: Ints, ordinals: Ints) -> Bools:
        """Whether the fix of each pair, by way, has the words and the columns that the subscription asks for."""
        asked, of_asked = np.unique(ways, return_inverse=True)
        fixes = self.events.take(pa.array(self.rows[asked]))
        has_words = segment.text is not None and TEXT.name in fixes.schema.names
        tokens = tokenize(fixes.column(TEXT.name)) if has_words else None
        return are_asked_for(of_asked, ordinals, segment, tokens, Facts(fixes))


class Crossed(NamedTuple):
    """Pairs of a way and a subscription, by way."""

    ways: Ints
    subs: SubIds


@dataclass(frozen=True)
class Crossings:
    """Made in the driver and sent to workers, so it must be picklable."""

    on_cross: OnCross
    grid: Grid
    now_us: int
    way_m_max: float
    """A longer way is a gap."""

    def metres(self, ways: Ways) -> Floats:
        """The length of each way; where the world is not in degrees, in the unit of its coordinates."""
        if is_degrees(self.grid):
            return _lengths_m(ways.begins, ways.ends)
        metres: Floats = np.hypot(*(ways.ends - ways.begins).T)
        return metres

    def find(self, ways: Ways, ends: Ends) -> Crossed:
        """The live subscriptions on `cross` whose region each way touches and does not begin in, and that get the fix
        at its end. No way is a gap."""
        rows, drawn = self._draw(ways)
        found = [Crossed(np.empty(0, np.int64), np.empty(0, np.int64))]
        for segment, ordinals in self.on_cross():
            for line, ordinal in self._candidates(rows, drawn, segment, ordinals):
                way = rows[line]
                met = np.flatnonzero(_touches(segment, ordinal, ways.take(way), drawn.take(line)))
                if segment.demands is not None or segment.conditions is not None:
                    met = met[np.argsort(way[met], kind="stable")]
                    met = met[ends.meet(segment, way[met], ordinal[met])]
                found.append(Crossed(way[met], segment.records.ids[ordinal[met]]))
        way, sub = (np.concatenate(part) for part in zip(*found, strict=True))
        way, sub = np.unique(np.stack([way, sub]), axis=1)  # over the antimeridian a region may meet both lines
        return Crossed(way, sub)

    def _draw(self, ways: Ways) -> tuple[Ints, Ways]:
        """The lines of ways, and the way of each. One over the antimeridian has two, on both sides of the world."""
        rows = np.arange(len(ways.begins))
        turn = ways.ends[:, 0] - ways.begins[:, 0]
        over = np.flatnonzero(np.abs(turn) > 180.0) if is_degrees(self.grid) else rows[:0]
        if not len(over):
            return rows, ways
        begins, ends = ways.begins.copy(), ways.ends.copy()
        shift = np.sign(turn[over]) * 360.0
        ends[over, 0] -= shift
        others = ways.take(over)
        others.begins[:, 0] += shift
        drawn = Ways(np.concatenate([begins, others.begins]), np.concatenate([ends, others.ends]))
        return np.concatenate([rows, over]), drawn

    def _candidates(self, rows: Ints, drawn: Ways, segment: Searchable, ordinals: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Lines, and ordinals of subscriptions on `cross` whose rectangle may meet them; each pair once."""
        pieces = np.clip(np.ceil(self.metres(drawn) / PIECE_M), 1, PIECES_MAX).astype(np.int64)
        line = np.repeat(np.arange(len(rows)), pieces)
        step = np.arange(len(line)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        share = (step / pieces[line])[:, None], ((step + 1) / pieces[line])[:, None]
        corners = [drawn.begins[line] * (1 - part) + drawn.ends[line] * part for part in share]
        world = np.array([self.grid.xmin, self.grid.ymin]), np.array([self.grid.xmax, self.grid.ymax])
        rounding = 4 * np.spacing(np.abs(corners).max(initial=1.0))
        low = np.maximum(np.minimum(*corners) - rounding, world[0])
        high = np.minimum(np.maximum(*corners) + rounding, world[1])
        within = (low <= high).all(axis=1)
        line, boxes = line[within], np.ascontiguousarray(np.concatenate([low, high], axis=1)[within])
        for cells in segment.by_rectangles(self.grid):
            first = 0
            while first < len(boxes):
                none = np.zeros(len(boxes) - first, np.int64)
                found, ends = find_boxes(boxes[first:], cells, segment.records, self.now_us, none, PAIRS_MAX)
                owner = first + np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
                asked = np.searchsorted(ordinals, found)
                asked[asked == len(ordinals)] = 0
                is_asked = ordinals[asked] == found
                pairs = np.unique(np.stack([line[owner[is_asked]], found[is_asked]]), axis=1)
                yield pairs[0], pairs[1]
                first += len(ends)


def _touches(segment: Searchable, ordinals: Ints, fixes: Ways, drawn: Ways) -> Bools:
    """For each pair: whether the line touches the region, and its way does not begin inside."""
    numbers, regions = np.full(len(ordinals), -1, np.int64), segment.regions
    if regions is not None and len(ordinals):
        place = np.minimum(np.searchsorted(regions.ordinals, ordinals), len(regions.ordinals) - 1)
        numbers = np.where(regions.ordinals[place] == ordinals, place, -1)
    rects = segment.records.rects[ordinals]
    begins, ends = (_in_rects(rects, fix) for fix in fixes)
    shaped = np.flatnonzero(numbers >= 0)
    if regions is not None and len(shaped):
        begins[shaped], ends[shaped] = (_in_shapes(regions.shapes, numbers[shaped], fix[shaped]) for fix in fixes)
    touches = ~begins & ends
    is_open = ~begins & ~ends
    plain, shaped = np.flatnonzero(is_open & (numbers < 0)), np.flatnonzero(is_open & (numbers >= 0))
    touches[plain] = shapely.intersects(shapely.box(*rects[plain].T), _lines(drawn.take(plain)))
    if regions is not None and len(shaped):
        touches[shaped] = _meet_shapes(regions.shapes, numbers[shaped], drawn.take(shaped))
    return touches


def _meet_shapes(shapes: Shapes, numbers: Ints, drawn: Ways) -> Bools:
    """Whether each line meets its shape."""
    meets, round_ = np.zeros(len(numbers), np.bool_), shapes.are_circles()[numbers]
    kinds, each = np.unique(numbers[~round_], return_inverse=True)
    met = shapely.intersects(shapes.prepared_polygons(kinds)[each], _lines(drawn.take(~round_)))
    meets[~round_] = np.asarray(met, np.bool_)
    centres = shapes.xy[shapes.first_vertices()[numbers[round_]]]
    if len(centres):
        meets[round_] = _near_circles(centres, shapes.metres[numbers[round_]], *drawn.take(round_))
    return meets


def _lines(ways: Ways) -> Geometries:
    lines: Geometries = shapely.linestrings(np.stack([ways.begins, ways.ends], axis=1))
    return lines


def _in_shapes(shapes: Shapes, numbers: Ints, fixes: Floats) -> Bools:
    x, y = (np.ascontiguousarray(axis) for axis in fixes.T)
    return points_in(shapes, x, y, np.arange(len(numbers)), numbers)


def _in_rects(rects: Floats, fixes: Floats) -> Bools:
    inside: Bools = np.all((rects[:, :2] <= fixes) & (fixes <= rects[:, 2:]), axis=1)
    return inside


@kernel
def _lengths_m(begins: Floats, ends: Floats) -> Floats:
    metres = np.empty(len(begins))
    for i in range(len(begins)):
        metres[i] = distance_m(begins[i, 0], begins[i, 1], ends[i, 0], ends[i, 1])
    return metres


@kernel
def _near_circles(centres: Floats, metres: Floats, begins: Floats, ends: Floats) -> Bools:
    near = np.empty(len(centres), np.bool_)
    for i in range(len(centres)):
        near[i] = edge_within(
            centres[i, 0], centres[i, 1], metres[i], begins[i, 0], begins[i, 1], ends[i, 0], ends[i, 1]
        )
    return near
