"""Which polygons are valid, which can be mended, and which are refused, with the reason and the place.

A polygon that crosses itself has no single meaning. It is mended (GEOS make_valid, by structure) if that changes its
area by at most 1 %: a border that was digitised carelessly, a spike, a repeated vertex. A bow tie is refused: it may
mean two triangles or a rectangle. Parts that are valid alone and overlap are joined. The work is bounded before it
begins (`tangle.py`).
"""

from typing import NamedTuple

import numpy as np
import shapely

from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel, read_only
from geoswarm.core.arrays.threads import run_in_pieces
from geoswarm.core.shapes.points import flat_of
from geoswarm.core.shapes.shapes import Geometries, Shapes
from geoswarm.core.shapes.tangle import Tangles, tangles

PAIRS_MAX = 64_000_000
"""Pairs of edges of one polygon that are compared: about two seconds. A smooth polygon of a million vertices needs 27
million; a star of 20,000 needles 6."""
CROSSINGS_MAX = 1000
"""Places where a polygon that is mended may cross or touch itself; GEOS needs seconds for some ten thousand."""
AREA_CHANGE_MAX = 0.01
"""The share of the area that mending may add or remove."""


class Repairs(NamedTuple):
    """The polygons that are not valid, by row: mended with a note, or refused with a reason."""

    mended: dict[int, shapely.Geometry]
    notes: dict[int, str]
    refused: dict[int, str]


def repair_polygons(shapes: Shapes) -> Repairs:
    """Mend or refuse polygons that are not valid. Rows that are not in the result are valid."""
    settled = Repairs({}, {}, {})
    rows: Ints = np.flatnonzero(np.diff(shapes.parts) > 0)
    flat = flat_of(shapes)
    parts = run_in_pieces(
        lambda first, end: tangles(flat, rows[first:end], PAIRS_MAX, CROSSINGS_MAX), len(rows), len(shapes.xy)
    )
    found = Tangles(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    crossed = found.crossings > CROSSINGS_MAX
    dense = ~crossed & (found.pairs > PAIRS_MAX)
    counts = shapes.vertex_counts()
    for i in np.flatnonzero(dense).tolist():
        settled.refused[int(rows[i])] = (
            f"polygon with {counts[rows[i]]} vertices has edges so close to each other that more than {PAIRS_MAX} "
            "pairs of them would have to be compared: simplify it"
        )
    for i in np.flatnonzero(crossed).tolist():
        x, y = found.places[i]
        settled.refused[int(rows[i])] = _hopeless(f"polygon crosses itself at ({x:.10g}, {y:.10g})")
    rings = np.diff(shapes.rings[shapes.parts])[rows]
    # One ring that never touches itself is valid, if it is more than a point or a line.
    unclear = (found.touches > 0) | (rings > 1) | _are_flat(shapes.first_vertices(), read_only(shapes.xy))[rows]
    doubtful = np.flatnonzero(~crossed & ~dense & unclear)
    polygons = shapes.take(rows[doubtful]).polygons()
    for i in np.flatnonzero(~shapely.is_valid(polygons)).tolist():
        row = int(rows[doubtful[i]])
        try:
            _mend(row, polygons[i], int(found.touches[doubtful[i]]), settled)
        except shapely.errors.GEOSException as error:
            settled.refused[row] = f"polygon is not valid and cannot be mended ({error}): draw it anew"
    return settled


@kernel
def _are_flat(firsts: Ints, xy: Floats) -> Bools:
    """Whether a row has fewer than three sides of any length."""
    flat = np.ones(len(firsts) - 1, np.bool_)
    for i in range(len(flat)):
        sides = 0
        for v in range(firsts[i] + 1, firsts[i + 1]):
            sides += xy[v, 0] != xy[v - 1, 0] or xy[v, 1] != xy[v - 1, 1]
            if sides == 3:
                flat[i] = False
                break
    return flat


def _hopeless(where: str) -> str:
    return f"{where}, and meets itself at more than {CROSSINGS_MAX} places: draw it anew"


def _mend(row: int, polygon: shapely.Geometry, touches: int, settled: Repairs) -> None:
    where = _where(shapely.is_valid_reason(polygon))
    if touches > CROSSINGS_MAX:
        settled.refused[row] = _hopeless(where)
        return
    parts = shapely.get_parts(polygon)
    if len(parts) > 1 and shapely.is_valid(parts).all():
        settled.mended[row], settled.notes[row] = shapely.union_all(parts), f"{where}: parts joined"
        return
    mended = polygons_of(shapely.make_valid(polygon, method="structure", keep_collapsed=False))
    before, after = float(shapely.area(polygon)), float(shapely.area(mended)) if mended is not None else 0.0
    if mended is None or abs(after - before) > AREA_CHANGE_MAX * max(after, before):
        change = f"mending it would change its area from {before:.6g} to {after:.6g}, limit {AREA_CHANGE_MAX:.0%}"
        settled.refused[row] = f"{where}; {change}: draw the ring without crossings"
        return
    settled.mended[row], settled.notes[row] = mended, f"{where}: mended"


def _where(reason: str) -> str:
    """GEOS's reason, such as 'Self-intersection[1.5 2.5]', as a sentence."""
    what, _, place = reason.partition("[")
    at = f" at ({', '.join(place.rstrip(']').split())})" if place else ""
    return f"polygon is not valid: {what.strip().lower()}{at}"


def polygons_of(geometry: shapely.Geometry) -> shapely.Geometry | None:
    """The polygons in a geometry as one; lines and points have no area and are left out."""
    if geometry.geom_type in ("Polygon", "MultiPolygon"):
        return None if geometry.is_empty else geometry
    leaves: Geometries = shapely.get_parts(shapely.get_parts(geometry))
    while (shapely.get_type_id(leaves) == shapely.GeometryType.GEOMETRYCOLLECTION).any():
        leaves = shapely.get_parts(leaves)
    leaves = leaves[(shapely.get_type_id(leaves) == shapely.GeometryType.POLYGON) & ~shapely.is_empty(leaves)]
    return None if len(leaves) == 0 else shapely.multipolygons(leaves)
