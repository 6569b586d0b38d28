"""The past of new subscriptions on Spark: a task of the batch's own job gives it, also where no event comes."""

import os
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import geoswarm as gs
import worlds
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.run.oracle.outputs import Pair, pairs_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLD = gs.Contract(columns=20, rows=20, executors=3)
BOX = (-90.0, -45.0, 90.0, 45.0)


def test_the_past_comes_first_and_from_tasks(spark: "SparkSession", tmp_path: Path) -> None:
    """Batch 1 has events and a subscription, batch 2 only a subscription."""
    rng, state = np.random.default_rng(1), str(tmp_path / "state")
    tables = [worlds.with_texts(rng, worlds.events(rng, 300, first_id=1000 * k)) for k in range(2)]
    (tmp_path / "operations").mkdir()
    window = gs.WindowSettings(keep="1 hour", marks_past=True)
    tuning = gs.Tuning(window=window, driver_bytes_max=0)
    sink = gs.sinks.Parquet(str(tmp_path / "matches"), roll_s=0)
    for number, asked in enumerate([0, 1, 2]):
        worlds.write_files(tmp_path / "events", tables[: number + 1])
        if asked:
            row = registration(asked, BOX, since=datetime(1970, 1, 1, tzinfo=UTC))
            pq.write_table(operation_table([row]), tmp_path / f"operations/{asked}.parquet")
            os.utime(tmp_path / f"operations/{asked}.parquet", (1_000_000 + asked,) * 2)
        else:
            pq.write_table(operation_table([]), tmp_path / "operations/0.parquet")
            os.utime(tmp_path / "operations/0.parquet", (1_000_000,) * 2)
        with gs.Engine(spark, WORLD, tuning, checkpoint=state) as engine:
            events = gs.sources.events_from_files(spark, str(tmp_path / "events"))
            operations = gs.sources.operations_from_files(spark, str(tmp_path / "operations"))
            engine.start(events=events, operations=operations, sink=sink, available_now=True).wait()
            found = engine.query(BOX)["event_id"].to_pylist()
    table = sink.read()
    assert table.schema.field("past").type == pa.bool_()
    pairs = dict[tuple[int, bool], set[Pair]]()
    for key in product((1, 2), (True, False)):
        chosen = [row == key for row in zip(table["batch"].to_pylist(), table["past"].to_pylist(), strict=True)]
        pairs[key] = set(pairs_of([table.filter(pa.array(chosen))]))
    first, second = ({e for e in found if e // 1000 == k} for k in range(2))
    assert pairs[1, True] == {(e, 1) for e in first}
    assert pairs[1, False] == {(e, 1) for e in second}
    assert pairs[2, True] == {(e, 2) for e in first | second}
    assert not pairs[2, False]
    assert len(first) > 50
