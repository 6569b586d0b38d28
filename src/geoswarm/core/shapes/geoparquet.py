"""What the metadata `geo` of a GeoParquet file says about its columns, and whether they can be used.

Geometries are WKB in longitude and latitude, with edges that are straight in degrees: a file of another kind is refused
as a whole, by name. The geometries themselves are read in `parse.py`, row by row.
"""

import json
from typing import Any, NamedTuple

import pyarrow as pa

from geoswarm.core.shapes.parse import CRS84
from geoswarm.errors import SchemaError


class GeoColumns(NamedTuple):
    geometry: str
    """The primary column."""
    covering: tuple[str, ...]
    """Columns with the rectangles round the geometries, which only help to read less of a file."""


def geo_columns(file: str, schema: pa.Schema) -> GeoColumns | None:
    """None for a Parquet file without such metadata. `file` is named in errors."""
    told = (schema.metadata or {}).get(b"geo")
    if told is None:
        return None
    try:
        geo = json.loads(told)
        name = str(geo.get("primary_column", "geometry"))
        described = geo.get("columns", {}).get(name, {})
        encoding, edges = described.get("encoding", "WKB"), described.get("edges", "planar")
        covering = described.get("covering", {}).get("bbox", {})
        rectangles = tuple(dict.fromkeys(str(place[0]) for place in covering.values()))
        foreign = _foreign_crs(described.get("crs"))
    except (ValueError, AttributeError, LookupError, TypeError) as error:
        raise SchemaError(f"metadata `geo` of {file} cannot be read: {error}; write the file anew") from error
    if name not in schema.names:
        raise SchemaError(f"{file} has no column {name}: name the column of its WKB `geometry`")
    if encoding != "WKB":
        raise SchemaError(f"geometries in {file} are encoded as {encoding}: write them as WKB")
    if edges != "planar":
        raise SchemaError(f"edges in {file} are {edges}: regions here have edges that are straight in degrees")
    if foreign is not None:
        raise SchemaError(f"{file} is in coordinate system {foreign}: convert it to longitude and latitude (OGC:CRS84)")
    return GeoColumns(name, tuple(column for column in rectangles if column in schema.names))


def _foreign_crs(crs: Any) -> str | None:
    """The name of a PROJJSON coordinate system that is not WGS 84 degrees; None if it is, or is not given."""
    if crs is None:
        return None
    code = crs.get("id") or {}
    name = f"{code.get('authority')}:{code.get('code')}" if code else str(crs.get("name", "without a name"))
    return None if CRS84.search(name) or name in ("WGS 84", "WGS 84 (CRS84)") else name
