"""Words as well as places, on Spark."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from geoswarm.config import Contract, Tuning
from geoswarm.errors import InputError, SchemaError
from geoswarm.run import sinks
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair, pairs_of
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.rows import SparkRows
from restless import changes_with_terms
from worlds import BOUNDS, events, operations, with_keywords, with_texts, write_files

CONTRACT = Contract(columns=30, rows=30, executors=3)
BATCHES = 6
LATER_US = 4_000_000_000_000_000  # so that nothing expires meanwhile


@pytest.mark.parametrize(("seed", "matches"), [(1, "arrays"), (2, "pairs")])
def test_events_that_visit_several_executors_for_their_words_go_out_once(
    spark: SparkSession, tmp_path: Path, seed: int, matches: str
) -> None:
    rng, oracle, want = np.random.default_rng(seed), Oracle(BOUNDS), list[Pair]()
    batches, storms = [], []
    for b in range(BATCHES):
        batches.append(with_texts(rng, events(rng, 200, first_id=1000 * b)))
        storms.append(with_keywords(rng, operations(rng, 90, ids=70, now_us=LATER_US)))
        oracle.operate(storms[-1], 0)
        want += oracle.match(batches[-1], 0)
    write_files(tmp_path / "events", batches)
    write_files(tmp_path / "operations", storms)
    memory, reasons = sinks.Memory(), set()
    tuning = Tuning.model_validate({"matches": matches})
    with Engine(spark, CONTRACT, tuning, checkpoint=str(tmp_path / "state"), clock=lambda: 0.0) as engine:

        def sink(found: DataFrame, batch_id: int) -> None:
            memory.write(SparkRows(found), batch_id)
            plan = engine._checkpoint.plan
            engine._checkpoint.adopt_plan(plan.apply(changes_with_terms(plan, rng, 4)))

        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
            operations=sources.operations_from_files(spark, str(tmp_path / "operations"), files_per_batch=1),
            sink=sink,
            available_now=True,
        ).wait()
        status, reasons = engine.status(), set(engine.dead_letters()["reason"].to_pylist())
    table = memory.table()
    assert sorted(pairs_of([table])) == sorted(want)
    assert status["matched"] == len({event for event, _ in want})
    assert status["matches"] == len(want)
    assert status["events"] == 200 * BATCHES
    assert "keywords" in reasons
    if matches == "arrays":
        assert len(set(table["event_id"].to_pylist())) == len(table)
    assert "_event" not in table.schema.names


def test_a_subscription_asks_for_words_in_a_place_or_anywhere(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"event_id": 1, "ts": 0, "x": 5.0, "y": 5.0, "text": "The river Thames: FLOOD warning"},
        {"event_id": 2, "ts": 0, "x": 50.0, "y": 5.0, "text": "flood at the dam"},
        {"event_id": 3, "ts": 0, "x": 5.0, "y": 5.0, "text": None},
    ]
    schema = events(np.random.default_rng(0), 0).schema.append(pa.field("text", pa.string()))
    write_files(tmp_path / "events", [pa.Table.from_pylist(rows, schema=schema)])
    sink = sinks.Memory()
    with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, (0.0, 0.0, 10.0, 10.0), keywords="flood AND (river OR dam)")
        engine.subscribe(2, keywords="Flood")
        engine.subscribe(3, (0.0, 0.0, 10.0, 10.0))
        with pytest.raises(InputError, match="at character 11"):
            engine.subscribe(4, keywords="flood AND (river")
        stream = sources.events_from_files(spark, str(tmp_path / "events"))
        engine.start(events=stream, sink=sink, available_now=True).wait()
    assert sorted(pairs_of([sink.table()])) == [(1, 1), (1, 2), (1, 3), (2, 2), (3, 3)]


def test_a_text_that_is_no_text_is_refused_before_the_stream_starts(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path / "events", [pa.table(events(np.random.default_rng(0), 3))])
    stream = sources.events_from_files(spark, str(tmp_path / "events")).withColumn("text", F.lit(7))
    with (
        Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine,
        pytest.raises(SchemaError, match="rename it"),
    ):
        engine.start(events=stream, sink=sinks.Memory(), available_now=True)
