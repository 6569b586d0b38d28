"""A shape as cells of the index's quadtree: core cells, which lie wholly inside, and boundary cells, which need a test.

Works in the frame of core/index/cells.py, handed over by the caller: 2^16 × 2^16 cells at level 0, each level above of
twice the side. Points in boundary cells are tested in `points.py`. Distributor §4:

    ┌───────┬───┬───┐      begin with the one to four cells that hold the shape, and cut the largest boundary
    │       │ ▒ │   │      cell into four, again and again, until COVER_CELLS_MAX is reached: children outside
    │   ▒   ├───┼───┤      vanish, children inside are core and are never cut again
    │       │ █ │ ▒ │
    └───────┴───┴───┘      the cells of one shape are disjoint: a point finds it once

A child without edges lies wholly inside or wholly outside: as its lower left corner, which is followed from that of its
parent over the parent's few edges, instead of over all edges of the shape.

The result is exact despite rounding: a cell is taken a little larger than the points that are located in it, and an
edge that might touch it counts as touching. So every point of the shape lies in one of its cells, and every point of a
core cell lies in the shape.
"""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import Bools, Floats, Ints, ZCodes, inner, kernel
from geoswarm.core.arrays.threads import run_in_pieces
from geoswarm.core.shapes.circle import SLACK_M, farthest_m, nearest_m
from geoswarm.core.shapes.inside import INSIDE_SHAPE, OUTSIDE_SHAPE, UNSURE, Edges, FlatShapes, crossings, place_of
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
    places: Ints  # where the lower left corner lies, or UNSURE


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


@inner
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


@inner
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
        np.empty(queued, np.int64),
    )
    pool = np.empty(4096, np.int64)
    ends, corners = np.empty(4, np.int64), np.empty(4, np.int64)  # of the quarters of one cell
    n = 0
    for i in range(count):
        if n + cells_max > len(codes):
            room = 2 * len(codes) + cells_max
            levels, codes, core = _longer(levels, room), _longer(codes, room), _longer(core, room)
        if flat.first_rings[i] < flat.first_rings[i + 1]:
            head, tail, used = 0, 0, 0
            if circles[i]:
                tail = _push(queue, 0, levels_max, 0, 0, 0, 0, UNSURE)
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
                child_begin = used
                if not circles[i]:
                    edges = Edges(pool, begin, end, flat.xy)
                    _divide(level, row, column, edges, used, frame, ends)
                    _find_corners(level, row, column, edges, queue.places[head - 1], frame, corners)
                for child in range(4):
                    child_row, child_column = 2 * row + (child >> 1), 2 * column + (child & 1)
                    if circles[i]:
                        place = _circle_place(i, flat, _box(level - 1, child_row, child_column, frame))
                        ends[child], corners[child] = used, UNSURE
                    else:
                        place = -1
                        if ends[child] == child_begin:  # no edge: all of it lies where its corner lies
                            place = corners[child]
                            if place == UNSURE:
                                box = _box(level - 1, child_row, child_column, frame)
                                place = place_of(box[0], box[1], i, flat)
                    if place == INSIDE_SHAPE:
                        levels[n], codes[n], core[n] = level - 1, zcode(child_row, child_column), True
                        n += 1
                    elif place != OUTSIDE_SHAPE:
                        tail = _push(
                            queue, tail, level - 1, child_row, child_column, child_begin, ends[child], corners[child]
                        )
                    child_begin = ends[child]
                used = child_begin
        starts[i + 1] = n
    return starts, levels[:n].copy(), codes[:n].copy(), core[:n].copy()


@kernel
def _push(queue: _Cells, tail: int, level: int, row: int, column: int, begin: int, end: int, place: int) -> int:
    queue.levels[tail], queue.rows[tail], queue.columns[tail] = level, row, column
    queue.begins[tail], queue.ends[tail], queue.places[tail] = begin, end, place
    return tail + 1


@inner
def _corner(level: int, row: int, column: int, frame: Floats) -> tuple[float, float]:
    """The lower left corner of a cell: the same numbers at each level, and within its box."""
    side = float(1 << level)
    return (
        frame[0] + column * ((frame[2] - frame[0]) / frame[4] * side),
        frame[3] - (row + 1) * ((frame[3] - frame[1]) / frame[5] * side),
    )


@inner
def _divide(level: int, row: int, column: int, edges: Edges, used: int, frame: Floats, ends: Ints) -> None:
    """Write the edges of each quarter of a cell behind each other into the pool, and where those of each end."""
    pool, xy = edges.pool, edges.xy
    box0, box1 = _box(level - 1, 2 * row, 2 * column, frame), _box(level - 1, 2 * row, 2 * column + 1, frame)
    box2, box3 = _box(level - 1, 2 * row + 1, 2 * column, frame), _box(level - 1, 2 * row + 1, 2 * column + 1, frame)
    right_of_left, left_of_right = box0[0] + box0[2], box1[0] - box1[2]
    foot_of_upper, head_of_lower = box0[1] - box0[3], box2[1] + box2[3]
    room = edges.end - edges.begin
    at0, at1, at2, at3 = used, used + room, used + 2 * room, used + 3 * room
    for e in range(edges.begin, edges.end):
        v = pool[e]
        x0, y0, x1, y1 = xy[v - 1, 0], xy[v - 1, 1], xy[v, 0], xy[v, 1]
        left, right = min(x0, x1) <= right_of_left, max(x0, x1) >= left_of_right  # most edges lie in one quarter
        upper, lower = max(y0, y1) >= foot_of_upper, min(y0, y1) <= head_of_lower
        if upper and left and _touches(x0, y0, x1, y1, box0):
            pool[at0] = v
            at0 += 1
        if upper and right and _touches(x0, y0, x1, y1, box1):
            pool[at1] = v
            at1 += 1
        if lower and left and _touches(x0, y0, x1, y1, box2):
            pool[at2] = v
            at2 += 1
        if lower and right and _touches(x0, y0, x1, y1, box3):
            pool[at3] = v
            at3 += 1
    ends[0] = at0
    ends[1] = _move(pool, used + room, at1, ends[0])
    ends[2] = _move(pool, used + 2 * room, at2, ends[1])
    ends[3] = _move(pool, used + 3 * room, at3, ends[2])


@inner
def _move(pool: Ints, begin: int, end: int, to: int) -> int:
    for e in range(begin, end):
        pool[to + e - begin] = pool[e]
    return to + end - begin


@inner
def _find_corners(level: int, row: int, column: int, edges: Edges, place: int, frame: Floats, corners: Ints) -> None:
    """Where the lower left corners of the quarters lie, given where that of the whole cell lies: each edge that is
    crossed on the way to them changes sides, and only the edges of the cell can be."""
    x0, y0 = _corner(level, row, column, frame)
    x1, y1 = _corner(level - 1, 2 * row, 2 * column + 1, frame)
    corners[2] = _walk(place, 0)
    corners[3] = _walk(place, crossings(x0, x1, y0, 0, edges))
    corners[0] = _walk(place, crossings(y0, y1, x0, 1, edges))
    corners[1] = _walk(corners[0], crossings(x0, x1, y1, 0, edges))


@kernel
def _walk(place: int, crossed: int) -> int:
    return UNSURE if place > INSIDE_SHAPE or crossed > 1 else place ^ crossed


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
                x, y = _corner(level, row, column, frame)
                place = OUTSIDE_SHAPE if x < bounds[0] or y < bounds[1] else place_of(x, y, shape, flat)
                tail = _push(queue, tail, level, row, column, begin, used, place)
    return tail, pool, used
