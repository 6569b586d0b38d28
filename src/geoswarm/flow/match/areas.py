"""Finds the subscriptions that each event meets, where events are areas. `match.py` finds those of points.

A first search finds the subscriptions whose rectangles meet the area's (`area_kernels.py`); then their words are
checked, if they have any; the rest is tested exactly, by the predicate of the subscription (`core/shapes/areas.py`),
unless one corner of the area decides already. Distributor §4.2.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import shapely

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.index.kernels import Hits
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.shapes.areas import areas_in
from geoswarm.core.shapes.circle import bounding_rectangles
from geoswarm.core.shapes.parse import parse_shapes
from geoswarm.core.shapes.points import Predicate, points_in
from geoswarm.core.shapes.shapes import Shapes, merge_by_mask, of_polygons
from geoswarm.core.shapes.wkb import decode_points, decode_wkb
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.tokens import Tokens
from geoswarm.flow.match.area_kernels import are_satisfied, find_boxes
from geoswarm.flow.match.facts import Facts
from geoswarm.flow.sound import SOUND
from geoswarm.model import GEOMETRY, PREDICATES

FIRST_AREAS = 1024
"""Areas in the first run, which measures how many pairs areas find here."""
AREA_RUN_MARGIN = 4
"""A run is expected to find a quarter of what it may."""
GEOS_BOXES_MAX = 100_000
"""Rectangles given to GEOS at once, about 300 bytes each."""
GEOS_VERTICES_MAX = 4_000_000
"""Vertices of the regions given to GEOS at once, about 40 bytes each."""
_BY_CODE: tuple[Predicate, ...] = ("intersects", "contains", "within", "covers")
assert _BY_CODE == PREDICATES


@dataclass(frozen=True)
class Areas:
    rows: Ints
    """The row of each area among the events; ascending."""
    shapes: Shapes
    boxes: Floats
    """(n, 4): the rectangle round each."""

    def __len__(self) -> int:
        return len(self.rows)


def areas_of(events: pa.RecordBatch, grid: Grid) -> Areas | None:
    """The areas among validated events; None: all are points. An event whose geometry is a point is not an area."""
    if GEOMETRY.name not in events.schema.names or events.column(GEOMETRY.name).null_count == len(events):
        return None
    column = events.column(GEOMETRY.name)
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    rows = np.setdiff1d(rows, decode_points(column)[0], assume_unique=True)
    if not len(rows):
        return None
    sound = np.zeros(len(rows), np.bool_)
    if SOUND.name in events.schema.names:
        sound = events.column(SOUND.name).to_numpy(zero_copy_only=False)[rows]
    shapes = _read(column.take(pa.array(rows)), sound, grid)
    found = np.diff(shapes.parts) > 0
    if not found.any():
        return None
    if not found.all():
        rows, shapes = rows[found], shapes.take(np.flatnonzero(found))
    return Areas(rows, shapes, bounding_rectangles(shapes, grid))


def _read(column: pa.Array, sound: Bools, grid: Grid) -> Shapes:
    if sound.all():
        return decode_wkb(column)
    checked = parse_shapes(column.filter(pa.array(~sound)), grid).shapes
    return merge_by_mask(sound, decode_wkb(column.filter(pa.array(sound))), checked)


def match_areas(
    areas: Areas,
    tokens: Tokens | None,
    facts: Facts,
    segments: Sequence[Searchable],
    grid: Grid,
    now_us: int,
    pairs_max: int,
) -> Iterator[Hits]:
    """The subscriptions that the areas meet, in order, in runs of about `pairs_max` pairs at most; a single area may
    have more. `tokens` are those of the areas' texts; None: they have no text."""
    start, length = 0, FIRST_AREAS
    while start < len(areas):
        run = _candidates(areas, start, min(len(areas), start + length), segments, grid, now_us, pairs_max)
        found = sum(len(part.ordinals) for part in run.parts)
        owners, subs = list[Ints](), list[Ints]()
        for segment, part in zip(segments, run.parts, strict=True):
            kept = are_met(areas, part.owners, part.ordinals, segment, tokens, facts)
            owners.append(part.owners[kept])
            subs.append(segment.records.ids[part.ordinals[kept]])
        none = np.empty(0, np.int64)
        owner, sub = np.concatenate([none, *owners]), np.concatenate([none, *subs])
        if len(owners) > 1:
            order = np.argsort(owner, kind="stable")
            owner, sub = owner[order], sub[order]
        yield Hits(np.searchsorted(owner, np.arange(start, run.end), "right"), sub)
        density = max(1.0, found / (run.end - start))
        length = max(1, min(2 * length, int(pairs_max / AREA_RUN_MARGIN / density)))
        start = run.end


class _Part(NamedTuple):
    """The pairs of an area and a subscription that were found in one segment, by area."""

    owners: Ints
    ordinals: Ints


class _Candidates(NamedTuple):
    end: int
    parts: list[_Part]


def _candidates(
    areas: Areas, start: int, end: int, segments: Sequence[Searchable], grid: Grid, now_us: int, pairs_max: int
) -> _Candidates:
    """The candidates of as many areas as have `pairs_max` together, and of one at least."""
    pairs, parts = np.zeros(end - start, np.int64), list[_Part]()
    for segment in segments:
        owners, ordinals = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for cells in segment.by_rectangles(grid):
            boxes = areas.boxes[start : start + len(pairs)]
            found, ends = find_boxes(boxes, cells, segment.records, now_us, pairs, pairs_max)
            pairs = pairs[: len(ends)] + ends
            owners.append(start + np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0)))
            ordinals.append(found)
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        parts.append(_Part(owner[order], np.concatenate(ordinals)[order]))
    end = start + len(pairs)  # later segments may have had room for fewer areas
    kept = [np.searchsorted(part.owners, end) for part in parts]
    return _Candidates(end, [_Part(p.owners[:n], p.ordinals[:n]) for p, n in zip(parts, kept, strict=True)])


def are_asked_for(
    owners: Ints, ordinals: Ints, segment: Searchable, tokens: Tokens | None, facts: Facts | None
) -> Bools:
    """Whether the event of each pair with a subscription, by event, has the words and the columns that it asks for.
    Without `facts` nothing is asked of columns."""
    kept = np.ones(len(owners), np.bool_)
    if segment.demands is not None and facts is not None:
        kept = facts.meet(segment.demands, owners, ordinals)
    if segment.conditions is not None:
        offsets = segment.conditions.conjunctions_offsets
        worded = np.flatnonzero(kept & (offsets[ordinals + 1] > offsets[ordinals]))
        kept[worded] = False
        if len(worded) and tokens is not None and segment.text is not None:
            kept[worded] = are_satisfied(tokens, segment.text, segment.conditions, owners[worded], ordinals[worded])
    return kept


def are_met(
    areas: Areas, owners: Ints, ordinals: Ints, segment: Searchable, tokens: Tokens | None, facts: Facts | None
) -> Bools:
    """Whether each pair of an area and a subscription, whose rectangles meet, is a match; pairs are by area. Without
    `facts` nothing is asked of columns."""
    kept = are_asked_for(owners, ordinals, segment, tokens, facts)
    numbers = np.full(len(ordinals), -1, np.int64)
    regions = segment.regions
    if regions is not None:
        place = np.searchsorted(regions.ordinals, ordinals)
        place[place == len(regions.ordinals)] = 0
        numbers = np.where(regions.ordinals[place] == ordinals, place, -1)
        codes = regions.predicates[place] if len(regions.predicates) else np.zeros(len(place), np.uint8)
        for code, predicate in enumerate(_BY_CODE):
            asked = np.flatnonzero(kept & (numbers >= 0) & (codes == code))
            if len(asked):  # an empty call would still read all regions
                kept[asked] = shapes_meet(regions.shapes, areas, owners[asked], numbers[asked], predicate)
    asked = np.flatnonzero(kept & (numbers < 0))
    kept[asked] = rectangles_meet(segment.records.rects[ordinals[asked]], areas, owners[asked])
    return kept


def rectangles_meet(rects: Floats, areas: Areas, owners: Ints) -> Bools:
    """Whether the area itself meets, for each pair (rectangle i, area owners[i]) whose rectangles meet."""
    x, y = _corners(areas.shapes)
    boxes, x, y = areas.boxes[owners], x[owners], y[owners]
    met = (rects[:, 0] <= x) & (x <= rects[:, 2]) & (rects[:, 1] <= y) & (y <= rects[:, 3])
    met |= (rects[:, :2] <= boxes[:, :2]).all(axis=1) & (boxes[:, 2:] <= rects[:, 2:]).all(axis=1)
    doubtful = np.flatnonzero(~met)
    for begin in range(0, len(doubtful), GEOS_BOXES_MAX):
        asked = doubtful[begin : begin + GEOS_BOXES_MAX]
        boxes_asked = of_polygons(shapely.box(*rects[asked].T))
        met[asked] = areas_in(boxes_asked, areas.shapes, owners[asked], np.arange(len(asked)))
    return met


def shapes_meet(shapes: Shapes, areas: Areas, owners: Ints, numbers: Ints, predicate: Predicate) -> Bools:
    """Whether "shape, predicate, area" holds, for each pair (area owners[i], shape numbers[i])."""
    answers = np.zeros(len(owners), np.bool_)
    if predicate == "within":  # all of the shape lies in the area, including its corner
        doubtful = np.flatnonzero(points_in(areas.shapes, *_corners(shapes), numbers, owners))
    else:
        touched = points_in(shapes, *_corners(areas.shapes), owners, numbers)
        if predicate == "intersects":
            answers |= touched
            touched = ~touched
        doubtful = np.flatnonzero(touched)
    doubtful = doubtful[np.argsort(numbers[doubtful], kind="stable")]  # a shape is given to GEOS once
    weights = np.cumsum(shapes.vertex_counts()[numbers[doubtful]])
    cuts = np.searchsorted(weights, np.arange(GEOS_VERTICES_MAX, weights[-1:].sum(), GEOS_VERTICES_MAX))
    for asked in np.split(doubtful, cuts):
        answers[asked] = areas_in(shapes, areas.shapes, owners[asked], numbers[asked], predicate)
    return answers


def _corners(shapes: Shapes) -> tuple[Floats, Floats]:
    """One point of each shape: its first vertex, or the centre of a circle."""
    corners = shapes.xy[shapes.first_vertices()[:-1]]
    return np.ascontiguousarray(corners[:, 0]), np.ascontiguousarray(corners[:, 1])
