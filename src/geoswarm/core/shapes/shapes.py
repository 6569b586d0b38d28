"""Many shapes as flat arrays: stored in files, read by kernels, and converted for GEOS.

`parse.py` reads shapes, `points.py` finds what lies inside them. A row is one of three:

    nothing    no parts: the region is a rectangle, which is kept elsewhere
    polygon    parts of rings of vertices, each ring closed; valid, so that crossings of all rings together decide
    circle     one part of one ring of one vertex, the centre in degrees; the radius stands in `metres`

    parts     of row i        parts[i]:parts[i + 1]          these three are the offsets of shapely's ragged arrays
    rings     of part p       rings[p]:rings[p + 1]
    vertices  of ring r       vertices[r]:vertices[r + 1]    into xy
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import shapely

from geoswarm.core.arrays.jit import Array, Floats, Ints, kernel, read_only
from geoswarm.core.arrays.threads import run_in_pieces
from geoswarm.core.shapes.prepared import PreparedPolygons
from geoswarm.core.shapes.same import SameShapes

Geometries = npt.NDArray[np.object_]


@dataclass(frozen=True)
class Shapes:
    parts: Ints
    rings: Ints
    vertices: Ints
    xy: Floats  # (vertices, 2)
    metres: Floats  # radius of row i if it is a circle, else 0; empty: none is a circle

    def __len__(self) -> int:
        return len(self.parts) - 1

    def take(self, rows: Ints) -> "Shapes":
        """These rows, in this order, repeats allowed."""
        rows = np.asarray(rows, np.int64)
        if len(rows) == len(self) and (rows == np.arange(len(rows))).all():
            return self  # most callers leave out nothing, and a large file has gigabytes of vertices
        parts, chosen_parts = _spans(self.parts, rows)
        rings, chosen_rings = _spans(self.rings, chosen_parts)
        vertices = _offsets(self.vertices[chosen_rings + 1] - self.vertices[chosen_rings])
        xy = np.empty((vertices[-1], 2))
        held = read_only(self.xy), read_only(self.vertices), read_only(chosen_rings), read_only(vertices)
        run_in_pieces(lambda first, end: _gather_vertices(*held, first, end, xy), len(chosen_rings), len(xy))
        metres = self.metres[rows] if len(self.metres) else self.metres
        return Shapes(parts, rings, vertices, xy, metres if metres.any() else metres[:0])

    def vertex_counts(self) -> Ints:
        return np.diff(self.first_vertices())

    def first_vertices(self) -> Ints:
        """The first vertex of each row, and the end of the last: all vertices of a row lie together."""
        return self.vertices[self.rings[self.parts]]

    def are_circles(self) -> npt.NDArray[np.bool_]:
        return self.metres > 0 if len(self.metres) else np.zeros(len(self), np.bool_)

    def polygons(self) -> Geometries:
        """The shapes as multi-polygons of shapely. Circles and rows without a shape are empty."""
        circles = self.are_circles()
        if circles.any():
            return _without(self, circles).polygons()
        offsets = (self.vertices, self.rings, self.parts)
        made: Geometries = shapely.from_ragged_array(shapely.GeometryType.MULTIPOLYGON, self.xy, offsets)
        return made

    def prepared_polygons(self, rows: Ints) -> Geometries:
        """Those of some different rows, prepared; they are kept for the next call."""
        return self._prepared.take(rows, lambda missing: self.take(missing).polygons())

    def firsts_alike(self, rows: Ints) -> Ints:
        """For each of these rows one that has the same shape, the same one for all that have it."""
        return self._same.firsts(rows)

    @cached_property
    def _same(self) -> SameShapes:
        offsets = read_only(self.parts), read_only(self.rings), read_only(self.vertices)
        return SameShapes(*offsets, read_only(self.xy), read_only(self.metres))

    @cached_property
    def _prepared(self) -> PreparedPolygons:
        return PreparedPolygons(self.vertex_counts())

    def bounds(self) -> Floats:
        """(n, 4): the bounds of polygons; NaN where there is none. For circles see `circle.boxes`."""
        return _bounds(self.first_vertices(), read_only(self.xy), self.are_circles())

    def to_arrays(self) -> dict[str, Array]:
        """The arrays by name, for a memory-mapped file or another process."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    __getstate__ = to_arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "Shapes":
        return cls(*(arrays[field.name] for field in fields(cls)))


def no_shapes(rows: int) -> Shapes:
    """Rows without a shape, for regions that are rectangles."""
    zero = np.zeros(1, np.int64)
    return Shapes(np.zeros(rows + 1, np.int64), zero, zero, np.empty((0, 2)), np.empty(0))


def of_polygons(polygons: Geometries) -> Shapes:
    """The shapes of valid polygons and multi-polygons; None is no shape."""
    present = ~shapely.is_missing(polygons)
    if not present.any():
        return no_shapes(len(polygons))
    _, xy, offsets = shapely.to_ragged_array(polygons[present], include_z=False)
    vertices, rings = (np.asarray(part, np.int64) for part in offsets[:2])
    per_row = np.diff(np.asarray(offsets[2], np.int64)) if len(offsets) == 3 else np.ones(present.sum(), np.int64)
    counts = np.zeros(len(polygons), np.int64)
    counts[present] = per_row
    return Shapes(_offsets(counts), rings, vertices, np.ascontiguousarray(xy, np.float64), np.empty(0))


def of_circles(circles: Floats) -> Shapes:
    """`circles` is (n, 3): lon, lat, metres."""
    steps = np.arange(len(circles) + 1, dtype=np.int64)
    xy = np.ascontiguousarray(circles[:, :2], np.float64)
    return Shapes(steps, steps, steps, xy, np.ascontiguousarray(circles[:, 2], np.float64))


def concatenate_shapes(parts: Sequence[Shapes]) -> Shapes:
    """The rows of all parts, in order."""
    circles = any(len(part.metres) for part in parts)
    metres = [part.metres if len(part.metres) else np.zeros(len(part)) for part in parts] if circles else []
    return Shapes(
        _chain_offsets([part.parts for part in parts]),
        _chain_offsets([part.rings for part in parts]),
        _chain_offsets([part.vertices for part in parts]),
        np.concatenate([np.empty((0, 2)), *(part.xy for part in parts)]),
        np.concatenate([np.empty(0), *metres]),
    )


def merge_by_mask(chosen: npt.NDArray[np.bool_], these: Shapes, others: Shapes) -> Shapes:
    """One row for each of `chosen`: the next of `these` where it is true, else the next of `others`."""
    if chosen.all():
        return these
    return concatenate_shapes([these, others]).take(
        np.where(chosen, np.cumsum(chosen) - 1, len(these) + np.cumsum(~chosen) - 1)
    )


def replace_rows(shapes: Shapes, changed: Mapping[int, shapely.Geometry]) -> Shapes:
    """The same shapes, with other polygons in some rows."""
    if not changed:
        return shapes
    again = np.empty(len(changed), object)
    again[:] = list(changed.values())
    source = np.arange(len(shapes))
    source[list(changed)] = len(shapes) + np.arange(len(changed))
    return concatenate_shapes([shapes, of_polygons(again)]).take(source)


def _without(shapes: Shapes, chosen: npt.NDArray[np.bool_]) -> Shapes:
    """The same shapes, with no shape in the chosen rows."""
    kept = np.flatnonzero(~chosen)
    rest = shapes.take(kept)
    counts = np.zeros(len(shapes), np.int64)
    counts[kept] = np.diff(rest.parts)
    return replace(rest, parts=_offsets(counts), metres=np.empty(0))


def _offsets(lengths: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), lengths]).cumsum()


def _chain_offsets(offsets: Sequence[Ints]) -> Ints:
    return _offsets(np.concatenate([np.empty(0, np.int64), *(np.diff(part) for part in offsets)]))


def _spans(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """The spans of some rows, concatenated: their offsets, and the places that they cover."""
    lengths = offsets[rows + 1] - offsets[rows]
    ends = _offsets(lengths)
    return ends, np.arange(ends[-1]) + np.repeat(offsets[rows] - ends[:-1], lengths)


@kernel
def _bounds(firsts: Ints, xy: Floats, circles: npt.NDArray[np.bool_]) -> Floats:
    boxes = np.full((len(firsts) - 1, 4), np.nan)
    for i in range(len(boxes)):
        if firsts[i] == firsts[i + 1] or circles[i]:
            continue
        x0, y0 = xy[firsts[i]]
        x1, y1 = x0, y0
        for v in range(firsts[i], firsts[i + 1]):
            x0, x1 = min(x0, xy[v, 0]), max(x1, xy[v, 0])
            y0, y1 = min(y0, xy[v, 1]), max(y1, xy[v, 1])
        boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3] = x0, y0, x1, y1
    return boxes


@kernel
def _gather_vertices(
    xy: Floats, vertices: Ints, rings: Ints, offsets: Ints, first: int, end: int, gathered: Floats
) -> None:
    """Write the vertices of rings[first:end] to where they belong."""
    for i in range(first, end):
        n = offsets[i]
        for v in range(vertices[rings[i]], vertices[rings[i] + 1]):
            gathered[n, 0], gathered[n, 1] = xy[v, 0], xy[v, 1]
            n += 1
