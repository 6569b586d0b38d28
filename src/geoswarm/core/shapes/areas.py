"""Which candidate areas meet their shapes, where events are themselves polygons or circles.

Points are in `points.py`, where the predicates are explained. Between areas, contains is the same as covers. GEOS
compares polygons with polygons, which are prepared once (`prepared.py`), and regions of the same shape are asked once
(`same.py`). Circles are on the sphere, against edges that are straight in degrees: exact to a millimetre, or a
hundred-millionth of the radius.

The cut of a polygon at the antimeridian is a border: a circle across it is not within the polygon.
"""

import numpy as np
import shapely

from geoswarm.core.arrays.jit import Bools, Floats, Ints, inner, kernel
from geoswarm.core.shapes.circle import EARTH_M, METRES_MAX, distance_m
from geoswarm.core.shapes.inside import OUTSIDE_SHAPE, FlatShapes, place_of
from geoswarm.core.shapes.points import Predicate, check_predicate, flat_of
from geoswarm.core.shapes.shapes import Shapes

_MEETS, _HOLDS, _LIES_IN = 0, 1, 2
"""A circle meets a polygon, holds all of it, or lies in it."""


def areas_in(shapes: Shapes, areas: Shapes, events: Ints, chosen: Ints, predicate: Predicate = "intersects") -> Bools:
    """Whether "shape, predicate, area" holds, for each pair (area events[i], shape chosen[i])."""
    check_predicate(predicate)
    events, chosen = np.asarray(events, np.int64), np.asarray(chosen, np.int64)
    answers = np.zeros(len(events), np.bool_)
    round_shape, round_area = shapes.are_circles()[chosen], areas.are_circles()[events]
    exists = (np.diff(shapes.parts)[chosen] > 0) & (np.diff(areas.parts)[events] > 0)
    for rows, ask in (
        (~round_shape & ~round_area, _polygons),
        (round_shape & round_area, _circles),
        (round_shape & ~round_area, _circle_and_polygon),
        (~round_shape & round_area, _polygon_and_circle),
    ):
        asked = np.flatnonzero(rows & exists)
        if len(asked):
            answers[asked] = ask(shapes, areas, events[asked], chosen[asked], predicate)
    return answers


def _polygons(shapes: Shapes, areas: Shapes, events: Ints, chosen: Ints, predicate: Predicate) -> Bools:
    pairs, each_pair = np.unique(shapes.firsts_alike(chosen) * len(areas) + events, return_inverse=True)
    chosen, events = pairs // len(areas), pairs % len(areas)
    numbers, each = np.unique(chosen, return_inverse=True)
    area_numbers, each_area = np.unique(events, return_inverse=True)
    regions, published = shapes.prepared_polygons(numbers), areas.prepared_polygons(area_numbers)
    one, two = regions[each], published[each_area]
    # GEOS uses the prepared form of its first argument only, so the one with more vertices comes first.
    if predicate == "within":
        one, two, predicate = two, one, "contains"
    elif predicate == "intersects":
        swapped = areas.vertex_counts()[events] > shapes.vertex_counts()[chosen]
        one, two = np.where(swapped, two, one), np.where(swapped, one, two)
    answers: Bools = getattr(shapely, predicate)(one, two)[each_pair]
    return answers


def _circles(shapes: Shapes, areas: Shapes, events: Ints, chosen: Ints, predicate: Predicate) -> Bools:
    away = _distances(flat_of(shapes), flat_of(areas), chosen, events)
    here, there = shapes.metres[chosen], areas.metres[events]
    if predicate == "intersects":
        near: Bools = away <= here + there
    elif predicate == "within":
        near = away + here <= there
    else:
        near = away + there <= here
    return near


def _circle_and_polygon(shapes: Shapes, areas: Shapes, events: Ints, chosen: Ints, predicate: Predicate) -> Bools:
    question = {"intersects": _MEETS, "within": _LIES_IN}.get(predicate, _HOLDS)
    return _round(flat_of(shapes), flat_of(areas), chosen, events, question)


def _polygon_and_circle(shapes: Shapes, areas: Shapes, events: Ints, chosen: Ints, predicate: Predicate) -> Bools:
    question = {"intersects": _MEETS, "within": _HOLDS}.get(predicate, _LIES_IN)
    return _round(flat_of(areas), flat_of(shapes), events, chosen, question)


@kernel
def _distances(one: FlatShapes, two: FlatShapes, ones: Ints, twos: Ints) -> Floats:
    away = np.empty(len(ones))
    for i in range(len(ones)):
        a, b = one.vertices[one.first_rings[ones[i]]], two.vertices[two.first_rings[twos[i]]]
        away[i] = distance_m(one.xy[a, 0], one.xy[a, 1], two.xy[b, 0], two.xy[b, 1])
    return away


@kernel
def _round(circles: FlatShapes, polygons: FlatShapes, ones: Ints, twos: Ints, question: int) -> Bools:
    answers = np.empty(len(ones), np.bool_)
    for i in range(len(ones)):
        centre = circles.vertices[circles.first_rings[ones[i]]]
        lon, lat, metres = circles.xy[centre, 0], circles.xy[centre, 1], circles.metres[ones[i]]
        if question == _MEETS:
            meets = place_of(lon, lat, twos[i], polygons) != OUTSIDE_SHAPE
            answers[i] = meets or _border_within(lon, lat, metres, twos[i], polygons)
        elif question == _LIES_IN:
            within = place_of(lon, lat, twos[i], polygons) != OUTSIDE_SHAPE
            answers[i] = within and not _border_within(lon, lat, np.nextafter(metres, 0.0), twos[i], polygons)
        else:  # no part of the polygon is near the antipode
            lon, lat, rest = lon - 180.0 if lon > 0 else lon + 180.0, -lat, np.nextafter(METRES_MAX - metres, 0.0)
            beyond = place_of(lon, lat, twos[i], polygons) != OUTSIDE_SHAPE and rest > 0
            answers[i] = not beyond and not _border_within(lon, lat, rest, twos[i], polygons)
    return answers


@inner
def _border_within(lon: float, lat: float, metres: float, shape: int, flat: FlatShapes) -> bool:
    for r in range(flat.first_rings[shape], flat.first_rings[shape + 1]):
        for v in range(flat.vertices[r] + 1, flat.vertices[r + 1]):
            if edge_within(lon, lat, metres, flat.xy[v - 1, 0], flat.xy[v - 1, 1], flat.xy[v, 0], flat.xy[v, 1]):
                return True
    return False


@kernel
def edge_within(lon: float, lat: float, metres: float, x0: float, y0: float, x1: float, y1: float) -> bool:
    """Halves the edge while a half might come near enough. Its length in metres is at most that of its degrees at its
    latitude nearest to the equator."""
    low = 0.0 if y0 * y1 < 0 else min(abs(y0), abs(y1))
    length = EARTH_M * np.radians(np.hypot((x1 - x0) * np.cos(np.radians(low)), y1 - y0))
    short = max(1e-3, 1e-4 * metres)
    stack = np.empty((64, 4))  # begin, end, distance at both; depth first
    stack[0, 0], stack[0, 1] = 0.0, 1.0
    stack[0, 2], stack[0, 3] = distance_m(lon, lat, x0, y0), distance_m(lon, lat, x1, y1)
    depth = 1
    while depth:
        depth -= 1
        begin, end, near, far = stack[depth]
        if near <= metres or far <= metres:
            return True
        span = length * (end - begin)
        if (near + far - span) / 2 > metres or span < short:
            continue
        middle = (begin + end) / 2
        between = distance_m(lon, lat, x0 + middle * (x1 - x0), y0 + middle * (y1 - y0))
        stack[depth, 1], stack[depth, 3] = middle, between
        stack[depth + 1, 0], stack[depth + 1, 1], stack[depth + 1, 2], stack[depth + 1, 3] = middle, end, between, far
        depth += 2
    return False
