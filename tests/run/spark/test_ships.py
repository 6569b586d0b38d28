"""Real ships in New York harbour enter, leave and stay in zones, on Spark, as the brute-force answer says."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from geoswarm.config import Contract
from geoswarm.model import TIMESTAMP
from geoswarm.run import sinks
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from worlds import write_files

BOUNDS = (-180.0, -90.0, 180.0, 90.0)
BATCHES, ROWS = 4, 3000


def test_ships_enter_leave_and_stay_where_the_subscriptions_say(
    spark: SparkSession, tmp_path: Path, data_folder: Path
) -> None:
    file = data_folder / "points_ais_nyharbor_week.parquet"
    near = (pc.field("lat") > 40.4) & (pc.field("lat") < 40.9) & (pc.field("lon") > -74.3) & (pc.field("lon") < -73.7)
    ships = pq.read_table(file, filters=near).sort_by("ts").slice(0, BATCHES * ROWS)
    events = pa.table(
        {
            "event_id": np.arange(len(ships)),
            "ts": ships["ts"].cast(TIMESTAMP),
            "x": ships["lon"].cast(pa.float64()),
            "y": ships["lat"].cast(pa.float64()),
            "object_id": ships["mmsi"].cast(pa.int64()),
        }
    )
    rng = np.random.default_rng(0)
    rows = []
    for sub_id in range(40):  # about where ships are
        at = int(rng.integers(0, len(ships)))
        x, y = events["x"][at].as_py(), events["y"][at].as_py()
        size = float(rng.uniform(0.002, 0.05))
        sides = {"xmin": x - size, "ymin": y - size, "xmax": x + size, "ymax": y + size}
        on = ["enter", "exit", "dwell(600)", "inside"][sub_id % 4]
        rows.append({"op": "register", "sub_id": sub_id, "user": "", "on": on} | sides)
    storm = pa.Table.from_pylist(rows)
    batches = [events.slice(b * ROWS, ROWS) for b in range(BATCHES)]
    write_files(tmp_path / "events", batches)
    memory = sinks.Memory()
    with Engine(spark, Contract(executors=3), checkpoint=str(tmp_path / "state"), clock=lambda: 0.0) as engine:
        engine.submit(storm)
        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
            sink=memory,
            available_now=True,
        ).wait()
    oracle = Oracle(BOUNDS)
    missing = {"expires": None, "geometry": None, "keywords": None}
    oracle.operate(pa.Table.from_pylist([row | missing for row in rows]), 0)
    want = [pair for batch in batches for pair in oracle.deliver(batch, 0)]
    assert sorted(pairs_of([memory.table()])) == sorted(want)
    told = {sub % 4 for _, sub in want}
    assert told == {0, 1, 2, 3}, "ships have entered, left and stayed"
