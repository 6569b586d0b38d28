"""How often the edges of a polygon touch each other, counted within a budget. `repair.py` decides by it.

To find whether a polygon is valid, GEOS compares every two edges whose boxes overlap: for a star of a million needles
that takes more than ten minutes. This file walks a binary tree over the edges of a shape, in the order in which they
are drawn, and stops at a budget.

            [0,8)              two branches are looked into while their boxes overlap;
        [0,4)   [4,8)          a branch meets itself, too
      [0,2)[2,4) ...

A shape without touches is simple, and a single ring that is simple is valid: most polygons need no GEOS. Many need no
tree either: a ring that goes once round its middle, always the same way, cannot meet itself.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.shapes.inside import CERTAIN, FlatShapes

LEAF = 4
STACK = 128
"""Room of the stack: each level of a tree leaves three entries on the way down, and a million edges have 18 levels."""


class Tangles(NamedTuple):
    """For each shape: pairs of branches and of edges that were compared; pairs of edges that touch or might, and those
    that certainly cross; a place where two cross."""

    pairs: Ints
    touches: Ints
    crossings: Ints
    places: Floats  # (n, 2)


@kernel
def tangles(flat: FlatShapes, chosen: Ints, pairs_max: int, crossings_max: int) -> Tangles:
    """Counting a shape ends when it passes a limit. Consecutive edges touch only if they fold back."""
    n = len(chosen)
    found = Tangles(np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros((n, 2)))
    for i in range(n):
        if not _is_star(flat, chosen[i]):
            _tangle(flat, chosen[i], i, pairs_max, crossings_max, found)
    return found


@kernel
def _is_star(flat: FlatShapes, shape: int) -> bool:
    """Whether a shape is one ring that certainly goes once round the mean of its vertices, every edge the same way. It
    is left at the first edge that does not, so that other shapes lose little."""
    ring = flat.first_rings[shape]
    begin, end = flat.vertices[ring], flat.vertices[flat.first_rings[shape + 1]]
    if flat.first_rings[shape + 1] - ring != 1 or end - begin < 4:
        return False
    x, y, share = 0.0, 0.0, 1.0 / (end - begin - 1)
    for v in range(begin + 1, end):
        x, y = x + share * flat.xy[v, 0], y + share * flat.xy[v, 1]
    way, rounds = 0, 0
    for v in range(begin + 1, end):
        x0, y0, x1, y1 = flat.xy[v - 1, 0], flat.xy[v - 1, 1], flat.xy[v, 0], flat.xy[v, 1]
        if x0 == x1 and y0 == y1:
            continue
        side = _side(x0, y0, x1, y1, x, y)
        if side == 0 or side == -way:
            return False
        way = side
        rounds += y0 < y <= y1  # an edge is seen under less than half a turn, so each round comes up once
    return rounds == 1


@kernel
def _tangle(flat: FlatShapes, shape: int, i: int, pairs_max: int, crossings_max: int, found: Tangles) -> None:
    first, last = flat.first_rings[shape], flat.first_rings[shape + 1]
    edges = np.empty(flat.vertices[last] - flat.vertices[first], np.int64)  # each by the vertex that it ends at
    n = 0
    for r in range(first, last):
        for v in range(flat.vertices[r] + 1, flat.vertices[r + 1]):
            if flat.xy[v, 0] != flat.xy[v - 1, 0] or flat.xy[v, 1] != flat.xy[v - 1, 1]:
                edges[n] = v
                n += 1
    leaves = 1
    while leaves * LEAF < n:
        leaves *= 2
    boxes = _tree(edges[:n], leaves, flat.xy)
    neighbours = _followers(edges[:n], flat, first, last)
    stack = np.empty((STACK, 2), np.int64)
    stack[0, 0], stack[0, 1] = 1, 1
    depth = 1
    while depth:
        depth -= 1
        a, b = stack[depth, 0], stack[depth, 1]
        found.pairs[i] += 1
        if found.pairs[i] > pairs_max or found.crossings[i] > crossings_max:
            break
        if a != b and not _overlap(boxes, a, b):
            continue
        if a >= leaves:
            for e in range((a - leaves) * LEAF, min(n, (a - leaves + 1) * LEAF)):
                for f in range(e + 1 if a == b else (b - leaves) * LEAF, min(n, (b - leaves + 1) * LEAF)):
                    found.pairs[i] += 1
                    met = _meet(edges, neighbours, e, f, flat.xy)
                    found.touches[i] += met > 0
                    found.crossings[i] += met > 1
                    if met > 1 and found.crossings[i] == 1:
                        found.places[i, 0], found.places[i, 1] = _crossing(edges[e], edges[f], flat.xy)
            continue
        stack[depth, 0], stack[depth, 1] = 2 * a, 2 * b
        stack[depth + 1, 0], stack[depth + 1, 1] = 2 * a + 1, 2 * b + 1
        stack[depth + 2, 0], stack[depth + 2, 1] = 2 * a, 2 * b + 1
        depth += 3
        if a != b:
            stack[depth, 0], stack[depth, 1] = 2 * a + 1, 2 * b
            depth += 1


@kernel
def _tree(edges: Ints, leaves: int, xy: Floats) -> Floats:
    """Node k has the children 2k and 2k + 1; the leaves come last."""
    boxes = np.empty((2 * leaves, 4))
    boxes[:, :2], boxes[:, 2:] = np.inf, -np.inf
    for e in range(len(edges)):
        k = leaves + e // LEAF
        for v in range(edges[e] - 1, edges[e] + 1):
            boxes[k, 0], boxes[k, 1] = min(boxes[k, 0], xy[v, 0]), min(boxes[k, 1], xy[v, 1])
            boxes[k, 2], boxes[k, 3] = max(boxes[k, 2], xy[v, 0]), max(boxes[k, 3], xy[v, 1])
    for k in range(leaves - 1, 0, -1):
        for side in range(2):
            boxes[k, side] = min(boxes[2 * k, side], boxes[2 * k + 1, side])
            boxes[k, side + 2] = max(boxes[2 * k, side + 2], boxes[2 * k + 1, side + 2])
    return boxes


@kernel
def _followers(edges: Ints, flat: FlatShapes, first: int, last: int) -> Ints:
    """The position of the next edge of the ring, for each edge."""
    behind = np.arange(1, len(edges) + 1)
    at = 0
    for r in range(first, last):
        begin = at
        while at < len(edges) and edges[at] < flat.vertices[r + 1]:
            at += 1
        if at > begin:
            behind[at - 1] = begin
    return behind


@kernel
def _overlap(boxes: Floats, a: int, b: int) -> bool:
    return bool(
        boxes[a, 0] <= boxes[b, 2]
        and boxes[b, 0] <= boxes[a, 2]
        and boxes[a, 1] <= boxes[b, 3]
        and boxes[b, 1] <= boxes[a, 3]
    )


@kernel
def _side(x0: float, y0: float, x1: float, y1: float, x: float, y: float) -> int:
    """1: left of the line, -1: right, 0: on it, or too near to decide."""
    one, two = (x1 - x0) * (y - y0), (y1 - y0) * (x - x0)
    turn = one - two
    if not abs(turn) > 4 * CERTAIN * (abs(one) + abs(two)):  # nor after an overflow
        return 0
    return 1 if turn > 0 else -1


@kernel
def _meet(edges: Ints, behind: Ints, e: int, f: int, xy: Floats) -> int:
    """0: two edges share no point; 1: they touch, or might; 2: they cross. Neighbours always share an end."""
    v, w = edges[e], edges[f]
    ax, ay, bx, by = xy[v - 1, 0], xy[v - 1, 1], xy[v, 0], xy[v, 1]
    cx, cy, dx, dy = xy[w - 1, 0], xy[w - 1, 1], xy[w, 0], xy[w, 1]
    if behind[e] == f and behind[f] == e:
        return 1  # a ring of two edges has no inside
    if behind[e] == f:
        return int(_side(ax, ay, bx, by, dx, dy) == 0 and (bx - ax) * (dx - bx) + (by - ay) * (dy - by) <= 0)
    if behind[f] == e:
        return int(_side(cx, cy, dx, dy, bx, by) == 0 and (dx - cx) * (bx - dx) + (dy - cy) * (by - dy) <= 0)
    if max(ax, bx) < min(cx, dx) or max(cx, dx) < min(ax, bx) or max(ay, by) < min(cy, dy) or max(cy, dy) < min(ay, by):
        return 0
    one = _side(ax, ay, bx, by, cx, cy) * _side(ax, ay, bx, by, dx, dy)
    two = _side(cx, cy, dx, dy, ax, ay) * _side(cx, cy, dx, dy, bx, by)
    if one > 0 or two > 0:
        return 0
    return 2 if one < 0 and two < 0 else 1


@kernel
def _crossing(v: int, w: int, xy: Floats) -> tuple[float, float]:
    ax, ay, cx, cy = xy[v - 1, 0], xy[v - 1, 1], xy[w - 1, 0], xy[w - 1, 1]
    ux, uy, vx, vy = xy[v, 0] - ax, xy[v, 1] - ay, xy[w, 0] - cx, xy[w, 1] - cy
    share = ((cx - ax) * vy - (cy - ay) * vx) / (ux * vy - uy * vx)
    return ax + share * ux, ay + share * uy
