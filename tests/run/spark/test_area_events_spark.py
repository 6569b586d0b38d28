"""Areas and points mixed on Spark: a stream of them over changing plans, by call, and in one join."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import geoswarm as gs
from geoswarm.config import Contract, Tuning
from geoswarm.errors import InputError, SchemaError
from geoswarm.run import sinks
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair, pairs_of
from geoswarm.run.spark import schemas, sources
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.rows import SparkRows
from geoswarm.service.cli.commands import app
from restless import changes_with_terms, legal_changes
from worlds import (
    BOUNDS,
    events,
    operations,
    with_areas,
    with_keywords,
    with_predicates,
    with_shapes,
    with_texts,
    write_files,
)

CONTRACT = Contract(columns=50, rows=50, executors=3)
LATER_US = 3_600_000_000


@pytest.mark.parametrize("divides", [False, True])
def test_points_and_areas_of_a_stream_meet_what_the_oracle_says(
    spark: SparkSession, tmp_path: Path, divides: bool
) -> None:
    rng, oracle, batches, storms = np.random.default_rng(divides), Oracle(BOUNDS), [], []
    want = list[Pair]()
    for b in range(3):
        batch = with_texts(rng, with_areas(rng, pa.table(events(rng, 150, first_id=1000 * b))))
        storm = with_predicates(rng, with_keywords(rng, with_shapes(rng, operations(rng, 90, ids=70, now_us=LATER_US))))
        oracle.operate(storm, 0)
        want += oracle.match(batch, 0)
        batches.append(batch)
        storms.append(storm)
    write_files(tmp_path / "events", batches)
    write_files(tmp_path / "operations", storms)
    memory = sinks.Memory()
    tuning = Tuning(matches="arrays" if divides else "pairs", strategy="static-uniform")
    with Engine(spark, CONTRACT, tuning, checkpoint=str(tmp_path / "state"), clock=lambda: 0.0) as engine:

        def sink(found: DataFrame, batch_id: int) -> None:
            memory.write(SparkRows(found), batch_id)
            plan = engine._checkpoint.plan
            engine._checkpoint.adopt_plan(plan.apply((changes_with_terms if divides else legal_changes)(plan, rng, 4)))

        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
            operations=sources.operations_from_files(spark, str(tmp_path / "operations"), files_per_batch=1),
            sink=sink,
            available_now=True,
        ).wait()
        status, dead = engine.status(), engine.dead_letters()
    table = memory.table()
    assert sorted(pairs_of([table])) == sorted(want)
    lost = sum(letter["kind"] == "event" for letter in dead.to_pylist())
    assert lost > 0
    assert (status["events"], status["dead"], status["matches"]) == (450, lost, len(want))
    assert {"invalid", "predicate"} <= set(dead["reason"].to_pylist())
    areas = table.filter(pa.compute.is_valid(table["geometry"]))
    assert len(areas) > 20
    assert areas["x"].null_count == 0
    came = {row["event_id"]: row["geometry"] for batch in batches for row in batch.to_pylist()}
    assert all(came[row["event_id"]] == row["geometry"] for row in areas.to_pylist()), "as it came"


def test_events_may_be_areas_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"event_id": 1, "ts": "2026-01-01T00:00:00Z", "geometry": "POLYGON((0 0, 4 0, 4 4, 0 4, 0 0))"},
        {"event_id": 2, "ts": "2026-01-01T00:00:00Z", "geometry": {"type": "Point", "coordinates": [9, 9]}},
        {"event_id": 3, "ts": "2026-01-01T00:00:00Z", "geometry": "LINESTRING(0 0, 1 1)"},
        {"event_id": 4, "ts": "2026-01-01T00:00:00Z"},
    ]
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "0.json").write_text("\n".join(map(json.dumps, rows)))
    memory = sinks.Memory()
    with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, (1.0, 1.0, 2.0, 2.0), predicate="within")
        engine.subscribe(2, (-1.0, -1.0, 10.0, 10.0), predicate="contains")
        engine.subscribe(3, (4.0, 4.0, 9.0, 9.0))
        engine.subscribe(4, geometry="CIRCLE(2 2, 100000)", predicate="covers")
        with pytest.raises(InputError, match="has predicate 'touches': send one of intersects, contains"):
            engine.subscribe(5, (0.0, 0.0, 1.0, 1.0), predicate="touches")
        stream = sources.events_from_files(spark, str(tmp_path / "events"), extra="geometry string")
        engine.start(events=stream.drop("x", "y"), sink=memory, available_now=True).wait()
        dead = engine.dead_letters()
    assert sorted(pairs_of([memory.table()])) == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3)]
    assert sorted(dead["reason"].to_pylist()) == ["no-area", "null"]


def test_a_geometry_of_another_type_is_an_error_before_the_stream_starts(spark: SparkSession) -> None:
    event = "0L event_id, current_timestamp() ts"
    assert schemas.conform_events(spark.sql(f"select {event}, 'POINT(0 0)' geometry")).columns[:4] == [
        "event_id", "ts", "x", "y"
    ]  # fmt: skip
    with pytest.raises(SchemaError, match=r"column geometry of events is double.*WKB as binary"):
        schemas.conform_events(spark.sql(f"select {event}, 1.0D x, 1.0D y, 3.0D geometry"))
    with pytest.raises(SchemaError, match="events have no column x"):
        schemas.conform_events(spark.sql(f"select {event}, 1.0D y"))


def test_areas_are_joined_with_regions_by_a_predicate(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    middles = np.where(rng.random((300, 2)) < 0.6, rng.uniform(0, 1, (300, 2)), rng.uniform(-40, 40, (300, 2)))
    areas = np.array([shapely.Point(x, y).buffer(rng.uniform(0.1, 8), quad_segs=3) for x, y in middles])
    shapes = [shapely.to_wkt(area, rounding_precision=-1) for area in areas]
    wrong = ["LINESTRING(0 0, 1 1)", "POLYGON((0 0, 10 10, 10 0, 0 10, 0 0))", None]
    names = [f"a{i}" for i in range(303)]
    pq.write_table(pa.table({"shape": [*shapes, *wrong], "name": names}), tmp_path / "areas.parquet")
    districts = {
        "north": shapely.box(-10, 0, 10, 10),
        "disc": shapely.Point(0, 0).buffer(0.5),
        "all": shapely.box(-50, -50, 50, 50),
    }
    regions = pa.table(
        {"id": list(districts), "geometry": pa.array(map(shapely.to_wkb, districts.values()), pa.binary())}
    )
    rows = spark.read.parquet(str(tmp_path / "areas.parquet"))
    read = shapely.from_wkt(shapes)

    def expected_pairs(predicate: str) -> list[tuple[str, str]]:
        hits = {name: getattr(shapely, predicate)(shape, read) for name, shape in districts.items()}
        return sorted((names[i], name) for name, hit in hits.items() for i in np.flatnonzero(hit))

    pairs = gs.join(rows, regions, geometry="shape", predicate="covers").toArrow()
    assert pairs.schema.names == ["shape", "name", "region"]
    got = sorted(zip(pairs["name"].to_pylist(), pairs["region"].to_pylist(), strict=True))
    assert got == expected_pairs("covers")
    assert dict(zip(pairs["name"].to_pylist(), pairs["shape"].to_pylist(), strict=True))["a0"] == shapes[0]
    pq.write_table(regions, tmp_path / "districts.parquet")
    files = [str(tmp_path / name) for name in ("areas.parquet", "districts.parquet")]
    asked = ["join", *files, "-o", str(tmp_path / "out"), "--geometry", "shape", "--predicate", "within", "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    found = pq.read_table(tmp_path / "out")
    assert sorted(zip(found["name"].to_pylist(), found["region"].to_pylist(), strict=True)) == expected_pairs("within")
    assert {name for _, name in expected_pairs("within")} == {"disc"}
    with pytest.raises(InputError, match="predicate is 'near'"):
        gs.join(rows, regions, geometry="shape", predicate="near")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="no columns area"):
        gs.join(rows, regions, geometry="area")
