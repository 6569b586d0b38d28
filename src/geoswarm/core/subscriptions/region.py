"""The region of a subscription, as an attribute: four sides or a geometry, and the predicate between it and an event.

`core/shapes/parse.py` decides which geometries are accepted; `core/shapes/points.py` defines the predicates. Every
region has a rectangle, by which it is placed and found; one that is not equal to its rectangle also has a shape.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, Ordinals
from geoswarm.core.arrays.merged_rows import MergedRows
from geoswarm.core.shapes.circle import bounding_rectangles
from geoswarm.core.shapes.parse import parse_shapes
from geoswarm.core.shapes.shapes import Shapes, concatenate_shapes, no_shapes, of_polygons
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attribute_kind import Arrays, Attribute, Column, Inspection, Placement
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.model import PREDICATES

SIDES = ("xmin", "ymin", "xmax", "ymax")
SHAPE_ARRAYS, SHAPED, PREDICATE_CODES = "shape_", "shaped", "predicates"
"""Array names in a segment: the prefix of those of shapes, that of their subscriptions, and of their predicates."""
_PREDICATE_PATTERN = rf"^\s*(?P<word>{'|'.join(PREDICATES)})\s*$"
_RECTANGLE = "subscription {sub_id} is [{xmin}, {ymin}, {xmax}, {ymax}]"


class RegionValues(NamedTuple):
    rects: Floats
    """(n, 4): the sides."""
    shapes: Shapes | None
    """None: every region is its rectangle."""
    predicates: Bytes | None
    """Codes of `model.PREDICATES`; None: all intersect. A region with another predicate has a shape."""

    def vertex_counts(self) -> Ints:
        """0: the region is its rectangle."""
        return np.zeros(len(self.rects), np.int64) if self.shapes is None else self.shapes.vertex_counts()


class StoredRegions(NamedTuple):
    rects: Floats
    shapes: Shapes | None
    """The shapes of those that have one; None: every region is its rectangle."""
    shaped: Ordinals
    """The ordinal of the subscription of each shape; ascending."""
    predicates: Bytes
    """The predicate of each shape; empty: all of them intersect."""

    def vertex_counts(self, ordinals: Ints) -> Ints:
        """0: the region is its rectangle."""
        counts = np.zeros(len(ordinals), np.int64)
        if self.shapes is not None:
            first = self.shapes.first_vertices()
            at = np.minimum(np.searchsorted(self.shaped, ordinals), len(self.shaped) - 1)
            known = self.shaped[at] == ordinals
            counts[known] = first[at[known] + 1] - first[at[known]]
        return counts


class RegionAttribute(Attribute[RegionValues, StoredRegions]):
    name = "region"
    columns = (
        Column("xmin", pa.float64(), "the left side; without all sides and with keywords: the whole world"),
        Column("ymin", pa.float64(), "the lower side"),
        Column("xmax", pa.float64(), "the right side"),
        Column("ymax", pa.float64(), "the upper side"),
        Column("geometry", pa.binary(), "WKB, WKT, GeoJSON or CIRCLE(lon lat, metres), instead of sides"),
        Column("predicate", pa.string(), f"{', '.join(PREDICATES[:-1])} or {PREDICATES[-1]}; null: {PREDICATES[0]}"),
    )
    reasons: ClassVar[Mapping[str, str]] = {
        "empty": "a region is empty",
        "too-large": "a region has more vertices than may be kept",
        "coordinate-system": "a region is not in longitude and latitude",
        "invalid": "a region crosses itself in a way that cannot be mended",
        "predicate": f"the predicate is none of {', '.join(PREDICATES)}",
        "inverted": "a rectangle's minimum exceeds its maximum",
        "no-area": "a rectangle has no area",
    }

    def parse(self, inspection: Inspection) -> RegionValues:
        grid, nulls = inspection.grid, [inspection.is_null(side) for side in SIDES]
        sides, has_geometry = [inspection.floats(side) for side in SIDES], ~inspection.is_null("geometry")
        anywhere = ~inspection.is_null("keywords") & ~has_geometry & np.logical_and.reduce(nulls)
        if anywhere.any():  # keywords without a place
            sides = [np.where(anywhere, getattr(grid, side), values) for side, values in zip(SIDES, sides, strict=True)]
            nulls = [missing & ~anywhere for missing in nulls]
        shapes = _parse_geometry(inspection, has_geometry)
        if shapes is not None:
            has_shape = np.diff(shapes.parts) > 0
            boxes = bounding_rectangles(shapes, grid).T
            sides = [np.where(has_shape, box, values) for box, values in zip(boxes, sides, strict=True)]
            nulls = [missing & ~has_shape for missing in nulls]
        predicates = _parse_predicate(inspection)
        for side, missing in zip(SIDES, nulls, strict=True):
            detail = f"subscription {{sub_id}} has no {side}: send all four sides"
            inspection.refusals.turn_away(inspection.puts & missing, "null", detail)
        _check_rectangles(inspection, *sides)
        rects = np.stack(sides, axis=1)
        if not predicates.any():
            return RegionValues(rects, shapes, None)
        # The loops over rectangles have no predicates, so a rectangle with another predicate becomes a shape.
        boxed = inspection.puts & (predicates > 0) & ~has_geometry & np.isfinite(rects).all(axis=1)
        if boxed.any():
            shapes = _with_boxes(shapes, rects, np.flatnonzero(boxed))
        return RegionValues(rects, shapes, predicates)

    def take(self, values: RegionValues, rows: Ints) -> RegionValues:
        shapes = None if values.shapes is None else values.shapes.take(rows)
        predicates = None if values.predicates is None else values.predicates[rows]
        return RegionValues(values.rects[rows], shapes, predicates)

    def concatenate(self, parts: Sequence[RegionValues]) -> RegionValues:
        rects, shapes, predicates = np.concatenate([part.rects for part in parts]), None, None
        if any(part.shapes is not None for part in parts):
            shapes = concatenate_shapes([no_shapes(len(p.rects)) if p.shapes is None else p.shapes for p in parts])
        if any(part.predicates is not None for part in parts):
            codes = [np.zeros(len(p.rects), np.uint8) if p.predicates is None else p.predicates for p in parts]
            predicates = np.concatenate(codes)
        return RegionValues(rects, shapes, predicates)

    def write(self, values: RegionValues, placement: Placement) -> Arrays:
        arrays: Arrays = {"rects": values.rects}
        if values.shapes is not None and len(values.shapes.xy):
            shaped = np.flatnonzero(np.diff(values.shapes.parts) > 0)
            arrays |= {f"{SHAPE_ARRAYS}{part}": array for part, array in values.shapes.take(shaped).to_arrays().items()}
            arrays[SHAPED] = shaped.astype(np.uint32)
            if values.predicates is not None and values.predicates.any():
                arrays[PREDICATE_CODES] = values.predicates[shaped]
        return arrays

    def merge(self, parts: Sequence[StoredRegions], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        if any(part.shapes is not None for part in parts):
            return super().merge(parts, rows, counts)
        return [("rects", rows.gather([part.rects for part in parts]))]

    def open(self, records: Arrays) -> StoredRegions:
        if SHAPED not in records:
            return StoredRegions(records["rects"], None, np.empty(0, np.uint32), np.empty(0, np.uint8))
        parts = {
            name.removeprefix(SHAPE_ARRAYS): array for name, array in records.items() if name.startswith(SHAPE_ARRAYS)
        }
        predicates = records.get(PREDICATE_CODES, np.empty(0, np.uint8))
        return StoredRegions(records["rects"], Shapes.from_arrays(parts), records[SHAPED], predicates)

    def read(self, stored: StoredRegions, ordinals: Ints) -> RegionValues:
        rects = stored.rects[ordinals]
        if stored.shapes is None:
            return RegionValues(rects, None, None)
        place = np.minimum(np.searchsorted(stored.shaped, ordinals), len(stored.shaped) - 1)
        has_shape = stored.shaped[place] == ordinals
        own = stored.shapes.take(place[has_shape])
        number = np.full(len(ordinals), len(own))  # the empty shape after all others
        number[has_shape] = np.arange(len(own))
        shapes = concatenate_shapes([own, no_shapes(1)]).take(number)
        if not len(stored.predicates):
            return RegionValues(rects, shapes, None)
        return RegionValues(rects, shapes, np.where(has_shape, stored.predicates[place], np.uint8(0)))

    def show(self, values: RegionValues) -> dict[str, pa.Array]:
        count = len(values.rects)
        codes = np.zeros(count, np.uint8) if values.predicates is None else values.predicates
        sides = {side: pa.array(column) for side, column in zip(SIDES, values.rects.T, strict=True)}
        geometry = pa.nulls(count, pa.binary()) if values.shapes is None else _geometries(values.shapes)
        return sides | {"geometry": geometry, "predicate": pa.array(PREDICATES).take(pa.array(codes))}


def clip_advice(grid: Grid) -> str:
    """What to do about a place outside the world."""
    remedy = f"clip it to [{grid.xmin}, {grid.ymin}, {grid.xmax}, {grid.ymax}]"
    degrees = max(abs(grid.xmin), abs(grid.xmax)) <= 360
    return f"{remedy}, or convert metres to degrees" if degrees else remedy


def _parse_geometry(inspection: Inspection, has_geometry: Bools) -> Shapes | None:
    given = inspection.puts & has_geometry
    if not given.any():
        return None
    column = inspection.rows.column("geometry")
    if not given.all():  # or all bytes would be copied for nothing, and those of a file may be gigabytes
        column = pc.if_else(pa.array(given), column, pa.scalar(None, pa.binary()))
    shapes, refused, *_ = parse_shapes(column, inspection.grid)
    for row, reason, detail in refused:
        detail = detail.replace("{", "{{").replace("}", "}}")
        inspection.refusals.turn_away_one(row, reason, f"subscription {{sub_id}}: {detail}")
    return shapes


def _parse_predicate(inspection: Inspection) -> Bytes:
    column = inspection.rows.column("predicate")
    if column.null_count == len(column):
        return np.zeros(len(column), np.uint8)
    words = pc.extract_regex(column.cast(pa.binary()), _PREDICATE_PATTERN)
    codes = pc.index_in(words.field("word"), pa.array(PREDICATES).cast(pa.binary()))
    wrong = ~inspection.is_null("predicate") & ~words.is_valid().to_numpy(zero_copy_only=False)
    detail = f"subscription {{sub_id}} has predicate {{predicate!r}}: send one of {', '.join(PREDICATES)}"
    inspection.refusals.turn_away(inspection.puts & wrong, "predicate", detail)
    return np.asarray(codes.fill_null(0).to_numpy(zero_copy_only=False), np.uint8)


def _check_rectangles(inspection: Inspection, xmin: Floats, ymin: Floats, xmax: Floats, ymax: Floats) -> None:
    grid, puts, turn_away = inspection.grid, inspection.puts, inspection.refusals.turn_away
    finite = np.isfinite(xmin) & np.isfinite(ymin) & np.isfinite(xmax) & np.isfinite(ymax)
    turn_away(puts & ~finite, "not-finite", _RECTANGLE + ": send finite numbers")
    for axis, low, high in (("x", xmin, xmax), ("y", ymin, ymax)):
        detail = f"rectangle of subscription {{sub_id}} has {axis}min {{{axis}min}} > {axis}max {{{axis}max}}: "
        turn_away(puts & (low > high), "inverted", detail + "swap them")
    turn_away(puts & ((xmin == xmax) | (ymin == ymax)), "no-area", _RECTANGLE + ": widen it")
    outside = (xmin < grid.xmin) | (ymin < grid.ymin) | (xmax > grid.xmax) | (ymax > grid.ymax)
    turn_away(puts & outside, "out-of-bounds", _RECTANGLE + ", outside the world: " + clip_advice(grid))


def _with_boxes(shapes: Shapes | None, rects: Floats, rows: Ints) -> Shapes:
    """The shapes, with the rectangles of some rows added as shapes."""
    boxes = of_polygons(shapely.box(*rects[rows].T))
    source = np.arange(len(rects))
    source[rows] = len(rects) + np.arange(len(rows))
    return concatenate_shapes([shapes or no_shapes(len(rects)), boxes]).take(source)


def _geometries(shapes: Shapes) -> pa.Array:
    """Polygons as WKB, circles as text; null: the region is its rectangle."""
    texts = shapely.to_wkb(shapes.polygons())
    first = shapes.first_vertices()
    for row in np.flatnonzero(shapes.are_circles()).tolist():
        lon, lat = shapes.xy[first[row]].tolist()
        texts[row] = f"CIRCLE({lon!r} {lat!r}, {float(shapes.metres[row])!r})".encode()
    return pa.array(texts, pa.binary(), mask=np.diff(shapes.parts) == 0)
