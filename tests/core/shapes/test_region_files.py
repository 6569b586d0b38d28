"""Files of regions: GeoParquet and GeoJSON, streamed, with ids, and refused by name in another coordinate system."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from core.shapes.drawn import WORLD, blobs
from geoswarm.core.shapes.parse import parse_shapes
from geoswarm.core.shapes.shapes import Geometries
from geoswarm.errors import InputError, SchemaError
from geoswarm.store.region_files import read_regions


def collection(
    path: Path, polygons: Geometries | None, before: str = "", after: str = "", features: list[Any] | None = None
) -> Path:
    made = features or [
        {
            "type": "Feature",
            "id": 100 + i,
            "properties": {"user": f"u{i}", "code": f"c{i}"},
            "geometry": json.loads(text),
        }
        for i, text in enumerate(shapely.to_geojson(polygons))
    ]
    path.write_text('{"type": "FeatureCollection", ' + before + '"features": ' + json.dumps(made) + after + "}")
    return path


def geoparquet(path: Path, polygons: Geometries, crs: object = "absent", **columns: Any) -> Path:
    described = {"encoding": "WKB", "geometry_types": []} | ({} if crs == "absent" else {"crs": crs})
    geo = {"version": "1.1.0", "primary_column": "shape", "columns": {"shape": described | columns.pop("more", {})}}
    table = pa.table({"shape": pa.array(shapely.to_wkb(polygons)), **columns})
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)
    return path


def test_a_feature_collection_is_streamed_with_its_ids_and_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoswarm.store.region_files.CHUNK_CHARS", 700)  # so that features lie across chunks
    polygons = blobs(np.random.default_rng(0), 10)
    told = []
    path = collection(tmp_path / "a.geojson", polygons, before='"name": "a, [b] {c}", ')
    batches = list(read_regions(path, rows_max=4, progress=lambda *said: told.append(said)))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    table = pa.Table.from_batches(batches)
    assert table["sub_id"].to_pylist() == list(range(100, 110))
    assert table["user"].to_pylist() == [f"u{i}" for i in range(10)]
    assert shapely.equals(shapely.from_wkb(table["geometry"].to_numpy()), polygons).all()
    size = path.stat().st_size
    assert told[-1] == (10, size, size)
    assert [rows for rows, _, _ in told[:2]] == [4, 8]


def test_ids_may_be_words_in_a_property(tmp_path: Path) -> None:
    path = collection(tmp_path / "a.geojson", blobs(np.random.default_rng(0), 3))
    (batch,) = read_regions(path, id_name="code")
    assert batch.column("sub_id").to_pylist() == [0, 1, 2]
    assert batch.column("name").to_pylist() == ["c0", "c1", "c2"]


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_feature_collection_in_another_coordinate_system_is_refused_by_name(tmp_path: Path, place: str) -> None:
    crs = '"crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::27700"}}'
    before, after = (crs + ", ", "") if place == "before" else ("", ", " + crs)
    path = collection(tmp_path / "a.geojson", blobs(np.random.default_rng(0), 3), before, after)
    with pytest.raises(SchemaError, match="EPSG::27700"):
        list(read_regions(path))


def test_features_one_behind_the_other_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "a.geojsonl"
    square = json.loads(shapely.to_geojson(shapely.box(0, 0, 1, 1)))
    first = {"id": 7, "type": "Feature", "geometry": square, "properties": None}
    path.write_text("\n".join(json.dumps(feature) for feature in (first, first | {"id": 8})))
    (batch,) = read_regions(path)
    assert batch.column("sub_id").to_pylist() == [7, 8]
    assert batch.column("geometry").null_count == 0


def test_a_bad_feature_stays_in_its_row_to_be_refused_there(tmp_path: Path) -> None:
    deep: dict[str, object] = {"type": "Point", "coordinates": [0, 0]}
    for _ in range(100):
        deep = {"type": "GeometryCollection", "geometries": [deep]}
    shapes = [
        json.loads(shapely.to_geojson(shapely.box(0, 0, 1, 1))),
        {"type": "Polygon", "coordinates": 3},
        None,
        deep,
    ]
    features = [{"type": "Feature", "properties": {}, "geometry": shape} for shape in shapes]
    (batch,) = read_regions(collection(tmp_path / "a.geojson", None, features=features))
    parsed = parse_shapes(batch.column("geometry"), WORLD)
    assert [(refusal.row, refusal.reason) for refusal in parsed.refused] == [(1, "malformed"), (3, "malformed")]
    assert batch.column("geometry").is_null().to_pylist() == [False, False, True, False]


@pytest.mark.parametrize("text", ["", "hello", "[1, 2]", '{"type": "FeatureCollection", "features": [{"type": ', "{}"])
def test_a_file_that_is_no_geojson_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.geojson"
    path.write_text(text)
    with pytest.raises(SchemaError, match=r"no GeoJSON|no feature collection"):
        list(read_regions(path))


CRS84 = {"type": "GeographicCRS", "name": "WGS 84 (CRS84)", "id": {"authority": "OGC", "code": "CRS84"}}
NATIONAL = {"type": "ProjectedCRS", "name": "OSGB36", "id": {"authority": "EPSG", "code": 27700}}


@pytest.mark.parametrize("crs", ["absent", None, CRS84, {"name": "WGS 84", "id": {"authority": "EPSG", "code": 4326}}])
def test_geoparquet_is_read_by_its_primary_column(tmp_path: Path, crs: object) -> None:
    polygons = blobs(np.random.default_rng(0), 9)
    path = geoparquet(tmp_path / "a.parquet", polygons, crs, id=pa.array(range(9)), keywords=["flood"] * 9)
    told = []
    batches = list(read_regions(path, rows_max=4, progress=lambda *said: told.append(said)))
    table = pa.Table.from_batches(batches)
    assert [len(batch) for batch in batches] == [4, 4, 1]
    assert table.schema.names == ["sub_id", "geometry", "keywords"]
    assert shapely.equals(shapely.from_wkb(table["geometry"].to_numpy()), polygons).all()
    assert told[-1][0] == 9
    assert told[-1][1] == told[-1][2]


@pytest.mark.parametrize(
    ("crs", "more", "words"),
    [
        (NATIONAL, {}, "EPSG:27700"),
        ({"name": "Somewhere"}, {}, "Somewhere"),
        ("absent", {"encoding": "polygon"}, "encoded as polygon"),
        ("absent", {"edges": "spherical"}, "spherical"),
    ],
)
def test_geoparquet_that_cannot_be_used_is_refused_by_name(
    tmp_path: Path, crs: object, more: dict[str, str], words: str
) -> None:
    path = geoparquet(tmp_path / "a.parquet", blobs(np.random.default_rng(0), 3), crs, more=more)
    with pytest.raises(SchemaError, match=words):
        list(read_regions(path))


def test_a_missing_file_and_a_missing_column_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        read_regions(tmp_path / "nowhere.parquet")
    path = geoparquet(tmp_path / "a.parquet", blobs(np.random.default_rng(0), 3))
    with pytest.raises(SchemaError, match="no column zone"):
        list(read_regions(path, id_name="zone"))


def test_plain_parquet_with_wkb_is_read(data_folder: Path) -> None:
    path = data_folder / "poly_world_countries.parquet"
    if not path.is_file():
        pytest.skip(f"no {path.name} in {data_folder}")
    (batch,) = read_regions(path)
    assert len(batch) == 241
    assert batch.schema.names == ["sub_id", "name", "geometry"]


def test_a_property_that_happens_to_be_named_rectangle_changes_no_polygon(tmp_path: Path) -> None:
    shapes = [shapely.box(0, 0, 2, 1), shapely.Polygon([(0, 0), (2, 0), (2, 1)]), shapely.Point(0, 0), None]
    features = [
        {
            "type": "Feature",
            "properties": {"rectangle": [0, 0, 2, 1]},
            "geometry": place and shapely.geometry.mapping(place),
        }
        for place in shapes
    ]
    (read,) = read_regions(collection(tmp_path / "fences.geojson", None, features=features))
    assert read.column("xmax").to_pylist() == [2.0, None, None, None]
    assert read.column("geometry")[1].as_py() == shapely.to_wkb(shapes[1])
