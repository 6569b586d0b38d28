r"""Whether a point lies in a shape: the loops that count crossings of a ray. Arrays only.

Every edge is tested by exact comparisons, or by a product whose sign is certain despite rounding (Shewchuk's first
filter). If it is not certain, the answer is UNSURE, and `points.py` asks GEOS. So both agree on every point.

A shape that many points ask for is cut into slabs, and a point looks at the edges of its own slab only:

    ──────/\────────        about four entries per edge, made once per shape and call, in the time
    ──p─▶/──\──/\───        that a few points would take to look at all edges
    ────/────\/──\──
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import Bools, Floats, Ints, inner, kernel
from geoswarm.core.shapes.circle import distance_m

OUTSIDE_SHAPE, INSIDE_SHAPE, BORDER, UNSURE = 0, 1, 2, 3
CERTAIN = 4e-16
"""A difference of two products has the right sign if it is above this share of their sum; 3.34e-16 would do."""
HEIGHT_MIN = 1e-200
"""The least height of a shape that is cut into slabs: slabs per unit of height must be a finite number."""
VERTICES_FEW, POINTS_FEW = 16, 12
"""Up to so many vertices or points, slabs cost more than they save."""


Places = npt.NDArray[np.int8]


class FlatShapes(NamedTuple):
    """The arrays of `Shapes` that kernels read."""

    first_rings: Ints  # of row i: first_rings[i]:first_rings[i + 1]
    vertices: Ints
    xy: Floats
    metres: Floats


class Edges(NamedTuple):
    """Some edges of a shape: pool[begin:end], each the vertex that it ends at."""

    pool: Ints
    begin: int
    end: int
    xy: Floats


class Slabs(NamedTuple):
    """Edges of slab k: edges[starts[k]:starts[k + 1]], each the vertex that it ends at."""

    low: float
    high: float
    scale: float
    starts: Ints
    edges: Ints


@kernel
def _cross(x: float, y: float, x0: float, y0: float, x1: float, y1: float) -> int:
    """Whether an edge crosses the ray that goes right from the point (0 or 1), or BORDER, or UNSURE."""
    if (y0 > y) == (y1 > y):
        if y1 == y and (x1 == x or (y0 == y and min(x0, x1) <= x <= max(x0, x1))):
            return BORDER
        return 0
    if x0 < x and x1 < x:
        return 0
    if x0 > x and x1 > x:
        return 1
    if (x0 == x and x1 == x) or (x1 == x and y1 == y):
        return BORDER
    left, right = (x0 - x) * (y1 - y), (x1 - x) * (y0 - y)
    turn = left - right
    if abs(turn) <= CERTAIN * (abs(left) + abs(right)):
        return UNSURE
    return 1 if (turn > 0) == (y1 > y0) else 0


@inner
def place_of(x: float, y: float, shape: int, flat: FlatShapes) -> int:
    """Where a point lies, by testing every edge."""
    odd = 0
    for r in range(flat.first_rings[shape], flat.first_rings[shape + 1]):
        begin, end = flat.vertices[r], flat.vertices[r + 1]
        if begin == end:
            continue
        x1, y1 = flat.xy[begin, 0], flat.xy[begin, 1]
        for v in range(begin + 1, end):
            x0, y0 = x1, y1
            x1, y1 = flat.xy[v, 0], flat.xy[v, 1]
            found = _cross(x, y, x0, y0, x1, y1)
            if found > 1:
                return found
            odd ^= found
    return odd


@inner
def crossings(low: float, high: float, level: float, axis: int, edges: Edges) -> int:
    """Whether some edges are crossed an odd number of times (0 or 1) on the way from `low` to `high` along an axis, at
    `level` of the other axis; or BORDER, or UNSURE. An edge that is not on the way is crossed by the rays from both of
    its ends, or by neither."""
    odd, xy = 0, edges.xy
    for e in range(edges.begin, edges.end):
        v = edges.pool[e]
        x0, y0, x1, y1 = xy[v - 1, axis], xy[v - 1, 1 - axis], xy[v, axis], xy[v, 1 - axis]
        if (y0 > level and y1 > level) or (y0 < level and y1 < level):
            continue
        one, other = _cross(low, level, x0, y0, x1, y1), _cross(high, level, x0, y0, x1, y1)
        if one > 1 or other > 1:
            return max(one, other)
        odd ^= one ^ other
    return odd


@inner
def _place_in_circle(x: float, y: float, shape: int, flat: FlatShapes) -> int:
    centre = flat.vertices[flat.first_rings[shape]]
    away = distance_m(flat.xy[centre, 0], flat.xy[centre, 1], x, y)
    if away == flat.metres[shape]:
        return BORDER
    return INSIDE_SHAPE if away < flat.metres[shape] else OUTSIDE_SHAPE


@kernel
def slabs_of(shape: int, flat: FlatShapes) -> Slabs:
    """As many slabs as give about four entries per edge, however long the edges are."""
    first, last = flat.first_rings[shape], flat.first_rings[shape + 1]
    begin, end = flat.vertices[first], flat.vertices[last]
    low = high = flat.xy[begin, 1]
    climb = 0.0
    for v in range(begin + 1, end):
        low, high = min(low, flat.xy[v, 1]), max(high, flat.xy[v, 1])
        climb += abs(flat.xy[v, 1] - flat.xy[v - 1, 1])
    height, count, scale = high - low, 1, 0.0
    if height > HEIGHT_MIN:
        count = int(min(float(end - begin), 3.0 * (end - begin) * height / max(climb, height))) + 1
        scale = count / height
    slabs = Slabs(low, high, scale, np.zeros(count + 1, np.int64), np.empty(0, np.int64))
    for r in range(first, last):
        for v in range(flat.vertices[r] + 1, flat.vertices[r + 1]):
            y0, y1 = flat.xy[v - 1, 1], flat.xy[v, 1]
            for k in range(_slab(min(y0, y1), slabs), _slab(max(y0, y1), slabs) + 1):
                slabs.starts[k + 1] += 1
    for k in range(count):
        slabs.starts[k + 1] += slabs.starts[k]
    edges, at = np.empty(slabs.starts[count], np.int64), slabs.starts.copy()
    for r in range(first, last):
        for v in range(flat.vertices[r] + 1, flat.vertices[r + 1]):
            y0, y1 = flat.xy[v - 1, 1], flat.xy[v, 1]
            for k in range(_slab(min(y0, y1), slabs), _slab(max(y0, y1), slabs) + 1):
                edges[at[k]] = v
                at[k] += 1
    return Slabs(low, high, slabs.scale, slabs.starts, edges)


@inner
def _slab(y: float, slabs: Slabs) -> int:
    """The slab of a height. Monotone: a height between two others lies in a slab between theirs."""
    return min(int((y - slabs.low) * slabs.scale), len(slabs.starts) - 2)


@inner
def place_by_slabs(x: float, y: float, slabs: Slabs, xy: Floats) -> int:
    if not slabs.low <= y <= slabs.high:
        return OUTSIDE_SHAPE
    odd, k = 0, _slab(y, slabs)
    for e in range(slabs.starts[k], slabs.starts[k + 1]):
        v = slabs.edges[e]
        found = _cross(x, y, xy[v - 1, 0], xy[v - 1, 1], xy[v, 0], xy[v, 1])
        if found > 1:
            return found
        odd ^= found
    return odd


@kernel
def places(x: Floats, y: Floats, points: Ints, shapes: Ints, circles: Bools, flat: FlatShapes) -> Places:
    """Where the point lies, for each pair (points[i], shapes[i]); pairs of one shape lie together."""
    found = np.empty(len(points), np.int8)
    i = 0
    while i < len(points):
        shape, end = shapes[i], i + 1
        while end < len(points) and shapes[end] == shape:
            end += 1
        first, last = flat.first_rings[shape], flat.first_rings[shape + 1]
        if len(circles) and circles[shape]:
            for p in range(i, end):
                found[p] = _place_in_circle(x[points[p]], y[points[p]], shape, flat)
        elif end - i <= POINTS_FEW or flat.vertices[last] - flat.vertices[first] <= VERTICES_FEW:
            for p in range(i, end):
                found[p] = place_of(x[points[p]], y[points[p]], shape, flat)
        else:
            slabs = slabs_of(shape, flat)
            for p in range(i, end):
                found[p] = place_by_slabs(x[points[p]], y[points[p]], slabs, flat.xy)
        i = end
    return found
