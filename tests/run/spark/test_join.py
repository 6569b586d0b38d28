"""The batch door: which point lies in which region, as plain shapely says."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import geoswarm as gs
from geoswarm.errors import SchemaError
from geoswarm.service.cli.commands import app

DISTRICTS = {
    "north": shapely.box(-10, 0, 10, 10),
    "ring": shapely.Point(0, -20).buffer(15),
    "both": shapely.box(-5, -9, 5, 9),
}


def points_in(folder: Path, n: int = 3000) -> pa.Table:
    rng = np.random.default_rng(1)
    crowded = rng.random(n) < 0.7  # most of them in one place
    lon = np.where(crowded, rng.uniform(0, 1, n), rng.uniform(-40, 40, n))
    lat = np.where(crowded, rng.uniform(0, 1, n), rng.uniform(-40, 40, n))
    lat[:3] = np.nan, np.inf, 500.0
    table = pa.table({"place": [f"p{i}" for i in range(n)], "lon": lon, "lat": pa.array(lat, mask=np.arange(n) == 4)})
    pq.write_table(table, folder / "points.parquet")
    return table


def expected_pairs(points: pa.Table) -> list[tuple[str, str]]:
    x, y = (points[name].to_numpy(zero_copy_only=False) for name in ("lon", "lat"))
    sound = np.isfinite(x) & np.isfinite(y)
    return sorted(
        (str(points["place"][int(i)]), name)
        for name, shape in DISTRICTS.items()
        for i in np.flatnonzero(sound & shapely.intersects_xy(shape, np.nan_to_num(x), np.nan_to_num(y)))
    )


def test_points_are_joined_with_regions_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    points = points_in(tmp_path)
    shapes = [shapely.to_wkb(shape) for shape in DISTRICTS.values()] + [b"nonsense"]
    regions = pa.table({"id": [*DISTRICTS, "bad"], "geometry": pa.array(shapes, pa.binary())})
    rows = spark.read.parquet(str(tmp_path / "points.parquet"))
    pairs = gs.join(rows, regions, x="lon", y="lat").toArrow()
    assert pairs.schema.names == ["place", "lon", "lat", "region"]
    got = sorted(zip(pairs["place"].to_pylist(), pairs["region"].to_pylist(), strict=True))
    assert got == expected_pairs(points)
    assert len(got) > 2000
    with pytest.raises(SchemaError, match="no columns x, y"):
        gs.join(rows, regions)


def test_files_are_joined_by_one_command(spark: SparkSession, tmp_path: Path) -> None:
    points = points_in(tmp_path)
    features = [
        {"type": "Feature", "properties": {"code": name}, "geometry": json.loads(shapely.to_geojson(shape))}
        for name, shape in DISTRICTS.items()
    ]
    (tmp_path / "districts.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    files = [str(tmp_path / name) for name in ("points.parquet", "districts.geojson")]
    asked = ["join", *files, "-o", str(tmp_path / "out"), "--x", "lon", "--y", "lat", "--id", "code", "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    pairs = pq.read_table(tmp_path / "out")
    got = sorted(zip(pairs["place"].to_pylist(), pairs["region"].to_pylist(), strict=True))
    assert got == expected_pairs(points)
    assert (told["pairs"], told["points"], told["regions"], told["refused"]) == (len(got), 3000, 3, 0)
    again = CliRunner().invoke(app, asked)
    assert again.exit_code == 2
    assert "exists" in again.output


def test_a_join_leaves_the_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    points_in(tmp_path)
    before = dict(spark.conf.getAll)
    regions = pa.table({"id": [7], "geometry": pa.array([shapely.to_wkb(DISTRICTS["north"])], pa.binary())})
    rows = spark.read.parquet(str(tmp_path / "points.parquet"))
    assert gs.join(rows, regions, x="lon", y="lat").count() > 1000
    assert dict(spark.conf.getAll) == before


def test_only_wanted_columns_go_out_and_any_number_is_a_place(spark: SparkSession, tmp_path: Path) -> None:
    points = points_in(tmp_path)
    shapes = pa.array([shapely.to_wkb(shape) for shape in DISTRICTS.values()], pa.binary())
    regions = pa.table({"id": list(DISTRICTS), "geometry": shapes})
    rows = spark.read.parquet(str(tmp_path / "points.parquet"))
    said = rows.selectExpr("place", "cast(lon as string) lon", "lat", "array(place) tags", "1 as executor")
    pairs = gs.join(said, regions, x="lon", y="lat", columns=["tags", "executor", "place"]).toArrow()
    assert pairs.schema.names == ["tags", "executor", "place", "region"]
    got = sorted(zip(pairs["place"].to_pylist(), pairs["region"].to_pylist(), strict=True))
    assert got == expected_pairs(points)
    assert pairs["tags"].to_pylist() == [[place] for place in pairs["place"].to_pylist()]
    with pytest.raises(SchemaError, match="no columns city"):
        gs.join(said, regions, x="lon", y="lat", columns=["city"])


def test_tasks_read_parquet_files_as_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    points = points_in(tmp_path)
    folder = tmp_path / "points"
    folder.mkdir()
    pq.write_table(points.slice(0, 1000), folder / "0.parquet", row_group_size=100)
    renamed = points.slice(1000, 1000).rename_columns(["Place", "LON", "lat"])
    pq.write_table(renamed.append_column("more", pa.array(range(1000))), folder / "1.parquet")
    pq.write_table(points.slice(2000).select(["lat", "lon"]), folder / "2.parquet")
    regions = pa.table({"id": list(DISTRICTS), "geometry": [shapely.to_wkb(shape) for shape in DISTRICTS.values()]})
    table = spark.read.parquet(str(folder))
    by_tasks = gs.join(table, regions, x="lon", y="lat")
    by_spark = gs.join(table.select("*"), regions, x="lon", y="lat")
    assert [len(pairs.inputFiles()) for pairs in (by_tasks, by_spark)] == [0, 3]
    assert by_tasks.schema == by_spark.schema
    want, got = (sorted(map(str, pairs.toArrow().to_pylist())) for pairs in (by_spark, by_tasks))
    assert got == want
    assert len(got) == len(expected_pairs(points))


def test_regions_without_a_name_in_words_are_called_by_their_numbers(spark: SparkSession) -> None:
    shapes = pa.array([shapely.to_wkb(shapely.box(k, 0, k + 1, 1)) for k in range(3)], pa.binary())
    rows = spark.createDataFrame(pa.table({"x": [0.5, 1.5, 2.5, 9.5], "y": [0.5] * 4}))
    pairs = gs.join(rows, pa.table({"id": [30, 10, 20], "geometry": shapes})).toArrow()
    assert sorted(zip(pairs["x"].to_pylist(), pairs["region"].to_pylist(), strict=True)) == [
        (0.5, 30),
        (1.5, 10),
        (2.5, 20),
    ]
    assert gs.join(rows, pa.table({"id": [30, 10, 20], "geometry": shapes}).slice(0, 0)).count() == 0
