"""Where tasks read and write files themselves, and where Spark does: the matches are the same."""

import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoswarm as gs
from geoswarm.config import Contract, Tuning
from geoswarm.run.offsets import OffsetLog
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.spark import sources
from geoswarm.run.spark.session import UNIX_SOCKETS, warn_of_slow_sockets
from geoswarm.run.spark.task_files import files_of
from geoswarm.run.stream_log import TakenFile
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage
from worlds import BOUNDS, events, operations, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONTRACT = Contract(columns=20, rows=15, executors=5)
Change = Callable[["DataFrame"], "DataFrame"]


def as_is(frame: "DataFrame") -> "DataFrame":
    return frame


def changed(frame: "DataFrame") -> "DataFrame":
    return frame.select("*")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[tuple[int, int]]]:
    """Files of events and operations, one of each for each of three batches; and what the oracle makes of them."""
    folder, rng, oracle = tmp_path_factory.mktemp("world"), np.random.default_rng(8), Oracle(BOUNDS)
    want: set[tuple[int, int]] = set()
    came, asked = [], []
    for batch in range(3):
        came.append(pa.table(events(rng, 300, first_id=1000 * batch)))
        asked.append(operations(rng, 80, ids=90, now_us=0))
        oracle.operate(asked[-1], 0)
        want |= oracle.match(came[-1], 0)
    write_files(folder / "events", came)
    write_files(folder / "operations", asked)
    assert len(want) > 300
    return folder, want


@pytest.mark.parametrize(("of_events", "of_operations"), [(as_is, as_is), (as_is, changed), (changed, as_is)])
def test_files_read_by_tasks_and_by_spark_give_the_same(
    spark: "SparkSession",
    world: tuple[Path, set[tuple[int, int]]],
    tmp_path: Path,
    of_events: Change,
    of_operations: Change,
) -> None:
    folder, want = world
    came = of_events(sources.events_from_files(spark, str(folder / "events"), files_per_batch=1))
    asked = of_operations(sources.operations_from_files(spark, str(folder / "operations"), files_per_batch=1))
    assert (files_of(came) is not None) == (of_events is as_is)
    tuning = Tuning(matches="pairs")
    with gs.Engine(spark, CONTRACT, tuning, checkpoint=str(tmp_path / "state"), clock=lambda: 0.0) as engine:
        sink = gs.sinks.Parquet(str(tmp_path / "out"))
        engine.start(events=came, operations=asked, sink=sink, available_now=True).wait()
    found = sink.read()
    pairs = list(zip(found["event_id"].to_pylist(), found["sub_id"].to_pylist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == want
    entries = list(JournalReader(Storage(str(tmp_path / "state"))).read(BatchEntry))
    assert [entry.events_in for entry in entries] == [300] * 3
    assert set(entries[-1].executors) == set(range(5)), "fewer tasks than executors, and a count for each executor"
    assert {file.suffix for file in (tmp_path / "out" / "batch=0").iterdir()} == {".parquet"}


def test_operations_are_found_behind_events_of_several_folders(
    spark: "SparkSession", world: tuple[Path, set[tuple[int, int]]], tmp_path: Path
) -> None:
    folder, _ = world
    halves = [tmp_path / name for name in ("left", "right")]
    for half in halves:
        half.mkdir()
        (half / "a.parquet").write_bytes((folder / "events" / "00000.parquet").read_bytes())
    left, right = (sources.events_from_files(spark, str(half)) for half in halves)
    asked = sources.operations_from_files(spark, str(folder / "operations"))
    assert files_of(asked) is not None
    with gs.Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state"), clock=lambda: 0.0) as engine:
        sink = gs.sinks.Memory()
        engine.start(events=left.union(right), operations=asked, sink=sink, available_now=True).wait()
        assert engine.status()["subscriptions"] > 20
    assert len(sink.table()) > 100


def test_files_that_only_spark_can_reach_are_not_looked_for(tmp_path: Path) -> None:
    for number, uri in enumerate(("file:///data/a.json", "hdfs://host:8020/data/b.json")):
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{{}}\n{{"logOffset":{number}}}')
        (tmp_path / "sources" / "0").mkdir(parents=True, exist_ok=True)
        entry = {"path": uri, "timestamp": 1, "batchId": number}
        (tmp_path / "sources" / "0" / str(number)).write_text(f"v1\n{json.dumps(entry)}")
    log = OffsetLog(str(tmp_path))
    assert [str(file.path) for file in log.files(0, 0) or ()] == ["/data/a.json"]
    assert log.files(0, -1) == log.files(0, 0)
    assert log.files(1, 0) is None


def test_lines_of_text_are_read_by_tasks(spark: "SparkSession", tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    row = {"event_id": 1, "ts": "2026-01-01T00:00:00Z", "x": 1.0, "y": 1.0, "speed": 3}
    (folder / "a.json").write_text("\n".join([json.dumps(row), "{broken", json.dumps(row | {"event_id": 2})]))
    came = sources.events_from_files(spark, str(folder), extra="speed double")
    assert files_of(came) is not None
    with gs.Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(7, (0.0, 0.0, 2.0, 2.0))
        engine.start(events=came, sink=(sink := gs.sinks.Memory()), available_now=True).wait()
        letters = engine.dead_letters().to_pylist()
    assert sorted(sink.table()["event_id"].to_pylist()) == [1, 2]
    assert sink.table()["speed"].to_pylist() == [3.0, 3.0]
    assert [letter["row"] for letter in letters] == ["{broken"]


def test_workers_that_read_files_are_used_again(
    spark: "SparkSession", world: tuple[Path, set[tuple[int, int]]]
) -> None:
    """A worker that leaves some of its input unread is dropped by Spark, and the next one has nothing mapped yet."""
    came = sources.events_from_files(spark, str(world[0] / "events"))
    taken = [TakenFile(path, 0, 0) for path in sorted((world[0] / "events").iterdir())]
    files, pid = files_of(came), pa.schema([("pid", pa.int64())])
    assert files is not None

    def tell(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert sum(map(len, batches)) == 900
        yield pa.record_batch([pa.array([os.getpid()])], schema=pid)

    tell.__module__ = "__main__"  # so that it travels by value
    seen = [files.rows(spark, taken).map(tell, pid).to_arrow()["pid"][0].as_py() for _ in range(12)]
    assert len(set(seen)) < len(seen), "the workers of other tests are among them, but not a new one each time"


def test_spark_reads_what_only_it_understands(spark: "SparkSession", tmp_path: Path) -> None:
    """Folders whose names are a column."""
    for day in (1, 2):
        (tmp_path / "events" / f"day={day}").mkdir(parents=True)
        batch = pa.table(events(np.random.default_rng(day), 5, first_id=10 * day))
        pq.write_table(batch, tmp_path / "events" / f"day={day}" / "a.parquet")
    came = sources.events_from_files(spark, str(tmp_path / "events"), format="parquet")
    with gs.Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(7, BOUNDS)
        engine.start(events=came, sink=(sink := gs.sinks.Memory()), available_now=True).wait()
    assert sorted(sink.table()["day"].to_pylist()) == [1] * 5 + [2] * 5


class OtherSession:
    """A session of the user's own, by its settings."""

    def __init__(self, **conf: str) -> None:
        self._conf = conf

    @property
    def sparkContext(self) -> "OtherSession":  # noqa: N802
        return self

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return self._conf


def test_a_session_without_unix_sockets_is_told_which_setting_it_lacks(spark: "SparkSession") -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_slow_sockets(spark)
    slow: Any = OtherSession()
    with pytest.warns(RuntimeWarning, match=f"{UNIX_SOCKETS}=true"):
        warn_of_slow_sockets(slow)
