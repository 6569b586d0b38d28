"""Validates events that are areas: their `geometry` is read, and gives the place by which they are routed.

`core/shapes/parse.py` decides which geometries are accepted, as for subscriptions. A point as geometry is a point;
lines are refused. The matcher reads the geometry once more (`flow/match/areas.py`): the event travels as it came, with
a mark if it need not be checked again (`flow/sound.py`).
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from geoswarm.core.arrays.jit import Bools, Floats
from geoswarm.core.shapes.circle import bounding_rectangles
from geoswarm.core.shapes.parse import parse_shapes
from geoswarm.core.shapes.wkb import decode_points
from geoswarm.core.space.grid import Grid
from geoswarm.flow.dead_letters import Triage
from geoswarm.flow.sound import SOUND
from geoswarm.model import GEOMETRY

_SRID = re.compile(rb"^\s*SRID\s*=\s*\d{1,9}\s*;", re.IGNORECASE)


def has_areas(batch: pa.RecordBatch) -> bool:
    """Whether any event has a geometry; most streams have none, and this check is all that they pay."""
    return GEOMETRY.name in batch.schema.names and batch.column(GEOMETRY.name).null_count < len(batch)


def validate_areas(batch: pa.RecordBatch, grid: Grid, triage: Triage) -> pa.RecordBatch:
    """Refuse geometries that cannot be read; fill in `x` and `y`, of a point always, of an area where they are null;
    and mark sound geometries."""
    batch, column = _place_points(batch)
    shapes, refused, _, sound = parse_shapes(column, grid)
    boxes = bounding_rectangles(shapes, grid)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    are_points = np.zeros(len(batch), np.bool_)
    for row, reason, detail in refused:
        point = _point_of(column[row].as_buffer().to_pybytes()) if reason == "no-area" else None
        if point is not None:
            centres[row], are_points[row] = (point.x, point.y), True
        else:
            said = detail.replace("{", "{{").replace("}", "}}")
            triage.turn_away_one(row, reason, f"event {{event_id}}: {said}")
    return _fill_places(batch, centres, are_points).append_column(SOUND, pa.array(sound))


def _place_points(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """The batch with `x` and `y` from geometries that are points in plain WKB, and all other geometries."""
    column = batch.column(GEOMETRY.name)
    rows, xy = decode_points(column)
    if not len(rows):
        return batch, column
    places, are_points = np.full((len(batch), 2), np.nan), np.zeros(len(batch), np.bool_)
    places[rows], are_points[rows] = xy, True
    others = pc.if_else(pa.array(are_points), pa.scalar(None, column.type), column)
    return _fill_places(batch, places, are_points), others


def _fill_places(batch: pa.RecordBatch, centres: Floats, are_points: Bools) -> pa.RecordBatch:
    for axis, middle in zip(("x", "y"), centres.T, strict=True):
        column, place = batch.column(axis), batch.schema.get_field_index(axis)
        if column.null_count or are_points.any():
            known = pa.array(middle, column.type, mask=np.isnan(middle))
            filled = pc.if_else(pa.array(are_points), known, pc.coalesce(column, known))
            batch = batch.set_column(place, batch.schema.field(place), filled)
    return batch


def _point_of(raw: bytes) -> shapely.Point | None:
    """A geometry without an area as a point; None: it is not a point. Text need not be UTF-8."""
    with np.errstate(all="ignore"):
        if raw[0] <= 1:
            read = shapely.from_wkb(raw, on_invalid="ignore")
        elif raw.lstrip()[:1] == b"0":
            read = shapely.from_wkb(raw.decode("ascii", "replace").strip(), on_invalid="ignore")
        elif raw.lstrip()[:1] == b"{":
            read = shapely.from_geojson(raw.decode("utf-8", "replace"), on_invalid="ignore")
        else:
            read = shapely.from_wkt(_SRID.sub(b"", raw).decode("utf-8", "replace"), on_invalid="ignore")
    return read if isinstance(read, shapely.Point) and not read.is_empty else None
