"""Polygons across the antimeridian: cut in two, one part at each side of the world.

Only in a world from -180 to 180. A ring that jumps by more than 180 degrees from one vertex to the next is taken to go
the short way round, over the antimeridian; so is one that continues beyond 180 (170 ... 190). An edge between two
vertices that both lie on the antimeridian is no jump: polygons that are already cut have such edges, and the world.

    ┌────────────────────┐        x is first unwrapped (179, -179 becomes 179, 181), then what lies
    │▓▓▓              ▓▓▓│▓▓▓     beyond the world is moved back into it
    └────────────────────┘

A ring that goes round a pole ends 360 degrees from where it began, and is closed over the pole on its side of the
equator. A region wider than 180 degrees must be given as a rectangle, or with vertices between its corners.
"""

import numpy as np
import numpy.typing as npt
import shapely
from shapely import affinity

from geoswarm.core.arrays.jit import Bools, Floats, kernel
from geoswarm.core.shapes.inside import FlatShapes
from geoswarm.core.space.grid import Grid


def wraps(grid: Grid) -> bool:
    return grid.xmin == -180 and grid.xmax == 180 and grid.ymin >= -90 and grid.ymax <= 90


@kernel
def _is_jump(x0: float, x1: float) -> bool:
    return abs(x1 - x0) > 180.0 and not (abs(x0) == 180.0 and abs(x1) == 180.0)


@kernel
def crossing(flat: FlatShapes, count: int) -> Bools:
    """Which shapes have a jump, or begin before 180 degrees and continue beyond."""
    found = np.zeros(count, np.bool_)
    for i in range(count):
        low, high = np.inf, -np.inf
        for r in range(flat.first_rings[i], flat.first_rings[i + 1]):
            for v in range(flat.vertices[r] + 1, flat.vertices[r + 1]):
                x0, x1 = flat.xy[v - 1, 0], flat.xy[v, 0]
                low, high = min(low, x1), max(high, x1)
                if _is_jump(x0, x1) and abs(x0) <= 180.0 and abs(x1) <= 180.0:
                    found[i] = True
        beyond = (high > 180.0 and low < 180.0) or (low < -180.0 and high > -180.0)
        found[i] |= beyond and low >= -360.0 and high <= 360.0
    return found


def unwrap(polygon: shapely.Geometry) -> shapely.Geometry:
    """The polygon with x continuing beyond 180 instead of jumping. It may be invalid, as the polygon itself may be."""
    parts = [_unwrap_part(part) for part in shapely.get_parts(polygon)]
    return parts[0] if len(parts) == 1 else shapely.multipolygons(parts)


def _unwrap_part(part: shapely.Geometry) -> shapely.Geometry:
    shell = _unwrap_ring(shapely.get_coordinates(shapely.get_exterior_ring(part)))
    middle = (shell[:, 0].min() + shell[:, 0].max()) / 2
    holes: list[npt.NDArray[np.float64]] = []
    for ring in part.interiors:
        hole = _unwrap_ring(shapely.get_coordinates(ring))
        hole[:, 0] -= 360 * np.round((hole[:, 0].mean() - middle) / 360)
        holes.append(hole)
    return shapely.polygons(shell, [shapely.linearrings(hole) for hole in holes] or None)


def _unwrap_ring(ring: Floats) -> Floats:
    x = ring[:, 0]
    jumps = (np.abs(np.diff(x)) > 180) & ~((np.abs(x[1:]) == 180) & (np.abs(x[:-1]) == 180))
    turns = np.where(jumps, np.round(np.diff(x) / 360), 0)
    ring = ring.copy()
    ring[1:, 0] -= 360 * np.cumsum(turns)
    if ring[-1, 0] != ring[0, 0]:
        pole = 90.0 if ring[:, 1].mean() > 0 else -90.0
        ring = np.vstack([ring, [ring[-1, 0], pole], [ring[0, 0], pole], ring[:1]])
    return ring


def cut_into_world(polygon: shapely.Geometry, grid: Grid) -> shapely.Geometry:
    """The parts within the world of a valid polygon that may continue beyond it."""
    parts: list[shapely.Geometry] = []
    for turn in (-720.0, -360.0, 0.0, 360.0, 720.0):
        world = shapely.box(grid.xmin + turn, grid.ymin, grid.xmax + turn, grid.ymax)
        pieces = shapely.get_parts(shapely.intersection(polygon, world))
        parts.extend(affinity.translate(piece, -turn) for piece in pieces if piece.geom_type == "Polygon")
    return shapely.union_all(parts)
