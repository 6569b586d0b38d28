"""The sinks on Spark: a Delta table, and a Parquet folder that is rolled up, as Spark and pyarrow read it."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import geoswarm as gs
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.run.spark import sources
from worlds import BOUNDS, events

BATCHES, EVENTS = 5, 60


def test_matches_are_in_a_delta_table_once_and_counts_in_rolled_files(spark: SparkSession, tmp_path: Path) -> None:
    rng, folder, oracle = np.random.default_rng(3), tmp_path / "events", Oracle(BOUNDS)
    folder.mkdir()
    for number in range(BATCHES):
        pq.write_table(pa.table(events(rng, EVENTS, first_id=EVENTS * number)), folder / f"{number}.parquet")
    tables = [pq.read_table(folder / f"{number}.parquet") for number in range(BATCHES)]
    asked = operation_table([registration(1, BOUNDS), registration(2, (0.0, 0.0, 30.0, 30.0))])
    oracle.operate(asked, 0)
    want = sorted(pair for table in tables for pair in oracle.match(table, 0))
    state, found, counts = (str(tmp_path / name) for name in ("state", "matches", "counts"))
    contract = gs.Contract(bounds=BOUNDS, executors=2)

    def start(engine: gs.Engine, **more: Any) -> Any:
        counted = gs.Stage(
            gs.operators.Count(key="event_id"), gs.sinks.Parquet(counts, roll_rows=150, roll_s=3600.0), on="matches"
        )
        came = sources.events_from_files(spark, str(folder), files_per_batch=1)
        return engine.start(events=came, sink=gs.sinks.Delta(found), stages=[counted], **more)

    with gs.Engine(spark, contract, checkpoint=state) as engine:
        engine.submit(asked)
        run = start(engine)
        run.drain()
        seen = spark.read.parquet(counts).count()  # while the stream runs, and some wait
        assert seen % EVENTS == 0
        assert EVENTS <= seen < BATCHES * EVENTS
        run.stop()
    for file in (tmp_path / "state" / "spark" / "commits").glob(f"*{BATCHES - 1}*"):
        file.unlink()  # as if killed before the last commit
    with gs.Engine(spark, contract, checkpoint=state) as engine:
        start(engine, available_now=True).wait()

    assert sorted(pairs_of([DeltaTable(found).to_pyarrow_table()])) == want
    assert [path.name for path in Path(counts).glob("*/batches-*.parquet")]
    totals = Counter(event for event, _ in want)
    by_spark = [(row["key"], row["count"]) for row in spark.read.parquet(counts).collect()]
    by_arrow = pq.read_table(counts)
    assert sorted(by_spark) == sorted(totals.items())
    pairs = zip(by_arrow["key"].to_pylist(), by_arrow["count"].to_pylist(), strict=True)
    assert sorted(pairs) == sorted(totals.items())
