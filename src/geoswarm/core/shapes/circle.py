"""Circles on the sphere: a centre in degrees and a radius in metres along great circles.

Distances are haversine on a sphere of EARTH_M; an ellipsoid differs by up to 0.5 %. Here are the
text form, the rectangles round a circle, and how near and far a rectangle of degrees comes to a centre; points are
tested in `points.py`.

    CIRCLE(13.4 52.5, 800)      lon lat, metres

A circle over a pole has all longitudes; one over the antimeridian has two rectangles, one at each side of the world.
"""

import numpy as np

from geoswarm.core.arrays.jit import Floats, kernel
from geoswarm.core.shapes.shapes import Shapes
from geoswarm.core.space.grid import Grid

EARTH_M = 6_371_008.8
"""The mean radius of the earth."""
METRES_MAX = float(np.pi * EARTH_M)
"""Half way round the earth: no point is farther."""
SLACK_M = 1.0
"""The safety margin for cells and rectangles: far above the rounding of floats (0.1 m near the antipode), far below the
size of a cell."""
_NUMBER = r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?"
PATTERN = rf"^\s*(?i:circle)\s*\(\s*(?P<lon>{_NUMBER})\s+(?P<lat>{_NUMBER})\s*,\s*(?P<metres>{_NUMBER})\s*\)\s*$"


def is_degrees(grid: Grid) -> bool:
    """Whether the world's coordinates can be degrees."""
    return grid.ymin >= -90 and grid.ymax <= 90 and max(-grid.xmin, grid.xmax) <= 360 >= grid.xmax - grid.xmin


def boxes(circles: Floats, grid: Grid) -> Floats:
    """(n, 2, 4): the one or two rectangles round each circle (lon, lat, metres), within the world; NaN for none."""
    lon, lat, metres = circles.T
    reach = np.degrees(np.minimum(metres + SLACK_M, METRES_MAX) / EARTH_M)
    south, north = lat - reach, lat + reach
    with np.errstate(invalid="ignore", divide="ignore"):
        half = np.degrees(np.arcsin(np.sin(np.radians(reach)) / np.cos(np.radians(lat))))
    polar = (south <= -90) | (north >= 90)
    found = np.full((len(circles), 2, 4), np.nan)
    taken = np.zeros(len(circles), np.int64)
    for turn in (-720.0, -360.0, 0.0, 360.0, 720.0):  # the world may begin at 0, or at -180
        west, east = np.maximum(lon - half + turn, grid.xmin), np.minimum(lon + half + turn, grid.xmax)
        west, east = np.where(polar, grid.xmin, west), np.where(polar, grid.xmax if turn == 0 else grid.xmin, east)
        rows = np.flatnonzero((west < east) & (taken < 2) & (north >= grid.ymin) & (south <= grid.ymax))
        sides = (west, np.maximum(south, grid.ymin), east, np.minimum(north, grid.ymax))
        found[rows, taken[rows]] = np.column_stack([side[rows] for side in sides])
        taken[rows] += 1
    return found


def bounding_rectangles(shapes: Shapes, grid: Grid) -> Floats:
    """(n, 4): one rectangle round each shape, polygon or circle; NaN where there is no shape. A shape on both sides of
    the antimeridian has the width of the world."""
    found, rows = shapes.bounds(), np.flatnonzero(shapes.are_circles())
    if len(rows):
        centres = shapes.xy[shapes.first_vertices()[rows]]
        both = boxes(np.column_stack([centres, shapes.metres[rows]]), grid)
        found[rows, :2], found[rows, 2:] = np.nanmin(both[..., :2], axis=1), np.nanmax(both[..., 2:], axis=1)
    return found


@kernel
def distance_m(lon0: float, lat0: float, lon1: float, lat1: float) -> float:
    """The haversine distance of two points in degrees: the definition of distance here."""
    phi0, phi1 = np.radians(lat0), np.radians(lat1)
    up, along = np.sin((phi1 - phi0) / 2), np.sin(np.radians(lon1 - lon0) / 2)
    h = up * up + np.cos(phi0) * np.cos(phi1) * along * along
    return 2 * EARTH_M * np.arcsin(np.sqrt(min(1.0, h)))  # type: ignore[no-any-return]


@kernel
def nearest_m(lon: float, lat: float, x0: float, y0: float, x1: float, y1: float) -> float:
    """The distance from a point to a rectangle of degrees; SLACK_M covers its rounding."""
    for turn in range(-2, 3):
        if x0 <= lon + 360.0 * turn <= x1:
            return distance_m(lon, lat, lon, min(max(lat, y0), y1))
    return min(_nearest_on_meridian_m(lon, lat, x0, y0, y1), _nearest_on_meridian_m(lon, lat, x1, y0, y1))


@kernel
def distances_m(lon: float, lat: float, x: Floats, y: Floats) -> Floats:
    """The distance from a point to each of others."""
    metres = np.empty(len(x))
    for i in range(len(x)):
        metres[i] = distance_m(lon, lat, x[i], y[i])
    return metres


@kernel
def distances_to_boxes_m(lon: float, lat: float, boxes: Floats) -> Floats:
    """The distance from a point to each of (n, 4) rectangles of degrees, at most SLACK_M too long."""
    metres = np.empty(len(boxes))
    for i in range(len(boxes)):
        metres[i] = nearest_m(lon, lat, boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3])
    return metres


@kernel
def farthest_m(lon: float, lat: float, x0: float, y0: float, x1: float, y1: float) -> float:
    """The distance to the farthest point of a rectangle: the nearest one to the antipode."""
    return METRES_MAX - nearest_m(lon + 180.0, -lat, x0, y0, x1, y1)


@kernel
def _nearest_on_meridian_m(lon: float, lat: float, x: float, y0: float, y1: float) -> float:
    """The distance falls towards one latitude and rises after it, so the nearest point is there or at an end."""
    least = min(distance_m(lon, lat, x, y0), distance_m(lon, lat, x, y1))
    phi = np.radians(lat)
    foot = np.degrees(np.arctan2(np.sin(phi), np.cos(phi) * np.cos(np.radians(x - lon))))
    if y0 <= foot <= y1:
        least = min(least, distance_m(lon, lat, x, foot))
    return least
