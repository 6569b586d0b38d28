"""Which subscriptions have a region that meets another one: candidates by their rectangles, then the exact test.

Rectangles of a segment that has nothing else are found by its index of cells; in other segments, which are smaller
(`store/merging/choose.py`), all rectangles are compared. Events find subscriptions elsewhere (`flow/match/`).
"""

from typing import NamedTuple

import numpy as np
import shapely

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.index.kernels import Records
from geoswarm.core.shapes.points import Predicate
from geoswarm.core.shapes.shapes import Shapes, of_polygons
from geoswarm.core.subscriptions.region import RegionValues, StoredRegions
from geoswarm.flow.match.area_kernels import find_boxes
from geoswarm.flow.match.areas import GEOS_BOXES_MAX, Areas, rectangles_meet, shapes_meet
from geoswarm.store.segments.segment import Segment


class AskedRegion(NamedTuple):
    """A region, and how those of subscriptions must lie to it: each of them ... this one."""

    box: Floats
    """(4,): the rectangle round it."""
    shape: Shapes
    """One shape."""
    is_rectangle: bool
    predicate: Predicate

    @classmethod
    def of(cls, region: RegionValues, predicate: Predicate) -> "AskedRegion":
        """Of values with one row."""
        boxes = of_polygons(shapely.box(*region.rects.T))
        shape, is_rectangle = (boxes, True) if region.shapes is None else (region.shapes, False)
        return cls(region.rects[0], shape, is_rectangle, predicate)

    @property
    def areas(self) -> Areas:
        return Areas(np.zeros(1, np.int64), self.shape, self.box[None])


def candidates(held: Segment, asked: AskedRegion) -> Ints:
    """The ordinals of those whose rectangles meet the one round the region, in no order; some may be cancelled."""
    if held.is_plain and held.index is not None:
        records = Records.of(held.rects, held.ids)
        return find_boxes(asked.box[None], held.index, records, 0, np.zeros(1, np.int64), len(held.ids))[0]
    return np.flatnonzero(_are_near(held.rects, asked.box))


def are_met(regions: StoredRegions, ordinals: Ints, asked: AskedRegion) -> Bools:
    """Whether each of some subscriptions meets the region exactly."""
    rects, answers = regions.rects[ordinals], np.zeros(len(ordinals), np.bool_)
    near = _are_near(rects, asked.box)
    place, shaped = np.zeros(len(ordinals), np.int64), np.zeros(len(ordinals), np.bool_)
    if regions.shapes is not None:
        place = np.minimum(np.searchsorted(regions.shaped, ordinals), len(regions.shaped) - 1)
        shaped = regions.shaped[place] == ordinals
    if asked.is_rectangle and asked.predicate in ("intersects", "within"):
        answers = _lie_in(rects, asked.box)  # and so does what is within them
    rest = np.flatnonzero(near & shaped & ~answers)
    if regions.shapes is not None and len(rest):
        answers[rest] = _compare(regions.shapes.take(place[rest]), asked)
    plain = np.flatnonzero(near & ~shaped & ~answers)
    if asked.is_rectangle:
        answers[plain] = asked.predicate == "intersects"
        if asked.predicate in ("contains", "covers"):
            answers[plain] = _lie_around(rects[plain], asked.box)
    elif asked.predicate == "intersects":
        answers[plain] = rectangles_meet(rects[plain], asked.areas, np.zeros(len(plain), np.int64))
    else:
        for begin in range(0, len(plain), GEOS_BOXES_MAX):
            some = plain[begin : begin + GEOS_BOXES_MAX]
            answers[some] = _compare(of_polygons(shapely.box(*rects[some].T)), asked)
    return answers


def _are_near(rects: Floats, box: Floats) -> Bools:
    x_near = (rects[:, 0] <= box[2]) & (rects[:, 2] >= box[0])
    return x_near & (rects[:, 1] <= box[3]) & (rects[:, 3] >= box[1])  # type: ignore[no-any-return]


def _lie_in(rects: Floats, box: Floats) -> Bools:
    x_inside = (rects[:, 0] >= box[0]) & (rects[:, 2] <= box[2])
    return x_inside & (rects[:, 1] >= box[1]) & (rects[:, 3] <= box[3])  # type: ignore[no-any-return]


def _lie_around(rects: Floats, box: Floats) -> Bools:
    x_around = (rects[:, 0] <= box[0]) & (rects[:, 2] >= box[2])
    return x_around & (rects[:, 1] <= box[1]) & (rects[:, 3] >= box[3])  # type: ignore[no-any-return]


def _compare(shapes: Shapes, asked: AskedRegion) -> Bools:
    numbers = np.arange(len(shapes))
    return shapes_meet(shapes, asked.areas, np.zeros(len(numbers), np.int64), numbers, asked.predicate)
