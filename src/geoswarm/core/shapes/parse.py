"""Reads shapes from WKT, WKB, GeoJSON and circles, a column at a time; a row is read or refused.

    POLYGON((...))  MULTIPOLYGON  GEOMETRYCOLLECTION    also SRID=4326;... ; Z and M are dropped
    WKB, as bytes or hexadecimal                        ISO and extended (SRID, Z, M flags), either byte order
    {"type": "Polygon", ...}                            GeoJSON geometry or feature
    CIRCLE(13.4 52.5, 800)                              lon lat, metres: `circle.py`

A region has an area: lines and points are refused alone, and left out of collections. The result is valid, finite and
within the world (`checks.py`). Files of regions are read in `store/region_files.py`. Work is bounded: a row that is too
large or too deep is not read (`survey.py`), and no polygon is examined beyond a budget (`repair.py`).
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from geoswarm.core.arrays.buffers import rows_of
from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.shapes.checks import (
    STRANGE,
    VERTICES_MAX,
    Reading,
    Refusal,
    check_areas,
    check_circles,
    check_places,
    too_large,
)
from geoswarm.core.shapes.circle import PATTERN
from geoswarm.core.shapes.shapes import (
    Geometries,
    Shapes,
    concatenate_shapes,
    merge_by_mask,
    no_shapes,
    of_circles,
    replace_rows,
)
from geoswarm.core.shapes.survey import (
    CIRCLE,
    HEX,
    JSON,
    NESTED_MAX,
    UNKNOWN_FORM,
    UNREADABLE,
    WKB,
    WKT,
    Survey,
    survey,
)
from geoswarm.core.shapes.wkb import are_plain, decode_wkb
from geoswarm.core.space.grid import Grid
from geoswarm.errors import SchemaError

SRIDS = (0, 4326)
"""No SRID, or WGS 84 degrees."""
CRS84 = re.compile(r"(^|[:/])(OGC(:1\.3)?:{1,2}CRS84|OGC/1\.3/CRS84|CRS84|(EPSG|epsg)(:{1,2}|/0/|:[0-9.]+:)4326)$")
_EWKT = re.compile(r"^\s*SRID\s*=\s*(\d{1,9})\s*;", re.IGNORECASE)


class ParsedShapes(NamedTuple):
    shapes: Shapes
    """One per row; a null or refused row has none."""
    refused: list[Refusal]
    notes: list[tuple[int, str]]
    """Rows that were changed, mended or cut at the antimeridian, with the reason."""
    sound: Bools
    """Rows that `decode_wkb` reads as the same shape, without any check."""


def parse_shapes(column: pa.Array, grid: Grid) -> ParsedShapes:
    """`column` is binary or string, and may mix all forms."""
    binary = _as_binary(column)
    reading = Reading(len(binary))
    plain = _read(binary, np.arange(len(binary)), reading)
    shapes = check_areas(reading)
    if plain.any():
        shapes = merge_by_mask(plain, decode_wkb(binary.filter(pa.array(plain))), shapes.take(np.flatnonzero(~plain)))
    changed, notes = check_places(shapes, grid, reading)
    check_circles(reading, grid)
    refused = sorted(reading.refusals.values())
    plain[[*reading.refusals, *notes]] = False
    return ParsedShapes(_assemble(shapes, changed, reading), refused, sorted(notes.items()), plain)


def _as_binary(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.binary())
    if kind in (pa.string(), pa.large_string()):
        return column.view(pa.binary() if kind == pa.string() else pa.large_binary())
    if kind in (pa.binary(), pa.large_binary()):
        return column
    raise SchemaError(f"geometry is of type {kind}: send WKB as binary, or WKT or GeoJSON as string")


def _read(binary: pa.Array, rows: Ints, reading: Reading, *, all_by_geos: bool = False) -> Bools:
    """Read values, whose numbers in `reading` are `rows`. Returns which values are left to be read without GEOS."""
    text = binary.view(pa.string() if binary.type == pa.binary() else pa.large_string())
    found: Survey = survey(rows_of(text))
    present = binary.is_valid().to_numpy(zero_copy_only=False)
    passed = present & _passes(found, rows, present, reading)
    plain = passed & are_plain(binary) if not all_by_geos else np.zeros(len(binary), np.bool_)
    sound = passed & ~plain
    for form, read in ((WKB, _read_wkb), (WKT, _read_wkt), (JSON, _read_json), (CIRCLE, _read_circles)):
        chosen = np.flatnonzero(sound & (found.forms == form))
        if len(chosen):
            read(binary.take(pa.array(chosen)), rows[chosen], reading)
    chosen = np.flatnonzero(sound & (found.forms == HEX))
    if len(chosen):
        raw = [_decode_hex(value) for value in binary.take(pa.array(chosen)).to_pylist()]
        for row in (rows[i] for i, value in zip(chosen, raw, strict=True) if value is None):
            reading.refuse(row, "malformed", "geometry begins like hexadecimal WKB and is none: fix the producer")
        _read(pa.array(raw, pa.large_binary()), rows[chosen], reading, all_by_geos=True)
    return plain


def _decode_hex(value: bytes) -> bytes | None:
    try:
        raw = bytes.fromhex(value.decode("ascii"))
    except ValueError:
        return None
    return raw if raw[0] <= 1 else None


def _passes(found: Survey, rows: Ints, present: Bools, reading: Reading) -> Bools:
    bad = present & ((found.forms == UNKNOWN_FORM) | (found.vertices < 0) | (found.vertices > VERTICES_MAX))
    bad |= present & ~np.isin(found.srids, SRIDS)
    for i in np.flatnonzero(bad).tolist():
        if found.forms[i] == UNKNOWN_FORM:
            reading.refuse(rows[i], "malformed", "geometry is neither WKT, WKB nor GeoJSON: send one of them")
        elif found.vertices[i] == UNREADABLE:
            brackets = "closes brackets that it has not opened: fix the producer"
            reading.refuse(rows[i], "malformed", f"geometry {STRANGE if found.forms[i] == WKB else brackets}")
        elif found.vertices[i] < 0:
            reading.refuse(
                rows[i], "malformed", f"geometry is nested more than {NESTED_MAX} deep: send a multi-polygon"
            )
        elif found.vertices[i] > VERTICES_MAX:
            reading.refuse(rows[i], "too-large", too_large(int(found.vertices[i])))
        else:
            reading.refuse(rows[i], "coordinate-system", _foreign(f"SRID {found.srids[i]}"))
    good: Bools = ~bad
    return good


def _foreign(name: str) -> str:
    return f"geometry is in coordinate system {name}: convert it to longitude and latitude (EPSG:4326)"


def _read_wkb(values: pa.Array, rows: Ints, reading: Reading) -> None:
    _read_with(shapely.from_wkb, values.to_numpy(zero_copy_only=False), rows, reading)


def _texts(values: pa.Array) -> Geometries:
    texts = np.empty(len(values), object)
    texts[:] = [value.decode("utf-8", "replace") for value in values.to_pylist()]
    return texts


def _read_wkt(values: pa.Array, rows: Ints, reading: Reading) -> None:
    texts = _texts(values)
    for i, text in enumerate(texts):
        tag = _EWKT.match(text) if text.lstrip()[:1] in "sS" else None
        if tag is None:
            continue
        texts[i] = text[tag.end() :]
        if int(tag[1]) not in SRIDS:
            reading.refuse(rows[i], "coordinate-system", _foreign(f"SRID {tag[1]}"))
    _read_with(shapely.from_wkt, texts, rows, reading)


def _read_json(values: pa.Array, rows: Ints, reading: Reading) -> None:
    texts = _texts(values)
    for i, text in enumerate(texts):
        if '"crs"' in text or "\\" in text:  # a name may be escaped
            name = crs_of(_load_json(text))
            if name is not None and not CRS84.search(name):
                reading.refuse(rows[i], "coordinate-system", _foreign(name))
    _read_with(shapely.from_geojson, texts, rows, reading)


def _load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def crs_of(member: Any) -> str | None:
    """The name in a GeoJSON object's `crs`; None: it has none."""
    crs = member.get("crs") if isinstance(member, dict) else None
    if crs is None:
        return None
    properties = crs.get("properties") if isinstance(crs, dict) else None
    return str(properties["name"]) if isinstance(properties, dict) and "name" in properties else json.dumps(crs)[:200]


def _read_with(reader: Callable[..., Any], values: Geometries, rows: Ints, reading: Reading) -> None:
    with np.errstate(all="ignore"):  # GEOS leaves flags behind when it reads a NaN or a huge number
        try:
            read = reader(values, on_invalid="ignore")
        except NotImplementedError:  # there are curves among them
            read = _one_by_one(reader, values)
    for i, row in enumerate(rows.tolist()):
        if row in reading.refusals:
            continue
        if read[i] is None:
            reading.refuse(row, "malformed", f"geometry cannot be parsed: {_complaint(reader, values[i])}")
        else:
            reading.geometries[row] = read[i]


def _one_by_one(reader: Callable[..., Any], values: Geometries) -> Geometries:
    read = np.full(len(values), None, object)
    for i, value in enumerate(values):
        try:
            read[i] = reader(value, on_invalid="ignore")
        except NotImplementedError:
            continue
    return read


def _complaint(reader: Callable[..., Any], value: Any) -> str:
    try:
        reader(value)
    except NotImplementedError:
        return f"it {STRANGE}"
    except (shapely.errors.ShapelyError, ValueError, TypeError) as error:
        return str(error).partition(": ")[2][:200] or str(error)[:200]
    return "fix the producer"


def _read_circles(values: pa.Array, rows: Ints, reading: Reading) -> None:
    parts = pc.extract_regex(values, PATTERN)
    fine = parts.is_valid().to_numpy(zero_copy_only=False)
    for row in rows[~fine].tolist():
        reading.refuse(row, "malformed", "circle cannot be parsed: send CIRCLE(lon lat, metres)")
    for k, name in enumerate(("lon", "lat", "metres")):
        numbers = parts.field(name).filter(pa.array(fine)).cast(pa.string()).cast(pa.float64())
        reading.circles[rows[fine], k] = numbers.to_numpy()


def _assemble(shapes: Shapes, changed: dict[int, Any], reading: Reading) -> Shapes:
    """The polygons as read, the changed ones and the circles, each in its row."""
    circles = np.flatnonzero(np.isfinite(reading.circles[:, 0]))
    if not (changed or reading.refusals or len(circles)):
        return shapes
    source = np.arange(len(shapes))
    source[list(reading.refusals)] = len(shapes)
    source[circles] = len(shapes) + 1 + np.arange(len(circles))
    parts = [replace_rows(shapes, changed), no_shapes(1), of_circles(reading.circles[circles])]
    return concatenate_shapes(parts).take(source)
