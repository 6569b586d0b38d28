"""Which candidate points lie in their shapes: exact, borders and corners included.

Candidates come from cells (`cover.py`). Points only; events that are areas are in `areas.py`. The predicate reads
"the region ... the event", as in shapely:

    intersects    they share a point; the border counts, as with rectangles. covers is the same for a point
    contains      the border does not count
    within        the region lies in the event: never, for a point
"""

from typing import Literal, get_args

import numpy as np
import shapely

from geoswarm.core.arrays.jit import Bools, Floats, Ints, read_only
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.shapes.inside import BORDER, INSIDE_SHAPE, UNSURE, FlatShapes, places
from geoswarm.core.shapes.shapes import Shapes
from geoswarm.errors import InputError

Predicate = Literal["intersects", "contains", "covers", "within"]


def flat_of(shapes: Shapes) -> FlatShapes:
    return FlatShapes(
        shapes.rings[shapes.parts], read_only(shapes.vertices), read_only(shapes.xy), read_only(shapes.metres)
    )


def points_in(
    shapes: Shapes, x: Floats, y: Floats, points: Ints, chosen: Ints, predicate: Predicate = "intersects"
) -> Bools:
    """Whether the predicate holds, for each pair (point points[i], shape chosen[i]). Fastest if the pairs of a shape
    lie together, and in them those of a point. A row without a shape contains no point."""
    check_predicate(predicate)
    if predicate == "within" or len(points) == 0:
        return np.zeros(len(points), np.bool_)
    points, chosen = np.asarray(points, np.int64), shapes.firsts_alike(np.asarray(chosen, np.int64))
    if (chosen[1:] >= chosen[:-1]).all():
        return _by_shape(shapes, read_only(x), read_only(y), points, chosen, predicate)
    order = sort_order(chosen.astype(np.uint32), len(shapes))
    answers = np.empty(len(points), np.bool_)
    answers[order] = _by_shape(shapes, read_only(x), read_only(y), points[order], chosen[order], predicate)
    return answers


def _by_shape(shapes: Shapes, x: Floats, y: Floats, points: Ints, chosen: Ints, predicate: Predicate) -> Bools:
    """The same, where the pairs of a shape lie together; the same pair is tested once if it lies together, too."""
    differs = np.ones(len(points), np.bool_)
    differs[1:] = (points[1:] != points[:-1]) | (chosen[1:] != chosen[:-1])
    if not differs.all():
        tested = _by_shape(shapes, x, y, points[differs], chosen[differs], predicate)
        repeated: Bools = tested[np.cumsum(differs) - 1]
        return repeated
    found = places(x, y, read_only(points), read_only(chosen), shapes.are_circles(), flat_of(shapes))
    inside: Bools = found == INSIDE_SHAPE
    if predicate != "contains":
        inside |= found == BORDER
    unsure = np.flatnonzero(found == UNSURE)
    if len(unsure):
        inside[unsure] = by_geos(shapes, x[points[unsure]], y[points[unsure]], chosen[unsure], predicate)
    return inside


def by_geos(shapes: Shapes, x: Floats, y: Floats, chosen: Ints, predicate: Predicate) -> Bools:
    """The same as `points_in`, by GEOS alone and point by point; not for circles."""
    numbers, each = np.unique(chosen, return_inverse=True)
    polygons = shapes.prepared_polygons(numbers)
    ask = shapely.contains_xy if predicate == "contains" else shapely.intersects_xy
    answers: Bools = ask(polygons[each], x, y)
    return answers


def check_predicate(predicate: str) -> None:
    if predicate not in get_args(Predicate):
        raise InputError(f"predicate is {predicate!r}: use one of {', '.join(get_args(Predicate))}")
