"""Files that are cut off, vanish or have other columns: both engines go on, and lose nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import geoswarm as gs
from geoswarm.config import Contract
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.parquet_reading import read_parquet
from worlds import BOUNDS, events, rectangles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTRACT = Contract(columns=20, rows=15, executors=3)
FILES = 6


def write_files(folder: Path) -> list[pa.Table]:
    """A good file, one with a column less and one more, one with other types, one that is cut off, one that will be
    gone, and a good one. Returns the events that can be had of each."""
    rng, told = np.random.default_rng(5), []
    for number in range(FILES):
        batch = pa.table(events(rng, 200, first_id=1000 * number))
        written = batch = batch.append_column("speed", pa.array(np.arange(200.0)))
        if number == 1:
            written = batch.drop_columns(["speed"]).append_column("other", pa.array(["x"] * 200))
        if number == 2:
            texts = ["fast" if i % 4 == 0 else str(float(i)) for i in range(200)]
            at = batch.schema.get_field_index("speed")
            written = batch.set_column(at, "speed", pa.array(texts))
            batch = batch.filter(pa.array([i % 4 != 0 for i in range(200)]))
        path = folder / f"{number}.parquet"
        pq.write_table(written, path)
        if number == 3:
            path.write_bytes(path.read_bytes()[:-300])
        told.append(batch if number not in (3, 4) else batch.slice(0, 0))
    return told


def run_through(engine: Any, source: Any, folder: Path, storm: pa.Table) -> tuple[set[tuple[int, int]], pa.Table]:
    """With one file in each batch, all of which are known from the start; the fifth is gone once the first is done."""
    found: list[pa.Table] = []

    def take(matches: Any, batch_id: int) -> None:
        found.append(matches if isinstance(matches, pa.Table) else matches.toArrow())
        (folder / "4.parquet").unlink(missing_ok=True)

    with engine:
        engine.submit(storm)
        engine.start(events=source, sink=take, available_now=True).wait()
        letters = engine.dead_letters()
    rows = [row for table in found for row in table.select(["event_id", "sub_ids"]).to_pylist()]
    return {(row["event_id"], sub) for row in rows for sub in row["sub_ids"]}, letters


def check_story(tmp_path: Path, engine: Callable[[str], Any], source: Callable[[str], Any]) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    usable = write_files(folder)
    rects = rectangles(np.random.default_rng(3), 150)
    storm = operation_table([registration(i, tuple(rect)) for i, rect in enumerate(rects.tolist())])
    oracle = Oracle(BOUNDS)
    oracle.operate(storm, 0)
    want = set[tuple[int, int]]().union(*(oracle.match(batch, 0) for batch in usable))
    got, letters = run_through(engine(str(tmp_path / "state")), source(str(folder)), folder, storm)
    assert len(want) > 200
    assert got == want
    malformed = [letter["row"] for letter in letters.to_pylist() if letter["reason"] == "malformed"]
    assert sum("fast" in text and "speed cannot be converted" in text for text in malformed) == 50
    assert [name for name in ("3.parquet", "4.parquet") for text in malformed if name in text] == [
        "3.parquet",
        "4.parquet",
    ]
    assert len(malformed) == 52


def test_the_local_engine_goes_on(tmp_path: Path) -> None:
    check_story(
        tmp_path,
        lambda checkpoint: gs.LocalEngine(CONTRACT, checkpoint=checkpoint, clock=lambda: 0.0),
        lambda folder: gs.local.events_from_files(folder, files_per_batch=1),
    )


def test_spark_goes_on(spark: "SparkSession", tmp_path: Path) -> None:
    check_story(
        tmp_path,
        lambda checkpoint: gs.Engine(spark, CONTRACT, checkpoint=checkpoint, clock=lambda: 0.0),
        lambda folder: gs.sources.events_from_files(spark, folder, files_per_batch=1),
    )


def test_a_row_whose_value_cannot_be_converted_may_have_text_that_is_no_utf8(tmp_path: Path) -> None:
    raw = pa.array([b"\xff\xfe", b"calm"])
    spoilt = pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"speed": ["fast", "7"], "text": spoilt}), path)
    schema = pa.schema([("speed", pa.float64()), ("text", pa.string()), (MALFORMED, pa.string())])
    rows = pa.Table.from_batches(read_parquet(path, 0, None, schema))
    assert rows["speed"].to_pylist() == [None, 7.0]
    assert rows["text"].to_pylist() == [None, "calm"]
    assert "no UTF-8" in rows[MALFORMED][0].as_py()
