"""A checkpoint on an object store: a real S3 server on loopback, files cached on the host before they are mapped."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from aggregate_worlds import CONTRACT, SETTINGS, AggregateWorld, check
from geoswarm.config import Contract, Tuning
from geoswarm.errors import CorruptState, FencedOut, SettingsError
from geoswarm.run import sinks
from geoswarm.run.collection import Subscriptions
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair, pairs_of
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.service.subscriptions import export
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.fence import Fence
from geoswarm.store.scale_requests import put_request, waiting_requests
from geoswarm.store.storage import Storage
from worlds import BOUNDS, events, operations

START_S_MAX = 60.0


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an empty bucket."""
    log = tmp_path_factory.mktemp("s3") / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-c", "from moto.server import main; main(['-H', '127.0.0.1', '-p', '0'])"],
            stdout=out,
            stderr=out,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            endpoint = _endpoint(log, server)
            options = f"?endpoint_override={endpoint}&scheme=http&region=us-east-1&allow_bucket_creation=true"
            filesystem, _ = pafs.FileSystem.from_uri(f"s3://geo{options}")
            filesystem.create_dir("geo")
            yield f"s3://geo/{{}}{options}"
        finally:
            server.kill()
            server.wait()


def _endpoint(log: Path, server: subprocess.Popen[bytes]) -> str:
    give_up_s = time.monotonic() + START_S_MAX
    while time.monotonic() < give_up_s and server.poll() is None:
        for line in log.read_text().splitlines():
            if "Running on http://" in line:
                return line.split("http://")[1].strip()
        time.sleep(0.1)
    pytest.fail(f"the S3 server did not start: {log.read_text()}")


def test_arrays_are_fetched_once_and_mapped(bucket: str, tmp_path: Path) -> None:
    storage = Storage(bucket.format("a"), cache=str(tmp_path))
    storage.write_arrays("deep/file", {"x": np.arange(1000), "none": np.empty(0)})
    assert storage.map_arrays("deep/file")["x"].sum() == 499500
    storage.remove("deep/file")
    assert len(storage.map_arrays("deep/file")["x"]) == 1000  # from the host's copy
    assert storage.names("deep") == []
    with pytest.raises(CorruptState, match="never/there is missing"):
        storage.map_arrays("never/there")


def test_a_damaged_copy_on_the_host_is_fetched_again(bucket: str, tmp_path: Path) -> None:
    storage = Storage(bucket.format("b"), cache=str(tmp_path))
    storage.write_arrays("file", {"x": np.arange(1000)})
    copy = storage.local("file")
    copy.write_bytes(copy.read_bytes()[:-10])
    with pytest.raises(CorruptState):
        storage.map_arrays("file")
    assert storage.map_arrays("file")["x"].sum() == 499500


def test_a_file_that_is_written_again_is_not_taken_from_the_host(bucket: str, tmp_path: Path) -> None:
    storage = Storage(bucket.format("again"), cache=str(tmp_path))
    for count in (1000, 10):  # the first of them by a draft that failed
        storage.write_arrays("file", {"x": np.arange(count)})
        assert len(storage.map_arrays("file")["x"]) == count


def test_a_host_keeps_copies_where_no_other_user_can_write(bucket: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    storage = Storage(bucket.format("own"), cache=str(cache))
    storage.write_arrays("file", {"x": np.arange(3)})
    storage.map_arrays("file")
    assert cache.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(cache)
    other = Storage(bucket.format("own"), cache=str(tmp_path / "link"))
    with pytest.raises(SettingsError, match="somebody else"):
        other.map_arrays("file")


def test_keys_in_the_address_are_refused() -> None:
    with pytest.raises(SettingsError, match="keep keys out"):
        Storage("s3://key:secret@geo/x")


def test_without_locks_the_later_engine_fences_off_the_earlier(bucket: str) -> None:
    storage = Storage(bucket.format("c"))
    first = Fence(storage)
    first.check()
    second = Fence(storage)
    second.check()
    with pytest.raises(FencedOut, match="number 2 has started since"):
        first.check()


def test_segments_on_an_object_store_are_merged_by_a_process(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoswarm.store.merging.process.HERE_SUBS_MAX", 0)
    drawn, oracle = np.random.default_rng(10), Oracle(BOUNDS)
    held = Checkpoint(bucket.format("f"), Contract(columns=50, rows=50, executors=3), Tuning(deltas_max=1))
    for number in range(3):
        storm = operations(drawn, 60, ids=50)
        held.prepare(number, lambda storm=storm: [storm], 0)  # type: ignore[misc]
        oracle.operate(storm, 0)
    assert len(held.settle(0).segments) == 1
    live = [sides for *sides, expires_us in oracle.live.values() if expires_us is None or expires_us > 0]
    assert sorted(held.live_rects().tolist()) == sorted(live)
    assert live
    held.close()


def test_the_engine_runs_from_an_object_store_and_resumes(bucket: str, spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    oracle, want, sink = Oracle(BOUNDS), list[Pair](), sinks.Memory()
    for name in ("events", "operations"):
        (tmp_path / name).mkdir()
    for b in range(2):
        batch, storm = pa.table(events(rng, 100, first_id=1000 * b)), operations(rng, 60, ids=50)
        pq.write_table(batch, tmp_path / "events" / f"{b}.parquet")
        pq.write_table(storm, tmp_path / "operations" / f"{b}.parquet")
        oracle.operate(storm, 0)
        want += oracle.match(batch, 0)
        with Engine(
            spark,
            Contract(columns=50, rows=50, executors=3),
            checkpoint=bucket.format("d"),
            spark_checkpoint=str(tmp_path / "spark"),
            clock=lambda: 0.0,
        ) as engine:
            stream = sources.events_from_files(spark, str(tmp_path / "events"))
            changes = sources.operations_from_files(spark, str(tmp_path / "operations"))
            engine.start(events=stream, operations=changes, sink=sink, available_now=True).wait()
            assert engine.status()["batches"] == b + 1
    assert sorted(pairs_of([sink.table()])) == sorted(want)


def test_a_request_to_scale_reaches_an_engine_on_an_object_store(bucket: str) -> None:
    address, drawn = bucket.format("e"), np.random.default_rng(9)
    with LocalEngine(Contract(columns=50, rows=50, executors=3), checkpoint=address) as engine:
        put_request(Storage(address), 4, 1)
        put_request(Storage(address), 7, 2)
        engine.start(events=pa.table(events(drawn, 10)), sink=sinks.Memory(), available_now=True).wait()
        assert engine.executors == 7
    assert not waiting_requests(Storage(address)).names


def test_windows_stay_open_on_an_object_store(bucket: str) -> None:
    world, place = AggregateWorld(70, batches=5), bucket.format("aggregates")
    matches, answers = sinks.Memory(), sinks.Memory()
    settings = Tuning(aggregates=SETTINGS)
    for batches in (3, 5):  # two starts
        events, operations = ([made(number) for number in range(batches)] for made in (world.events, world.operations))
        clock = lambda: world.now_us(len(matches.batches)) / 1e6  # noqa: E731
        with LocalEngine(CONTRACT, settings, checkpoint=place, clock=clock) as engine:
            stream = {"events": events, "operations": operations, "sink": matches, "aggregates": answers}
            engine.start(**stream, available_now=True).wait()  # type: ignore[arg-type]
    assert check(place, world, matches, answers) > 3


@pytest.mark.slow
def test_subscriptions_are_listed_and_exported_from_an_object_store(bucket: str, tmp_path: Path) -> None:
    address = bucket.format("collection")
    with LocalEngine(Contract(columns=20, rows=20), Tuning(deltas_max=1), checkpoint=address) as engine:
        asked = Subscriptions(address)
        for sub_id in range(1, 8):
            engine.subscribe(sub_id, (0, 0, 1, sub_id), payload=sub_id)
            assert asked.page()["sub_id"].to_pylist() == list(range(1, sub_id + 1))
        engine.cancel(3)
        assert asked.get(3) is None
    assert export(asked, tmp_path / "all.parquet") == 6
    assert pq.read_table(tmp_path / "all.parquet")["payload"].to_pylist() == ["1", "2", "4", "5", "6", "7"]
