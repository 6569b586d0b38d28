"""A shape as cells of the index's quadtree: core cells, which lie wholly inside, and boundary cells, which need a test.

Works in the frame of core/index/cells.py, handed over by the caller: 2^16 × 2^16 cells at level 0, each level above of
twice the side. Points in boundary cells are tested in `points.py`. Distributor §4:

    ┌───────┬───┬───┐      begin with the one to four cells that hold the shape, and cut the largest boundary
    │       │ ▒ │   │      cell into four, again and again, until COVER_CELLS_MAX is reached: children outside
    │   ▒   ├───┼───┤      vanish, children inside are core and are never cut again
    │       │ █ │ ▒ │
    └───────┴───┴───┘      the cells of one shape are disjoint: a point finds it once

The result is exact despite rounding: a cell is taken a little larger than the points that are located in it, and an
edge that might touch it counts as touching. So every point of the shape lies in one of its cells, and every point of a
core cell lies in the shape.
"""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import Bools, Floats, Ints, ZCodes, kernel
from geoswarm.core.arrays.threads import run_in_pieces
from geoswarm.core.shapes.circle import SLACK_M, farthest_m, nearest_m
from geoswarm.core.shapes.inside import INSIDE_SHAPE, OUTSIDE_SHAPE, FlatShapes, place_of
from geoswarm.core.shapes.points import flat_of
from geoswarm.core.shapes.shapes import Shapes
from geoswarm.core.space.grid import column_of, row_of, zcode

T = TypeVar("T", bound=np.generic)
COVER_CELLS_MAX = 64
"""Most cells of one shape. For collisions in British postcode sectors, 35 % of the points are then decided without a
test; 7 % with 16 cells, 41 % with 128. A cell costs 6 bytes here."""
COVER_CELLS_MIN = 4
"""A small shape may lie across a corner of cells at every level but the uppermost, and needs four."""
ROUNDING = 8 * 2.220446049250313e-16
"""How much larger cells are taken, as a share of the largest coordinate; locating errs by less than half of it."""


class Cover(NamedTuple):
    """Cells of shape i: starts[i]:starts[i + 1]. Codes are those of their level, as the keys of the index."""

    starts: Ints
    levels: npt.NDArray[np.uint8]
    codes: ZCodes
    core: Bools


class _Cells(NamedTuple):
    """The cells of one shape while it is cut: a queue of boundary cells, each with the edges that touch it."""

    levels: Ints
    rows: Ints
    columns: Ints
    begins: Ints  # into the pool of edges
    ends: Ints


def cover(shapes: Shapes, frame: Floats, cells_max: int = COVER_CELLS_MAX) -> Cover:
    """The shapes must lie within the frame, of 2^k columns and as many rows. Rows without a shape have no cells."""
    cells_max = max(cells_max, COVER_CELLS_MIN)
    bounds, circles = shapes.bounds(), shapes.are_circles()
    levels_max, flat = int(np.log2(frame[4])), flat_of(shapes)

    def some(first: int, end: int) -> Cover:
        rows = flat._replace(first_rings=flat.first_rings[first : end + 1])
        return Cover(*_cover(rows, bounds[first:end], circles[first:end], frame, levels_max, cells_max))

    parts = run_in_pieces(some, len(shapes), len(shapes.xy) + cells_max * len(shapes))
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.starts) for part in parts])
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Cover(starts, *(np.concatenate(column) for column in list(zip(*parts, strict=True))[1:]))


@kernel
def _box(level: int, row: int, column: int, frame: Floats) -> tuple[float, float, float, float]:
    """Centre and half sides of a cell, a little too large."""
    side = float(1 << level)
    width, height = (frame[2] - frame[0]) / frame[4] * side, (frame[3] - frame[1]) / frame[5] * side
    x, y = frame[0] + (column + 0.5) * width, frame[3] - (row + 0.5) * height
    more_x, more_y = ROUNDING * max(abs(frame[0]), abs(frame[2])), ROUNDING * max(abs(frame[1]), abs(frame[3]))
    return x, y, width / 2 + more_x, height / 2 + more_y


@kernel
def _touches(x0: float, y0: float, x1: float, y1: float, box: tuple[float, float, float, float]) -> bool:
    """Whether an edge may touch a box: no line along an axis or along the edge separates them."""
    x, y, w, h = box
    if min(x0, x1) > x + w or max(x0, x1) < x - w or min(y0, y1) > y + h or max(y0, y1) < y - h:
        return False
    dx, dy = x1 - x0, y1 - y0
    one, two = dx * (y - y0), dy * (x - x0)
    return abs(one - two) <= w * abs(dy) + h * abs(dx) + 4e-15 * (abs(one) + abs(two))


@kernel
def _circle_place(shape: int, flat: FlatShapes, box: tuple[float, float, float, float]) -> int:
    """OUTSIDE_SHAPE, INSIDE_SHAPE, or -1 for the boundary."""
    centre = flat.vertices[flat.first_rings[shape]]
    lon, lat, metres = flat.xy[centre, 0], flat.xy[centre, 1], flat.metres[shape]
    x0, y0, x1, y1 = box[0] - box[2], max(-90.0, box[1] - box[3]), box[0] + box[2], min(90.0, box[1] + box[3])
    if nearest_m(lon, lat, x0, y0, x1, y1) > metres + SLACK_M:
        return OUTSIDE_SHAPE
    return INSIDE_SHAPE if farthest_m(lon, lat, x0, y0, x1, y1) <= metres - SLACK_M else -1


@kernel
def _longer(array: npt.NDArray[T], room: int) -> npt.NDArray[T]:
    grown = np.empty(room, array.dtype)
    for k in range(len(array)):
        grown[k] = array[k]
    return grown


@kernel
def _cover(
    flat: FlatShapes, bounds: Floats, circles: Bools, frame: Floats, levels_max: int, cells_max: int
) -> tuple[Ints, npt.NDArray[np.uint8], ZCodes, Bools]:
    count = len(bounds)
    starts = np.zeros(count + 1, np.int64)
    room = 16 * count + 2 * cells_max
    levels, codes, core = np.empty(room, np.uint8), np.empty(room, np.uint32), np.empty(room, np.bool_)
    queued = cells_max * (levels_max + 1) + 8  # cells of one level are in the queue together, and no more than allowed
    queue = _Cells(
        np.empty(queued, np.int64),
        np.empty(queued, np.int64),
        np.empty(queued, np.int64),
        np.empty(queued, np.int64),
        np.empty(queued, np.int64),
    )
    pool = np.empty(4096, np.int64)
    n = 0
    for i in range(count):
        if n + cells_max > len(codes):
            room = 2 * len(codes) + cells_max
            levels, codes, core = _longer(levels, room), _longer(codes, room), _longer(core, room)
        if flat.first_rings[i] < flat.first_rings[i + 1]:
            head, tail, used = 0, 0, 0
            if circles[i]:
                tail = _push(queue, 0, levels_max, 0, 0, 0, 0)
            else:
                tail, pool, used = _begin(i, flat, bounds[i], frame, queue, pool)
            first = n
            while head < tail:
                level, row, column = queue.levels[head], queue.rows[head], queue.columns[head]
                begin, end = queue.begins[head], queue.ends[head]
                head += 1
                # Cutting replaces one cell by up to four.
                if level == 0 or (n - first) + (tail - head) + 4 > cells_max:
                    levels[n], codes[n], core[n] = level, zcode(row, column), False
                    n += 1
                    continue
                if used + 4 * (end - begin) > len(pool):
                    pool = _longer(pool, 2 * (used + 4 * (end - begin)))
                for child in range(4):
                    child_row, child_column = 2 * row + (child >> 1), 2 * column + (child & 1)
                    box = _box(level - 1, child_row, child_column, frame)
                    child_begin = used
                    if circles[i]:
                        place = _circle_place(i, flat, box)
                    else:
                        for e in range(begin, end):
                            v = pool[e]
                            pool[used] = v
                            used += _touches(flat.xy[v - 1, 0], flat.xy[v - 1, 1], flat.xy[v, 0], flat.xy[v, 1], box)
                        place = -1 if used > child_begin else place_of(box[0], box[1], i, flat)
                    if place == INSIDE_SHAPE:
                        levels[n], codes[n], core[n] = level - 1, zcode(child_row, child_column), True
                        n += 1
                    elif place != OUTSIDE_SHAPE:
                        tail = _push(queue, tail, level - 1, child_row, child_column, child_begin, used)
        starts[i + 1] = n
    return starts, levels[:n].copy(), codes[:n].copy(), core[:n].copy()


@kernel
def _push(queue: _Cells, tail: int, level: int, row: int, column: int, begin: int, end: int) -> int:
    queue.levels[tail], queue.rows[tail], queue.columns[tail] = level, row, column
    queue.begins[tail], queue.ends[tail] = begin, end
    return tail + 1


@kernel
def _begin(
    shape: int, flat: FlatShapes, bounds: Floats, frame: Floats, queue: _Cells, pool: Ints
) -> tuple[int, Ints, int]:
    """The cells that hold the shape, at the finest level where they are four at most."""
    row0, column0 = row_of(bounds[3], frame), column_of(bounds[0], frame)
    row1, column1 = row_of(bounds[1], frame), column_of(bounds[2], frame)
    level, tail, used = 0, 0, 0
    while row1 - row0 > 1 or column1 - column0 > 1:
        row0, column0, row1, column1 = row0 >> 1, column0 >> 1, row1 >> 1, column1 >> 1
        level += 1
    first, last = flat.first_rings[shape], flat.first_rings[shape + 1]
    room = 4 * (flat.vertices[last] - flat.vertices[first])
    if room > len(pool):
        pool = np.empty(2 * room, np.int64)
    for row in range(row0, row1 + 1):
        for column in range(column0, column1 + 1):
            box, begin = _box(level, row, column, frame), used
            for r in range(first, last):
                for v in range(flat.vertices[r] + 1, flat.vertices[r + 1]):
                    pool[used] = v
                    used += _touches(flat.xy[v - 1, 0], flat.xy[v - 1, 1], flat.xy[v, 0], flat.xy[v, 1], box)
            # A cell without edges is outside: if it were inside, the shape would be larger than these four cells.
            if used > begin:
                tail = _push(queue, tail, level, row, column, begin, used)
    return tail, pool, used
