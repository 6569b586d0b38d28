"""`bench join` at a tiny size, and what it is made of."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from geoswarm.core.shapes.parse import parse_shapes
from geoswarm.core.space.grid import Grid
from geoswarm.errors import StreamError
from geoswarm.lab.bench.engine import join
from geoswarm.lab.bench.engine.join_rivals import Forest
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.kit.process_tree import Watch, process_tree
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.lab.workload.zones import HALVINGS, ZONE_VERTICES, districts, zones
from geoswarm.run.pieces import share_out, size_of
from geoswarm.run.spark.table_files import count_tasks

PLACES = Tweets(seed=3, country="US", bounds=US)


def test_our_join_and_the_udf_agree_and_are_measured() -> None:
    sizes = join.JoinSizes(4_000, (("1k", 300),), 1, False)
    result = join.measure_join(sizes, 1, lambda _: None)
    assert {row["rival"] for row in result.rows} == {"geoswarm", "udf"}
    assert all(row["pairs"] > 0 and row["peak_mb"] > 100 and row["cpu_s"] > 0 for row in result.rows)
    assert {"vs_udf_1k", "cpu_vs_udf_1k"} <= set(result.summary)
    assert all(math.isfinite(value) and value > 0 for value in result.summary.values())
    assert "vs_sedona_1k" not in result.summary  # nothing was run, so nothing is claimed
    assert len(join.plot(result).axes) == 1


def test_rivals_that_disagree_are_no_result() -> None:
    ours, theirs = join.JoinRun(1.0, 1.0, 1.0, 7, 11), join.JoinRun(1.0, 1.0, 1.0, 7, 12)
    join._check({"geoswarm": [ours], "udf": [ours]})
    with pytest.raises(StreamError, match="do not agree"):
        join._check({"geoswarm": [ours], "udf": [theirs]})


def test_sedona_is_measured_by_its_faster_way() -> None:
    def of(*seconds: float) -> list[join.JoinRun]:
        return [join.JoinRun(s, s, 100.0, 1, 1) for s in seconds]

    runs = {"geoswarm": of(1, 1, 1), "udf": of(2, 2, 2), "sedona-broadcast": of(9), "sedona-divided": of(4, 5, 6)}
    assert join._summary("3k", runs)["vs_sedona_3k"] == 5
    runs = {"geoswarm": of(1), "udf": of(2), "sedona-broadcast": of(3), "sedona-divided": of(4)}
    assert join._summary("3k", runs)["vs_sedona_3k"] == 3


def test_the_udf_says_what_plain_shapely_says() -> None:
    regions = zones(PLACES, 400)
    drawn = PLACES.events(0, 3_000)
    points = pa.record_batch({"id": drawn["event_id"], "x": drawn["x"], "y": drawn["y"]})
    polygons = shapely.from_wkb(regions["geometry"].to_numpy())
    x, y = points["x"].to_numpy(), points["y"].to_numpy()
    want = {
        (int(i), k) for k, polygon in enumerate(polygons) for i in np.flatnonzero(shapely.intersects_xy(polygon, x, y))
    }
    got = Forest(regions).pairs(points)
    assert len(want) > 5
    assert set(zip(got["id"].to_pylist(), got["region"].to_pylist(), strict=True)) == want
    assert len(got) == len(want)


def test_points_are_written_once_each_in_several_files(tmp_path: Path) -> None:
    folder = join.write_points(PLACES, 1_003, tmp_path / "points")
    assert len(list(Path(folder).glob("*.parquet"))) == join.FILES
    assert sorted(pq.read_table(folder)["id"].to_pylist()) == list(range(1_003))


def test_the_small_join_before_has_tasks_for_both_cores(tmp_path: Path) -> None:
    folder = Path(join.write_points(PLACES, join.WARM_POINTS, tmp_path / "points"))
    paths = sorted(str(path) for path in folder.glob("*.parquet"))
    assert len(share_out(paths, "parquet", count_tasks(sum(map(size_of, paths)), 2))) == 2


def test_districts_tile_the_country_with_crooked_borders() -> None:
    table = districts(PLACES, 120)
    polygons = shapely.from_wkb(table["geometry"].to_numpy())
    world = shapely.box(*US)
    assert len(polygons) == 120
    assert shapely.is_valid(polygons).all()
    assert shapely.area(polygons).sum() == pytest.approx(world.area, rel=0.01)
    assert shapely.union_all(polygons).area == pytest.approx(world.area, rel=0.01)
    assert np.median(shapely.get_num_coordinates(polygons)) > 3 * 2**HALVINGS
    assert districts(PLACES, 120).equals(table)


def test_zones_are_sound_and_crowd_in_cities() -> None:
    table = zones(PLACES, 2_000)
    polygons = shapely.from_wkb(table["geometry"].to_numpy())
    vertices = shapely.get_num_coordinates(polygons) - 1
    assert (vertices.min(), vertices.max()) == ZONE_VERTICES
    assert not parse_shapes(table["geometry"].combine_chunks(), Grid(*US, columns=8, rows=8)).refused
    middle = shapely.get_coordinates(shapely.centroid(polygons))
    cells = np.histogram2d(middle[:, 0], middle[:, 1], bins=40, range=[[-125, -66], [24, 50]])[0].ravel()
    assert np.sort(cells)[-40:].sum() > 0.5 * len(polygons)  # 40 of 1600 cells have more than half of them


def test_a_watch_counts_the_memory_and_the_work_of_children() -> None:
    # The parent does nothing; its child holds 200 MB and works.
    child = "import time; held = bytearray(b'x') * (200 << 20); end = time.time() + 20\nwhile time.time() < end: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        try:
            with Watch(process.pid) as watch:
                deadline_s = time.time() + 15
                while time.time() < deadline_s and watch.read()[1] < 200e6:
                    time.sleep(0.1)
                cpu_s, peak_bytes = watch.read()
                assert peak_bytes >= 200e6
                assert cpu_s > 0
                watch.restart()
                assert watch.read()[0] <= cpu_s + 1
        finally:
            for pid in reversed(process_tree(process.pid)):
                os.kill(pid, 9)
