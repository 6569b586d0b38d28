"""Polygons and circles on Spark: by call, from files of regions, and as a stream of operations."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import SparkSession

from geoswarm.config import Contract
from geoswarm.errors import InputError
from geoswarm.run import sinks
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from worlds import events, write_files

CONTRACT = Contract(columns=50, rows=50, executors=3)
TRIANGLE = shapely.Polygon([(0, 0), (60, 0), (0, 60)])
RING = shapely.Point(-60, 10).buffer(25).difference(shapely.Point(-60, 10).buffer(10))
BOX = shapely.box(-20, -80, 20, -30)


def test_regions_come_by_call_by_file_and_by_stream(spark: SparkSession, tmp_path: Path) -> None:
    batch = pa.table(events(np.random.default_rng(1), 800, snap=2.0))
    write_files(tmp_path / "events", [batch])
    feature = {"type": "Feature", "id": 3, "properties": {}, "geometry": json.loads(shapely.to_geojson(BOX))}
    (tmp_path / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    (tmp_path / "operations").mkdir()
    stream = [
        {"op": "register", "sub_id": 4, "geometry": json.loads(shapely.to_geojson(TRIANGLE))},
        {"op": "register", "sub_id": 5, "geometry": shapely.to_wkt(RING)},
        {"op": "register", "sub_id": 6, "geometry": "POLYGON((0 0, 1 1"},
    ]
    (tmp_path / "operations" / "0.json").write_text("\n".join(map(json.dumps, stream)))
    memory, told = sinks.Memory(), []
    with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, geometry=shapely.to_wkb(TRIANGLE))
        engine.subscribe(2, geometry="CIRCLE(100 40, 2000000)")
        with pytest.raises(InputError, match=r"self-intersection at \(5, 5\)"):
            engine.subscribe(9, geometry="POLYGON((0 0, 10 10, 10 0, 0 10, 0 0))")
        loaded = engine.load(str(tmp_path / "zones.geojson"), lambda done, rows: told.append((done, rows)))
        assert (loaded.registered, loaded.dead) == (1, 0)
        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events")),
            operations=sources.operations_from_files(spark, str(tmp_path / "operations")),
            sink=memory,
            available_now=True,
        ).wait()
        dead = engine.dead_letters()
    assert told == [(1, 1)]
    assert dead["reason"].to_pylist() == ["malformed"]
    points = shapely.points(batch["x"].to_numpy(), batch["y"].to_numpy())
    ids = batch["event_id"].to_numpy()
    want = [
        (int(event), sub)
        for sub, shape in ((1, TRIANGLE), (3, BOX), (4, TRIANGLE), (5, RING))
        for event in ids[shapely.intersects(shape, points)]
    ]
    got = pairs_of([memory.table()])
    assert sorted(pair for pair in got if pair[1] != 2) == sorted(want)
    assert len(want) > 50
    near = [pair for pair in got if pair[1] == 2]
    assert 0 < len(near) < len(ids) / 5


def test_collisions_fall_into_the_postcode_sectors_that_shapely_says(
    spark: SparkSession, tmp_path: Path, data_folder: Path
) -> None:
    sectors = pq.read_table(data_folder / "poly_uk_postcode_sectors.parquet").slice(0, 1500)
    points = pq.read_table(data_folder / "points_uk_collisions.parquet").slice(0, 20_000)
    x, y = (points[name].cast(pa.float64()).to_numpy() for name in ("lon", "lat"))
    ids = np.arange(len(points))
    batch = pa.table({"event_id": ids, "ts": pa.array(ids).cast(pa.timestamp("us", "UTC")), "x": x, "y": y})
    write_files(tmp_path / "events", [batch])
    pq.write_table(pa.table({"geometry": sectors["geometry"]}), tmp_path / "sectors.parquet")
    memory = sinks.Memory()
    with Engine(spark, Contract(executors=3), checkpoint=str(tmp_path / "state")) as engine:
        assert engine.load(str(tmp_path / "sectors.parquet")).registered == len(sectors)
        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events")), sink=memory, available_now=True
        ).wait()
    shapes = shapely.from_wkb(sectors["geometry"].to_pylist())
    event, sector = shapely.STRtree(shapes).query(shapely.points(x, y), predicate="intersects")
    assert sorted(pairs_of([memory.table()])) == sorted(zip(event.tolist(), sector.tolist(), strict=True))
    assert len(event) > 500
