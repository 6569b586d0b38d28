"""Kept events and objects on Spark: tasks keep them, encrypted if there is a key, and any process finds them."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.run.oracle.past import ObjectOracle, PastOracle
from geoswarm.store.key_source import KEY_FILE, make_key_file
from geoswarm.store.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLD = gs.Contract(columns=20, rows=20, executors=3)
BOX = (-90.0, -45.0, 90.0, 45.0)


@pytest.mark.parametrize("exchange", ["packed", "rows"])
def test_what_tasks_keep_is_what_came(
    spark: "SparkSession", tmp_path: Path, exchange: Literal["packed", "rows"]
) -> None:
    rng = np.random.default_rng(1)
    tables = [worlds.with_texts(rng, worlds.events(rng, 300, first_id=1000 * k)) for k in range(2)]
    tables = [table.append_column("object_id", pa.array(rng.integers(0, 90, 300))) for table in tables]
    worlds.write_files(tmp_path / "events", tables)
    tuning = gs.Tuning(exchange=exchange, window=gs.WindowSettings(keep="1 hour"), keeps_objects=True)
    events = gs.sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1)
    with gs.Engine(spark, WORLD, tuning, checkpoint=str(tmp_path / "state")) as engine:
        engine.start(events=events, sink=gs.sinks.Noop(), available_now=True).wait()
        found = engine.query(BOX)["event_id"].to_pylist()
        near = engine.nearest(-30.0, 12.0, 25)["event_id"].to_pylist()
        objects = engine.nearest(-30.0, 12.0, 25, of="objects")["object_id"].to_pylist()
    want = [
        event_id
        for table in tables
        for event_id, x, y in zip(*(table[name].to_pylist() for name in ("event_id", "x", "y")), strict=True)
        if BOX[0] <= x <= BOX[2] and BOX[1] <= y <= BOX[3]
    ]
    assert found == sorted(want, reverse=True)
    past, who = PastOracle(worlds.BOUNDS, gs.WindowSettings(keep="1 hour")), ObjectOracle(worlds.BOUNDS, 4)
    for table in tables:
        past.take(table, 0)
        who.take(table, 0)
    everywhere = operation_table([registration(0, worlds.BOUNDS)])
    assert near == [event_id for event_id, _ in past.nearest((-30.0, 12.0), 25, asked=everywhere)]
    assert objects == who.nearest((-30.0, 12.0), 25)


def test_kept_events_are_encrypted_with_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_key_file(tmp_path / "key")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    rng = np.random.default_rng(1)
    tuning = gs.Tuning(window=gs.WindowSettings(keep="1 hour"))
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path / "state")) as engine:
        table = worlds.with_texts(rng, worlds.events(rng, 300))
        engine.start(events=[table], sink=gs.sinks.Noop(), available_now=True).wait()
    assert len(gs.Past(str(tmp_path / "state")).query(keywords="flood").events) > 10
    storage = Storage(str(tmp_path / "state"))
    kept = [Path(storage.path(f"kept/parts/{name}")).read_bytes() for name in storage.names("kept/parts")]
    assert kept
    assert not any(b"flood" in data or b"FLOOD" in data for data in kept)
