"""Folders of GeoParquet as events: points give x and y, areas are areas, and other coordinate systems are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import geoswarm as gs
from geoswarm.config import Contract
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import SchemaError
from geoswarm.run.oracle.oracle import Oracle
from worlds import BOUNDS, events, rectangles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTRACT = Contract(columns=20, rows=15, executors=3)
MERCATOR = {"id": {"authority": "EPSG", "code": 3857}}
CORNERS = ("xmin", "ymin", "xmax", "ymax")


def geo_table(plain: pa.Table, name: str, crs: Any = None, encoding: str = "WKB") -> pa.Table:
    """The events as a producer of GeoParquet writes them: points in WKB, and a rectangle round each."""
    x, y = plain["x"].to_numpy(), plain["y"].to_numpy()
    boxes = pa.StructArray.from_arrays([pa.array(side) for side in (x, y, x, y)], names=list(CORNERS))
    table = plain.drop_columns(["x", "y"]).append_column(name, pa.array(shapely.to_wkb(shapely.points(x, y))))
    column = {
        "encoding": encoding,
        "geometry_types": ["Point"],
        "covering": {"bbox": {c: ["bbox", c] for c in CORNERS}},
    }
    column |= {} if crs is None else {"crs": crs}
    told = {"version": "1.1.0", "primary_column": name, "columns": {name: column}}
    return table.append_column("bbox", boxes).replace_schema_metadata({"geo": json.dumps(told)})


def check_story(tmp_path: Path, engine: Callable[[str], Any], source: Callable[[str], Any]) -> None:
    folder, oracle = tmp_path / "events", Oracle(BOUNDS)
    folder.mkdir()
    came = [pa.table(events(np.random.default_rng(k), 200, first_id=1000 * k)) for k in range(3)]
    pq.write_table(geo_table(came[0], "geom"), folder / "0.parquet", row_group_size=50)
    pq.write_table(geo_table(came[1], "place"), folder / "1.parquet")
    pq.write_table(geo_table(came[2], "geom", MERCATOR), folder / "2.parquet")
    rects = rectangles(np.random.default_rng(3), 150)
    storm = operation_table([registration(i, tuple(rect)) for i, rect in enumerate(rects.tolist())])
    oracle.operate(storm, 0)
    want = oracle.match(came[0], 0) | oracle.match(came[1], 0)
    with engine(str(tmp_path / "state")) as running:
        running.submit(storm)
        running.start(events=source(str(folder)), sink=(sink := gs.sinks.Memory()), available_now=True).wait()
        letters = [letter["row"] for letter in running.dead_letters().to_pylist()]
    found = sink.table()
    assert len(want) > 100
    assert {(row["event_id"], sub) for row in found.to_pylist() for sub in row["sub_ids"]} == want
    assert not {"bbox", "geom", "place"} & set(found.schema.names)
    places = dict(
        zip(pa.concat_tables(came)["event_id"].to_pylist(), pa.concat_tables(came)["x"].to_pylist(), strict=True)
    )
    assert all(places[row["event_id"]] == row["x"] for row in found.to_pylist())
    assert len(letters) == 1
    assert "2.parquet is in coordinate system EPSG:3857: convert it" in letters[0]


def test_the_local_engine_reads_points_of_geoparquet(tmp_path: Path) -> None:
    check_story(
        tmp_path,
        lambda checkpoint: gs.LocalEngine(CONTRACT, checkpoint=checkpoint, clock=lambda: 0.0),
        lambda folder: gs.local.events_from_files(folder),
    )


def test_spark_reads_points_of_geoparquet(spark: "SparkSession", tmp_path: Path) -> None:
    check_story(
        tmp_path,
        lambda checkpoint: gs.Engine(spark, CONTRACT, checkpoint=checkpoint, clock=lambda: 0.0),
        lambda folder: gs.sources.events_from_files(spark, folder),
    )


def test_a_folder_that_begins_with_what_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    came = pa.table(events(np.random.default_rng(1), 5))
    for table, why in (
        (geo_table(came, "g", MERCATOR), "EPSG:3857"),
        (geo_table(came, "g", encoding="point"), "point"),
    ):
        pq.write_table(table, tmp_path / "0.parquet")
        with pytest.raises(SchemaError, match=why):
            gs.local.events_from_files(str(tmp_path))
