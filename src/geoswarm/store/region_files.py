"""Files of regions as record batches: GeoParquet, Parquet with a column of WKB, and GeoJSON feature collections.

Reads and streams; whether a geometry can be used is decided where it is parsed (`core/shapes/parse.py`), row by row. A
file that is in another coordinate system is refused as a whole, by name. Memory is bounded by a batch, or by one
feature.

    sub_id     integer ids, or the number of the row where ids are words or absent
    name       ids that are words; absent if there are none
    geometry   WKB, or CIRCLE(lon lat, metres) for a point with the property radius_m; what GEOS cannot read stays as it
               was written, to be refused with its row
    xmin ...   the sides of rectangles, where GeoJSON has the property `rectangle`
    further columns of subscriptions (`core/subscriptions/attributes.py`), as far as the file has them
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from geoswarm.core.arrays.uuids import is_uuid, uuid_texts
from geoswarm.core.shapes.geoparquet import geo_columns
from geoswarm.core.shapes.parse import CRS84, crs_of
from geoswarm.core.shapes.survey import NESTED_MAX
from geoswarm.core.subscriptions.attributes import BESIDE_GEOMETRY
from geoswarm.core.subscriptions.region import SIDES
from geoswarm.errors import InputError, SchemaError

ReadProgress = Callable[[int, int, int], None]
"""Called after each batch: rows so far, bytes so far, bytes in all."""
ROWS_MAX = 16_384
"""The most regions in one batch."""
CHUNK_CHARS = 1 << 20
BATCH_CHARS = 1 << 25
"""Characters of the geometries in one batch."""
FEATURE_CHARS_MAX = 1 << 28
"""Characters of one feature, as text; a million vertices have about forty million."""
RADIUS, RECTANGLE = "radius_m", "rectangle"
"""The property that makes a circle of a point, and the one with xmin, ymin, xmax and ymax of a rectangle."""
_SPACE = " \t\n\r\x1e\ufeff"


def read_regions(
    path: Path, *, id_name: str | None = None, rows_max: int = ROWS_MAX, progress: ReadProgress | None = None
) -> Iterator[pa.RecordBatch]:
    """`id_name` is the column or property that holds ids; without it `sub_id`, then `id`, as far as there is one."""
    if not path.is_file():
        raise InputError(f"no file {path}: name a Parquet or GeoJSON file of regions")
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    return (_from_parquet if is_parquet else _from_geojson)(path, id_name, rows_max, progress)


def _from_parquet(
    path: Path, id_name: str | None, rows_max: int, progress: ReadProgress | None
) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        geometry = _geometry_column(path, file.schema_arrow)
        ids = id_name or next((name for name in ("sub_id", "id") if name in names), None)
        if ids is not None and ids not in names:
            raise SchemaError(f"{path} has no column {ids}: name one of {', '.join(names)}")
        extra = [name for name in BESIDE_GEOMETRY if name in names and name not in (ids, geometry)]
        rows, size, total = 0, path.stat().st_size, max(1, file.metadata.num_rows)
        for batch in file.iter_batches(rows_max, columns=[*([ids] if ids else []), geometry, *extra]):
            column = batch.column(geometry)
            shapes = column.storage if isinstance(column, pa.ExtensionArray) else column
            columns = _ids(batch.column(ids) if ids else None, rows, len(batch))
            columns |= {"geometry": shapes} | {name: batch.column(name) for name in extra}
            rows += len(batch)
            yield pa.record_batch(columns)
            if progress is not None:
                progress(rows, size * rows // total, size)


def _geometry_column(path: Path, schema: pa.Schema) -> str:
    """The name in GeoParquet's metadata, else `geometry`."""
    geo = geo_columns(str(path), schema)
    if geo is None and "geometry" not in schema.names:
        raise SchemaError(f"{path} has no column geometry: name the column of its WKB `geometry`")
    return "geometry" if geo is None else geo.geometry


def _from_geojson(
    path: Path, id_name: str | None, rows_max: int, progress: ReadProgress | None
) -> Iterator[pa.RecordBatch]:
    rows, chars, total, features = 0, 0, path.stat().st_size, list[Feature]()
    with path.open(encoding="utf-8", errors="replace") as file:
        reader = _Reader(file, path)
        for member in reader.features():
            feature = read_feature(member, id_name)
            features.append(feature)
            chars += len(feature.geometry or "")
            if len(features) == rows_max or chars > BATCH_CHARS:
                yield _batch_of(features, rows)
                rows, chars, features = rows + len(features), 0, []
                if progress is not None:
                    progress(rows, min(total, reader.chars), total)
        if features:
            yield _batch_of(features, rows)
        if progress is not None:
            progress(rows + len(features), total, total)


class _Reader:
    """The values of a JSON document one after another, with at most one of them in memory."""

    def __init__(self, file: TextIO, path: Path) -> None:
        self._file, self._path, self._text, self._at = file, path, "", 0
        self._decoder = json.JSONDecoder()
        self.chars = 0

    def features(self) -> Iterator[dict[str, Any]]:
        """The features of a collection, or of a file with one feature after the other."""
        kind, before = None, dict[str, Any]()
        self._expect("{")
        while self._peek() != "}":
            name = self._value()
            self._expect(":")
            if name == "features":
                yield from self._array()
                kind = "FeatureCollection"
            elif name == "type" and kind is None:
                kind = self._value()
                if kind == "Feature":
                    yield from self._sequence(before)
                    return
            elif name == "crs":
                self._check_crs({"crs": self._value()})
            else:
                before[str(name)] = self._value()
            if self._peek() == ",":
                self._expect(",")
        if kind != "FeatureCollection":
            raise SchemaError(f"{self._path} is no feature collection, but {kind!r}: give GeoJSON or GeoParquet")

    def _check_crs(self, member: dict[str, Any]) -> None:
        name = crs_of(member)
        if name is not None and not CRS84.search(name):
            raise SchemaError(
                f"{self._path} is in coordinate system {name}: convert it to longitude and latitude (EPSG:4326)"
            )

    def _array(self) -> Iterator[dict[str, Any]]:
        self._expect("[")
        while self._peek() != "]":
            yield self._feature()
            if self._peek() == ",":
                self._expect(",")
        self._expect("]")

    def _sequence(self, before: dict[str, Any]) -> Iterator[dict[str, Any]]:
        opened = json.dumps(before | {"type": "Feature"})[:-1]  # the first one goes on from here
        self._text, self._at = opened + self._text[self._at :], 0
        while self._peek():
            yield self._feature()

    def _feature(self) -> dict[str, Any]:
        feature = self._value()
        if not isinstance(feature, dict):
            raise SchemaError(f"{self._path} has {str(feature)[:40]!r} where a feature belongs: fix the producer")
        return feature

    def _peek(self) -> str:
        """The next character that is not a space; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more(CHUNK_CHARS):
                return ""

    def _expect(self, wanted: str) -> None:
        found = self._peek()
        if found != wanted:
            raise SchemaError(f"{self._path} is no GeoJSON: {wanted!r} is missing, {found or 'its end'!r} is there")
        self._at += 1

    def _value(self) -> Any:
        """The next JSON value. While the text is cut short, twice as much of it is read."""
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                if end < len(self._text) or not self._more(CHUNK_CHARS):  # a number may go on
                    self._at = end
                    return value
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at > FEATURE_CHARS_MAX:
                    raise SchemaError(
                        f"{self._path} has a value of more than {FEATURE_CHARS_MAX} characters: split it"
                    ) from error
                if not self._more(max(CHUNK_CHARS, len(self._text) - self._at)):
                    raise SchemaError(f"{self._path} is no GeoJSON: {error}") from error

    def _more(self, chars: int) -> bool:
        read = self._file.read(chars)
        self.chars += len(read)
        self._text, self._at = self._text[self._at :] + read, 0
        return bool(read)


class Feature(NamedTuple):
    """One feature. Its geometry is kept as text, which takes a tenth of the memory of Python's lists."""

    id: Any
    geometry: str | None
    properties: dict[str, str]
    sides: list[float] | None = None


def read_feature(member: dict[str, Any], id_name: str | None = None) -> Feature:
    given = member.get("properties")
    properties = given if isinstance(given, dict) else {}
    own = properties.get(id_name) if id_name is not None else member.get("id", properties.get("sub_id"))
    geometry = member.get("geometry")
    asked = {name: _as_text(properties[name]) for name in BESIDE_GEOMETRY if properties.get(name) is not None}
    circle = _circle(geometry, properties.get(RADIUS))
    return Feature(
        own,
        circle or (None if geometry is None else _as_text(geometry)),
        asked,
        _sides(properties.get(RECTANGLE), geometry),
    )


def _as_text(value: Any) -> str:
    """A text as it is, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _circle(geometry: Any, metres: Any) -> str | None:
    """GeoJSON has no circles: one is a point, with its radius as a property."""
    place = geometry.get("coordinates") if isinstance(geometry, dict) and geometry.get("type") == "Point" else None
    if metres is None or not isinstance(place, list) or len(place) < 2:
        return None
    return f"CIRCLE({place[0]!r} {place[1]!r}, {metres!r})"


def _sides(given: Any, geometry: Any) -> list[float] | None:
    """Those of a polygon that is this rectangle: somebody's own property of that name changes no region."""
    if not isinstance(given, list) or len(given) != 4:
        return None
    if not all(isinstance(side, float) or (isinstance(side, int) and abs(side) < 1 << 53) for side in given):
        return None
    xmin, ymin, xmax, ymax = given
    rings = geometry.get("coordinates") if isinstance(geometry, dict) and geometry.get("type") == "Polygon" else None
    if not isinstance(rings, list) or len(rings) != 1 or not isinstance(rings[0], list):
        return None
    corners = {tuple(corner[:2]) if isinstance(corner, list) else None for corner in rings[0]}
    is_it = corners == {(xmin, ymin), (xmin, ymax), (xmax, ymin), (xmax, ymax)}
    return [float(side) for side in given] if is_it else None


def _batch_of(features: list[Feature], first_row: int) -> pa.RecordBatch:
    columns = _ids(_ids_column([feature.id for feature in features]), first_row, len(features))
    columns["geometry"] = _wkb([feature.geometry for feature in features])
    for name in BESIDE_GEOMETRY:
        if any(name in feature.properties for feature in features):
            columns[name] = pa.array([feature.properties.get(name) for feature in features], pa.string())
    if any(feature.sides for feature in features):
        for number, side in enumerate(SIDES):
            values = [None if feature.sides is None else float(feature.sides[number]) for feature in features]
            columns[side] = pa.array(values, pa.float64())
    return pa.record_batch(columns)


def _ids_column(ids: list[Any]) -> pa.Array | None:
    if all(value is None for value in ids):
        return None
    if all(isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 for value in ids):
        return pa.array(ids, pa.int64())
    return pa.array([None if value is None else str(value) for value in ids], pa.string())


def _ids(ids: pa.Array | None, first_row: int, count: int) -> dict[str, pa.Array]:
    if ids is not None and pa.types.is_integer(ids.type):
        return {"sub_id": ids.cast(pa.int64())}
    numbers = {"sub_id": pa.array(np.arange(first_row, first_row + count))}
    return (
        numbers if ids is None else numbers | {"name": uuid_texts(ids) if is_uuid(ids.type) else ids.cast(pa.string())}
    )


def _wkb(geometries: list[str | None]) -> pa.Array:
    # Many braces may be nested collections, which can crash GEOS: those stay text.
    flat = np.array(
        [text if text is not None and text.count("{") <= NESTED_MAX else None for text in geometries], object
    )
    made = shapely.to_wkb(shapely.from_geojson(flat, on_invalid="ignore"))
    pairs = zip(made, geometries, strict=True)
    return pa.array([text.encode() if wkb is None and text is not None else wkb for wkb, text in pairs], pa.binary())
