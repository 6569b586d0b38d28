"""Small batches run in the driver, without a job of Spark's: the outcome is that of tasks, whichever road they take."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoswarm as gs
from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.flow.keyed.count import Count
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.spark import driver_rows
from geoswarm.run.spark.driver_rows import Driver
from geoswarm.run.stream_log import TakenFile
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry, KeyedBatchEntry
from geoswarm.store.storage import Storage
from worlds import BOUNDS, events, operations, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONTRACT = Contract(columns=20, rows=15, executors=5)
PAIRS = Tuning(matches="pairs")
Pairs = set[tuple[int, int]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pairs]:
    """Files of events and operations, one of each for each of four batches; and what the oracle makes of them."""
    folder, rng, oracle = tmp_path_factory.mktemp("world"), np.random.default_rng(21), Oracle(BOUNDS)
    want: Pairs = set()
    came, asked = [], []
    for batch in range(4):
        came.append(pa.table(events(rng, 300, first_id=1000 * batch)))
        asked.append(operations(rng, 80, ids=90, now_us=0))
        oracle.operate(asked[-1], 0)
        want |= oracle.match(came[-1], 0)
    write_files(folder / "events", came)
    write_files(folder / "operations", asked)
    assert len(want) > 300
    return folder, want


@pytest.fixture
def jobs(spark: "SparkSession") -> Callable[[], int]:
    """Counts the jobs of Spark since the test began."""
    tracker = spark.sparkContext._jsc.sc().dagScheduler()
    before = int(tracker.nextJobId())
    return lambda: int(tracker.nextJobId()) - before


def start(spark: "SparkSession", folder: Path, state: Path, sink: Any, **changes: Any) -> "list[BatchEntry]":
    tuning = changes.pop("tuning", PAIRS)
    came = gs.sources.events_from_files(spark, str(folder / "events"), files_per_batch=1)
    asked = gs.sources.operations_from_files(spark, str(folder / "operations"), files_per_batch=1)
    with gs.Engine(spark, CONTRACT, tuning, checkpoint=str(state), clock=lambda: 0.0) as engine:
        engine.start(events=came, operations=asked, sink=sink, available_now=True, **changes).wait()
    return list(JournalReader(Storage(str(state))).read(BatchEntry))


def pairs_of(table: pa.Table) -> Pairs:
    pairs = list(zip(table["event_id"].to_pylist(), table["sub_id"].to_pylist(), strict=True))
    assert len(pairs) == len(set(pairs))
    return set(pairs)


@pytest.mark.usefixtures("driver_runs")
def test_a_small_batch_starts_no_job_of_spark_and_counts_as_tasks_do(
    spark: "SparkSession", world: tuple[Path, Pairs], tmp_path: Path, jobs: Callable[[], int]
) -> None:
    folder, want = world
    sink, counts = gs.sinks.Parquet(str(tmp_path / "out")), gs.sinks.Memory()
    stage = gs.Stage(Count(key="sub_id"), counts, on="matches")
    entries = start(spark, folder, tmp_path / "state", sink, stages=[stage])
    assert pairs_of(sink.read()) == want
    assert jobs() <= 2, "those that read the columns of the first files"
    assert [entry.events_in for entry in entries] == [300] * 4
    assert set(entries[-1].executors) == set(range(5)), "a count for each executor"
    assert all(load.cpu_us > 0 for load in entries[-1].executors.values())
    keyed = list(JournalReader(Storage(str(tmp_path / "state"))).read(KeyedBatchEntry))
    assert sum(entry.rows for entry in keyed) == len(want)
    assert not (tmp_path / "state" / "reports").exists(), "reports stay in memory"


class Breaks(gs.sinks.Sink):
    """A sink that fails once, in the middle of a batch that it has already written."""

    def __init__(self, inner: gs.sinks.Sink, batch: int) -> None:
        self._inner, self._batch = inner, batch

    def write(self, matches: Any, batch_id: int) -> None:
        self._inner.write(matches, batch_id)
        if batch_id == self._batch:
            self._batch = -1
            raise gs.errors.StreamError("the driver dies here")


@pytest.mark.parametrize("first", [True, False])
def test_a_batch_that_was_cut_off_may_be_run_again_on_the_other_road(
    spark: "SparkSession", world: tuple[Path, Pairs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """Batch 1 is cut off after its matches were kept in memory; its second run must give the same, and no more."""
    folder, want = world
    memory = gs.sinks.Memory()
    monkeypatch.setattr(driver_rows, "is_warm", lambda: first)
    with pytest.raises(gs.errors.StreamError, match="dies here"):
        start(spark, folder, tmp_path / "state", Breaks(memory, 1))
    cut_off = pairs_of(memory.batches.pop(1))
    monkeypatch.setattr(driver_rows, "is_warm", lambda: not first)
    entries = start(spark, folder, tmp_path / "state", memory)
    assert pairs_of(memory.batches[1]) == cut_off
    assert pairs_of(memory.table()) == want
    assert [entry.batch for entry in entries] == [0, 1, 2, 3]


@pytest.mark.usefixtures("driver_runs")
def test_a_function_gets_the_same_dataframe_from_the_driver_as_from_tasks(
    spark: "SparkSession", world: tuple[Path, Pairs], tmp_path: Path
) -> None:
    folder, want = world
    (tmp_path / "quiet").mkdir()
    write_files(tmp_path / "quiet" / "events", [pa.table(events(np.random.default_rng(1), 9, first_id=0))])
    write_files(tmp_path / "quiet" / "operations", [OPERATION.empty_table()])
    seen: list[tuple[Any, pa.Table]] = []

    def keep(frame: "DataFrame", batch_id: int) -> None:
        seen.append((frame.schema, frame.where("event_id >= 0").toArrow()))

    start(spark, folder, tmp_path / "driver", keep)
    ran = len(seen)
    start(spark, folder, tmp_path / "tasks", keep, tuning=PAIRS.model_copy(update={"driver_bytes_max": 0}))
    start(spark, tmp_path / "quiet", tmp_path / "none", keep)
    assert ran == len(seen) - ran - 1 == 4
    assert not len(seen.pop()[1]), "nobody has subscribed to anything"
    assert {schema.json() for schema, _ in seen} == {seen[0][0].json()}
    for part in (seen[:ran], seen[ran:]):
        assert pairs_of(pa.concat_tables(table for _, table in part)) == want


@pytest.mark.usefixtures("driver_runs")
def test_what_cannot_be_read_is_a_dead_letter_in_the_driver_too(spark: "SparkSession", tmp_path: Path) -> None:
    folder = tmp_path / "events"
    rng = np.random.default_rng(5)
    write_files(folder, [pa.table(events(rng, 50, first_id=0)), pa.table(events(rng, 50, first_id=100))])
    last = max(folder.iterdir())
    last.write_bytes(last.read_bytes()[:-200])
    came = gs.sources.events_from_files(spark, str(folder))
    with gs.Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(7, BOUNDS)
        engine.start(events=came, sink=(sink := gs.sinks.Memory()), available_now=True).wait()
        letters = engine.dead_letters().to_pylist()
    assert len(sink.table()) > 30
    assert [last.name in letter["row"] for letter in letters if letter["reason"] == "malformed"] == [True]


def taken(paths: Sequence[Path]) -> list[TakenFile]:
    return [TakenFile(path, 0, 0) for path in paths]


@pytest.mark.usefixtures("driver_runs")
def test_the_driver_leaves_to_tasks_what_is_large_or_compared_or_gone(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.parquet" for i in range(2)]
    for file in files:
        pq.write_table(pa.table({"x": np.arange(1000)}), file)
    size = sum(file.stat().st_size for file in files)
    assert Driver(Tuning(driver_bytes_max=size)).takes(taken(files))
    assert not Driver(Tuning(driver_bytes_max=size - 1)).takes(taken(files))
    assert not Driver(Tuning(driver_bytes_max=0)).takes([])
    assert not Driver(Tuning(exchange="rows")).takes(taken(files))
    assert not Driver(Tuning(pipeline="sps")).takes(taken(files))
    assert not Driver(Tuning()).takes(taken([*files, tmp_path / "gone.parquet"]))


@pytest.fixture
def _cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(driver_rows, "_warming", None)


@pytest.mark.usefixtures("_cold")
def test_batches_go_to_tasks_while_the_driver_loads_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = threading.Event()
    monkeypatch.setattr(driver_rows, "load_kernels", loaded.wait)
    assert not driver_rows.is_warm()
    assert not driver_rows.is_warm()
    loaded.set()
    assert driver_rows._warming is not None
    driver_rows._warming.join()
    assert driver_rows.is_warm()
