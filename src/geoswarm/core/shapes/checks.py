"""The checks of a shape after it is read: it is an area of bounded size, finite, within the world, and valid.

`parse.py` reads; `repair.py` decides what is valid and mends.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import shapely

from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel, read_only
from geoswarm.core.shapes import antimeridian
from geoswarm.core.shapes.circle import METRES_MAX, is_degrees
from geoswarm.core.shapes.points import flat_of
from geoswarm.core.shapes.repair import polygons_of, repair_polygons
from geoswarm.core.shapes.shapes import Geometries, Shapes, of_polygons, replace_rows
from geoswarm.core.space.grid import Grid

VERTICES_MAX = 1_000_000
"""Vertices of one shape: 16 MB, and about two seconds to examine."""
_AREAS = (shapely.GeometryType.POLYGON, shapely.GeometryType.MULTIPOLYGON)


STRANGE = "is of no kind that is read here: send polygons with straight sides (PostGIS: ST_CurveToLine)"


class Refusal(NamedTuple):
    row: int
    reason: str
    """malformed, empty, no-area, not-finite, out-of-bounds, coordinate-system, too-large or invalid."""
    detail: str
    """What is wrong and what to do, for a person."""


class Reading:
    """The rows of one column while they are read: the geometries so far, and the refusals."""

    def __init__(self, rows: int) -> None:
        self.refusals: dict[int, Refusal] = {}
        self.geometries: Geometries = np.full(rows, None, object)
        self.circles = np.full((rows, 3), np.nan)

    def refuse(self, row: int, reason: str, detail: str) -> None:
        self.refusals.setdefault(int(row), Refusal(int(row), reason, detail))
        self.geometries[row] = None
        self.circles[row] = np.nan

    def refuse_all(self, rows: Bools, reason: str, detail: Callable[[int], str]) -> None:
        for row in np.flatnonzero(rows).tolist():
            self.refuse(row, reason, detail(row))


def too_large(vertices: int) -> str:
    return f"geometry has {vertices} vertices, limit {VERTICES_MAX}: simplify it"


def check_areas(reading: Reading) -> Shapes:
    """Refuse all but polygons and multi-polygons that are not empty, and return these in two dimensions."""
    geometries = reading.geometries
    counts = shapely.get_num_coordinates(geometries)
    reading.refuse_all(counts > VERTICES_MAX, "too-large", lambda row: too_large(int(counts[row])))
    reading.refuse_all(shapely.is_empty(geometries), "empty", lambda row: "geometry is empty: send a polygon")
    types = shapely.get_type_id(geometries)
    for row in np.flatnonzero((types >= 0) & ~np.isin(types, _AREAS)).tolist():
        try:
            flattened = polygons_of(geometries[row]) if types[row] == shapely.GeometryType.GEOMETRYCOLLECTION else None
        except NotImplementedError:
            reading.refuse(row, "malformed", f"a part of the geometry {STRANGE}")
            continue
        if flattened is None:
            name = geometries[row].geom_type
            reading.refuse(row, "no-area", f"geometry is a {name}, which has no area: send a polygon or a circle")
        else:
            geometries[row] = flattened
    deep = shapely.has_z(geometries) | shapely.has_m(geometries)
    geometries[deep] = shapely.force_2d(geometries[deep])
    return _without_empty_rings(reading)


def _without_empty_rings(reading: Reading) -> Shapes:
    """Leaves out holes and parts without vertices: they mean nothing, and no later step expects them."""
    shapes = of_polygons(reading.geometries)
    empty_ring = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(shapes.vertices) == 0)])
    empty_part = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(shapes.rings) == 0)])
    rings_of = shapes.rings[shapes.parts]
    hollow = (np.diff(empty_ring[rings_of]) > 0) | (np.diff(empty_part[shapes.parts]) > 0)
    if not hollow.any():
        return shapes
    for row in np.flatnonzero(hollow).tolist():
        kept = [
            shapely.polygons(part.exterior, [hole for hole in part.interiors if not hole.is_empty] or None)
            for part in shapely.get_parts(reading.geometries[row])
            if not part.is_empty
        ]
        reading.geometries[row] = kept[0] if len(kept) == 1 else shapely.multipolygons(kept)
    return of_polygons(reading.geometries)


def check_places(shapes: Shapes, grid: Grid, reading: Reading) -> tuple[dict[int, Any], dict[int, str]]:
    """The rows whose polygon was changed, with the new polygon, and a note about each change."""
    changed: dict[int, Any] = {}
    notes: dict[int, str] = {}
    bounds, finite = shapes.bounds(), _are_finite(shapes.first_vertices(), read_only(shapes.xy))
    reading.refuse_all(~finite, "not-finite", lambda row: "geometry has a coordinate that is no finite number: fix it")
    crossing = np.zeros(len(shapes), np.bool_)
    if antimeridian.wraps(grid):
        crossing = finite & antimeridian.crossing(flat_of(shapes), len(shapes))
    with np.errstate(invalid="ignore"):
        x_out = ~crossing & ((bounds[:, 0] < grid.xmin) | (bounds[:, 2] > grid.xmax))
        outside = finite & (x_out | (bounds[:, 1] < grid.ymin) | (bounds[:, 3] > grid.ymax))
    reading.refuse_all(outside, "out-of-bounds", lambda row: _outside(bounds[row], grid))
    crossing &= ~outside
    for row in np.flatnonzero(crossing).tolist():
        (whole,) = shapes.take(np.array([row])).polygons()
        changed[row], notes[row] = antimeridian.unwrap(whole), "polygon crosses the antimeridian: cut"
    rows = np.flatnonzero(finite & ~outside & (np.diff(shapes.parts) > 0))
    settled = repair_polygons(replace_rows(shapes, changed).take(rows))
    for i, detail in settled.refused.items():
        reading.refuse(int(rows[i]), "invalid", detail)
    for i, mended in settled.mended.items():
        row = int(rows[i])
        changed[row] = mended
        notes[row] = "; ".join(filter(None, (notes.get(row), settled.notes[i])))
    for row in np.flatnonzero(crossing).tolist():
        if row not in reading.refusals:
            _cut(row, changed, grid, reading)
    kept = changed.keys() - reading.refusals.keys()
    return {row: changed[row] for row in kept}, {row: notes[row] for row in kept}


def _cut(row: int, changed: dict[int, Any], grid: Grid, reading: Reading) -> None:
    try:
        changed[row] = antimeridian.cut_into_world(changed[row], grid)
    except shapely.errors.GEOSException as error:
        reading.refuse(row, "invalid", f"polygon cannot be cut at the antimeridian ({error}): send it in two parts")
        return
    if changed[row].is_empty:
        reading.refuse(row, "no-area", "polygon over the antimeridian has no area in the world: send a polygon")


@kernel
def _are_finite(firsts: Ints, xy: Floats) -> Bools:
    finite = np.ones(len(firsts) - 1, np.bool_)
    for i in range(len(finite)):
        for v in range(firsts[i], firsts[i + 1]):
            finite[i] &= np.isfinite(xy[v, 0]) and np.isfinite(xy[v, 1])
    return finite


def _outside(bounds: Floats, grid: Grid) -> str:
    box = ", ".join(f"{side:.10g}" for side in bounds)
    world = f"[{grid.xmin}, {grid.ymin}, {grid.xmax}, {grid.ymax}]"
    remedy = "clip it"
    if is_degrees(grid) and np.abs(bounds).max() > 360:
        remedy = "it looks like metres, convert to degrees"
    return f"geometry reaches over [{box}], outside the world {world}: {remedy}"


def check_circles(reading: Reading, grid: Grid) -> None:
    lon, lat, metres = reading.circles.T
    asked = np.isfinite(lon)
    if not asked.any():
        return
    if not is_degrees(grid):
        reading.refuse_all(asked, "no-area", lambda row: "circles are on the sphere, and this world is not in degrees")
    outside = (lon < grid.xmin) | (lon > grid.xmax) | (lat < grid.ymin) | (lat > grid.ymax)
    centre = reading.circles[:, [0, 1, 0, 1]].copy()
    reading.refuse_all(asked & outside, "out-of-bounds", lambda row: _outside(centre[row], grid))
    none = ~(metres > 0) | (metres > METRES_MAX)
    limit = f"send a radius above 0 and up to {METRES_MAX:.0f}, half way round"
    radii = metres.copy()
    reading.refuse_all(asked & none, "no-area", lambda row: f"circle has a radius of {radii[row]:.6g} metres: {limit}")
