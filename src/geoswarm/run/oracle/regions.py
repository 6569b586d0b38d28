"""The obvious test of predicates between regions and publications: plain shapely, and spherical distances for circles.

A region or a publication is a polygon or a circle; a publication may be a point. Edges are straight in degrees, so the
distance of a circle and a polygon is found by dividing the border into ever smaller pieces. `oracle.py` uses it.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely

from geoswarm.core.arrays.jit import Floats

EARTH_M = 6_371_008.8
SHORT_M = 1e-3
"""A piece of a border that is not divided further."""


@dataclass
class Region:
    """A polygon, a circle of `metres` round a point, or a point."""

    shape: Any
    metres: float | None = None

    @cached_property
    def edges(self) -> tuple[Floats, Floats]:
        """Where each edge of a polygon, or of a line, begins and ends."""
        if isinstance(self.shape, shapely.LineString):
            return shapely.get_coordinates(self.shape)[:-1], shapely.get_coordinates(self.shape)[1:]
        rings = [shapely.get_coordinates(ring) for ring in shapely.get_rings(shapely.get_parts(self.shape))]
        return np.concatenate([r[:-1] for r in rings]), np.concatenate([r[1:] for r in rings])

    def sides(self, world: tuple[float, float, float, float]) -> list[object]:
        """A rectangle round the region; the whole world for a circle, which is enough here."""
        return list(world) if self.metres is not None else [float(side) for side in self.shape.bounds]

    def satisfies(self, predicate: str, publication: "Region") -> bool:
        """Whether the predicate holds, with the region as subject: the region covers the publication."""
        if predicate == "within":
            return publication.satisfies("covers", self) and publication.shape.area + (publication.metres or 0) > 0
        if self.metres is None and publication.metres is None:
            return bool(getattr(shapely, predicate)(self.shape, publication.shape))
        if self.metres is None:
            return _polygon_and_circle(self, predicate, publication)
        if isinstance(publication.shape, shapely.Point):
            away, more = distance_m(self.shape, publication.shape), publication.metres or 0.0
            if predicate == "intersects":
                return away <= self.metres + more
            return away + more < self.metres or (predicate == "covers" and away + more == self.metres)
        return _circle_and_polygon(self, predicate, publication)


def passes(begin: Any, end: Any, region: Region) -> bool:
    """Whether the straight way from one place to another touches a region and does not begin in it; where that is
    nearer, over the antimeridian."""
    if region.satisfies("intersects", Region(begin)):
        return False
    turn = 0.0 if abs(end.x - begin.x) <= 180 else math.copysign(360.0, end.x - begin.x)
    for x0, x1 in {(begin.x, end.x - turn), (begin.x + turn, end.x)}:
        line = Region(shapely.LineString([(x0, begin.y), (x1, end.y)]))
        if region.metres is None and shapely.intersects(region.shape, line.shape):
            return True
        if region.metres is not None and _border_is_within(region.shape, region.metres, line):
            return True
    return False


def read_region(geometry: object) -> Region | None:
    """The region of a geometry; None if there is none, or it cannot be read. Tests give valid polygons only."""
    if isinstance(geometry, str):
        geometry = geometry.encode()
    if not isinstance(geometry, bytes):
        return None
    if geometry.startswith(b"CIRCLE("):
        place, metres = geometry[7:-1].decode().split(",")
        return Region(shapely.Point(*map(float, place.split())), float(metres))
    read = shapely.from_wkb if geometry[0] <= 1 else shapely.from_wkt
    shape = read(geometry, on_invalid="ignore")
    return Region(shape) if shape is not None and shape.is_valid and (shape.area > 0 or _is_point(shape)) else None


def _is_point(shape: Any) -> bool:
    return isinstance(shape, shapely.Point) and not shape.is_empty


def distance_m(a: Any, b: Any) -> float:
    dx, dy = math.radians(b.x - a.x), math.radians(b.y - a.y)
    h = math.sin(dy / 2) ** 2 + math.cos(math.radians(a.y)) * math.cos(math.radians(b.y)) * math.sin(dx / 2) ** 2
    return 2 * EARTH_M * math.asin(min(1.0, math.sqrt(h)))


def _polygon_and_circle(polygon: Region, predicate: str, circle: Region) -> bool:
    assert circle.metres is not None
    centre_inside = bool(shapely.intersects(polygon.shape, circle.shape))
    comes_near = _border_is_within(circle.shape, circle.metres, polygon)
    return centre_inside or comes_near if predicate == "intersects" else centre_inside and not comes_near


def _circle_and_polygon(circle: Region, predicate: str, polygon: Region) -> bool:
    if predicate == "intersects":
        return _polygon_and_circle(polygon, predicate, circle)
    assert circle.metres is not None
    across = shapely.Point(circle.shape.x - math.copysign(180, circle.shape.x), -circle.shape.y)
    rest_m = math.pi * EARTH_M - circle.metres
    return not shapely.intersects(polygon.shape, across) and not _border_is_within(across, rest_m, polygon)


def _border_is_within(centre: Any, metres: float, polygon: Region) -> bool:
    """Halves the edges that may come nearer between their ends, until none is left."""
    if isinstance(polygon.shape, shapely.Point):
        return distance_m(centre, polygon.shape) <= metres
    begins, ends = polygon.edges
    while len(begins):
        near_m = np.minimum(_distance_m(centre, begins), _distance_m(centre, ends))
        if near_m.min() <= metres:
            return True
        low = np.where(begins[:, 1] * ends[:, 1] < 0, 0.0, np.minimum(abs(begins[:, 1]), abs(ends[:, 1])))
        along, up = (ends - begins).T
        length_m = EARTH_M * np.radians(np.hypot(along * np.cos(np.radians(low)), up))
        open_ = (near_m - length_m / 2 <= metres) & (length_m > SHORT_M)
        begins, ends = begins[open_], ends[open_]
        middles = (begins + ends) / 2
        begins, ends = np.concatenate([begins, middles]), np.concatenate([middles, ends])
    return False


def _distance_m(centre: Any, places: Any) -> Any:
    dx, dy = np.radians(places[:, 0] - centre.x), np.radians(places[:, 1] - centre.y)
    h = np.sin(dy / 2) ** 2 + np.cos(np.radians(centre.y)) * np.cos(np.radians(places[:, 1])) * np.sin(dx / 2) ** 2
    return 2 * EARTH_M * np.arcsin(np.sqrt(np.minimum(1.0, h)))
