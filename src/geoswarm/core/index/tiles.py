"""Tiles that hold a like number of points: strips along x, each of which is cut along y.

    ┌──┬─────┬──┐      dense places have small tiles, and no two tiles overlap; ranges of the Z-order curve, which
    │  ├─────┤  │      `cells.py` has, hold as many points, but one that ends within a city also has the country up
    ├──┤     ├──┤      to the next, so their boxes do overlap
    │  ├─────┤  │
    └──┴─────┴──┘

Leutenegger, Lopez, Edgington: STR, a simple and efficient algorithm for R-tree packing (1997).
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, ZCodes, kernel

SAMPLE_POINTS = 65_536
"""Points by which tiles are drawn: their numbers of points are then within a few percent of each other."""


class Tiles(NamedTuple):
    strip_edges: Floats
    edges: Floats
    """Of each strip, where it is cut."""

    def of(self, x: Floats, y: Floats) -> ZCodes:
        """The tile of each point, below the square of `side`. Points of one place are in one tile."""
        tiles = np.empty(len(x), np.uint32)
        _find(np.ascontiguousarray(x), np.ascontiguousarray(y), self.strip_edges, self.edges, tiles)
        return tiles


def draw_tiles(x: Floats, y: Floats, side: int) -> Tiles:
    """`side` strips of `side` tiles each, by a sample of the points."""
    strip_edges = _edges(x, side)
    strips = np.searchsorted(strip_edges, x, side="right")
    return Tiles(strip_edges, np.stack([_edges(y[strips == strip], side) for strip in range(side)]))


def _edges(sample: Floats, many: int) -> Floats:
    """Where a sample is cut into so many equal shares."""
    if not len(sample):
        return np.full(many - 1, np.inf)
    edges: Floats = np.quantile(sample, np.arange(1, many) / many)
    return edges


@kernel
def _find(x: Floats, y: Floats, strip_edges: Floats, edges: Floats, tiles: ZCodes) -> None:
    side = len(edges)
    for i in range(len(x)):
        strip = place = 0
        for edge in strip_edges:
            strip += x[i] >= edge
        for edge in edges[strip]:
            place += y[i] >= edge
        tiles[i] = strip * side + place
