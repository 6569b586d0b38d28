"""Large answers about the past: what tasks find together is what one process finds."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import geoswarm as gs
import worlds
from geoswarm.errors import InputError
from geoswarm.flow.keep import KeptPart
from geoswarm.run.spark import past_frames
from geoswarm.store.kept.files import PARTS_FOLDER
from geoswarm.store.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLD = gs.Contract(columns=20, rows=20, executors=3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_tasks_find_what_one_process_finds_and_say_what_is_gone(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_frames, "TASK_BLOCKS_MIN", 2)
    rng = np.random.default_rng(1)
    tables = [worlds.with_texts(rng, worlds.events(rng, 3000, first_id=10_000 * k)) for k in range(2)]
    tables.append(tables[0].slice(0, 100).append_column("speed", tables[0].slice(0, 100)["x"]))
    tuning = gs.Tuning(window=gs.WindowSettings(keep="1 hour"))
    for number, table in enumerate(tables):
        with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path)) as engine:
            given = [table.slice(0, 0)] * number + [table]
            engine.start(events=given, sink=gs.sinks.Noop(), available_now=True).wait()
    past = gs.Past(str(tmp_path))
    asked: list[dict[str, Any]] = [
        {},
        {"rectangle": (-90, -45, 90, 45), "since": EPOCH + timedelta(microseconds=9000)},
        {"geometry": "CIRCLE(0 0, 4000000)", "keywords": "flood OR dam"},
        {"where": "x > 0 AND (speed < 90 OR speed IS NULL AND text LIKE '%flood%')"},
        {"rectangle": (10, 10, 10.001, 10.001)},
    ]
    for query in asked:
        want, frame = past.query(**query).events, gs.past_frame(spark, past, **query)
        found = frame.toArrow()
        assert sorted(found["event_id"].to_pylist()) == sorted(want["event_id"].to_pylist())
        assert len(found) == len(want)
    whole = gs.past_frame(spark, past, columns=["event_id", "speed"])
    assert whole.rdd.getNumPartitions() > 3
    assert whole.filter("speed is not null").count() == 100
    nothing = gs.past_frame(spark, past, (10, 10, 10.001, 10.001), columns=["text"])
    assert nothing.columns == ["text"]
    refused: list[tuple[dict[str, Any], str]] = [
        ({"where": "sped > 1"}, "there is no 'sped'"),
        ({"columns": ["sped"]}, "no column sped is kept"),
    ]
    for wrong, said in refused:
        with pytest.raises(InputError, match=said):
            gs.past_frame(spark, past, **wrong)
    for name in Storage(str(tmp_path)).names(PARTS_FOLDER):
        (tmp_path / PARTS_FOLDER / name).unlink()
    with pytest.raises(Exception, match=r"is not there any more .* make the frame again and use it at once"):
        whole.count()


def test_blocks_are_divided_evenly_and_each_is_read_once() -> None:
    part = KeptPart("a", 0, 0, (0.0, 0.0, 1.0, 1.0), (0, 1))
    rng = np.random.default_rng(1)
    pieces = [(part._replace(name=str(k)), rng.random(n) < 0.5) for k, n in enumerate((5000, 3, 900, 0, 2000))]
    tasks = past_frames.divide(pieces, 8)
    read = {part.name: np.zeros(len(blocks), np.int64) for part, blocks in pieces}
    for task in tasks:
        for part, blocks in task:
            read[part.name] += blocks
    assert all((read[part.name] == blocks).all() for part, blocks in pieces)
    sizes = [sum(int(blocks.sum()) for _, blocks in task) for task in tasks]
    assert len(tasks) == 8
    assert max(sizes) - min(sizes[:-1]) == 0
    assert past_frames.divide([], 8) == [[]]
