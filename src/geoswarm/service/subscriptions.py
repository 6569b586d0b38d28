"""Export the subscriptions of a checkpoint, all attributes of them, as a file that `Engine.load` takes back.

    .parquet   the columns of operations but for `op`
    .geojson   a feature each: its id, its region as a geometry, all other attributes as properties

GeoJSON has neither circles nor rectangles. A circle is a point with the property `radius_m`; a rectangle is a polygon
with its sides in the property `rectangle`, since a polygon's edge of more than 180 degrees would go the other way
round. `store/region_files.py` reads both.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from geoswarm.core.shapes.circle import PATTERN
from geoswarm.core.subscriptions.region import SIDES
from geoswarm.errors import SettingsError
from geoswarm.run.collection import Subscriptions
from geoswarm.service.past import as_json
from geoswarm.store.local_files import sync_to_disk
from geoswarm.store.region_files import RADIUS, RECTANGLE

EXPORT_KINDS = (".parquet", ".geojson")
CIRCLE = re.compile(PATTERN)


def feature_of(row: dict[str, Any]) -> dict[str, Any]:
    """A subscription as a feature; what is null is left out."""
    row = dict(row)
    sub_id, geometry, sides = row.pop("sub_id"), row.pop("geometry"), [row.pop(side) for side in SIDES]
    properties = {name: as_json(value) for name, value in row.items() if value is not None}
    circle = None if geometry is None else CIRCLE.match(geometry.decode(errors="replace"))
    if geometry is None:
        place, properties[RECTANGLE] = shapely.geometry.mapping(shapely.box(*sides)), sides
    elif circle is not None:
        place = {"type": "Point", "coordinates": [float(circle["lon"]), float(circle["lat"])]}
        properties[RADIUS] = float(circle["metres"])
    else:
        place = shapely.geometry.mapping(shapely.from_wkb(geometry))
    return {"type": "Feature", "id": sub_id, "geometry": place, "properties": properties}


def export(subscriptions: Subscriptions, path: Path) -> int:
    """Write all live subscriptions as of one version, a piece at a time, and put the file in place at the end. Returns
    how many there are."""
    if path.suffix not in EXPORT_KINDS:
        raise SettingsError(f"--out {path} is neither Parquet nor GeoJSON: name it with {' or '.join(EXPORT_KINDS)}")
    if not path.absolute().parent.is_dir():
        raise SettingsError(f"there is no folder {path.absolute().parent}: make it first")
    incomplete = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write = _write_parquet if path.suffix == ".parquet" else _write_geojson
        count = write(subscriptions.pieces(), subscriptions.schema, incomplete)
        sync_to_disk(incomplete)
        incomplete.replace(path)
    finally:
        incomplete.unlink(missing_ok=True)
    sync_to_disk(path.absolute().parent)
    return count


def _write_parquet(pieces: Iterator[pa.Table], columns: pa.Schema, path: Path) -> int:
    count = 0
    with pq.ParquetWriter(path, columns) as writer:
        for piece in pieces:
            writer.write_table(piece)
            count += len(piece)
    return count


def _write_geojson(pieces: Iterator[pa.Table], columns: pa.Schema, path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"type": "FeatureCollection", "features": [')
        for piece in pieces:
            for row in piece.to_pylist():
                file.write(("\n" if count == 0 else ",\n") + json.dumps(feature_of(row), ensure_ascii=False))
                count += 1
        file.write("\n]}\n")
    return count
