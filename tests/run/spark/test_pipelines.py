"""Four pipelines and two sides on Spark: the same matches by eight ways, and who redistributes does so in each."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from geoswarm.config import Contract, Tuning
from geoswarm.control.outcome import RoundEntry
from geoswarm.errors import SettingsError
from geoswarm.model import TIMESTAMP
from geoswarm.run import sinks
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.rows import SparkRows
from geoswarm.store.journal import JournalReader
from geoswarm.store.storage import Storage
from restless import legal_changes
from worlds import (
    BOUNDS,
    events,
    operations,
    random_sample,
    wandering_events,
    with_areas,
    with_demands,
    with_facts,
    with_keywords,
    with_on,
    with_predicates,
    with_shapes,
    with_texts,
    write_files,
)

CONTRACT = Contract(columns=40, rows=40, executors=4)
WAYS = [("spis", "stream"), ("rihps", "static")]
"""Subscriptions that travel, and candidates that do; `flow/test_geops_pipelines.py` has all pairs, without Spark."""
BATCHES, NEAR = 4, 30.0


@pytest.mark.parametrize(("pipeline", "join_at"), WAYS)
def test_words_areas_and_objects_match_the_same_whichever_way_they_are_joined(
    spark: SparkSession, tmp_path: Path, pipeline: str, join_at: str
) -> None:
    rng, oracle, want = np.random.default_rng(3), Oracle(BOUNDS), list[tuple[int, int]]()
    batches, storms = [], []
    for b in range(BATCHES):
        moving = wandering_events(rng, 150, near=NEAR, objects=12, first_id=1000 * b, at_us=20_000_000 * b)
        batches.append(with_facts(rng, with_areas(rng, with_texts(rng, moving), 0.3, near=NEAR)))
        storm = with_shapes(rng, operations(rng, 60, ids=50, now_us=16_000_000 * b, near=NEAR, lasts_us=40_000_000))
        storms.append(with_demands(rng, with_on(rng, with_predicates(rng, with_keywords(rng, storm, 0.4))), 0.3))
        oracle.operate(storms[-1], 16_000_000 * b)
        want += oracle.deliver(batches[-1], 16_000_000 * b)
    write_files(tmp_path / "events", batches)
    write_files(tmp_path / "operations", storms)
    memory, moments = sinks.Memory(), iter(range(0, 16 * BATCHES, 16))
    # In both shapes, and by rows as far as events are in one parcel.
    settings = {"matches": "pairs" if join_at == "stream" else "arrays", "exchange": "rows", "strategy": "distributor"}
    tuning = Tuning.model_validate({"pipeline": pipeline, "join_at": join_at, "deltas_max": 2} | settings)
    with Engine(
        spark, CONTRACT, tuning, checkpoint=str(tmp_path / "state"), clock=lambda: float(next(moments))
    ) as engine:

        def sink(found: DataFrame, batch_id: int) -> None:
            memory.write(SparkRows(found), batch_id)
            plan = engine._checkpoint.plan
            engine._checkpoint.adopt_plan(plan.apply(legal_changes(plan, rng, 3)))

        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
            operations=sources.operations_from_files(spark, str(tmp_path / "operations"), files_per_batch=1),
            sink=sink,
            available_now=True,
        ).wait()
        status = engine.status()
    assert sorted(pairs_of([memory.table()])) == sorted(want)
    assert len(want) > 40
    assert status["events"] == sum(map(len, batches))
    assert set(memory.table().schema.names) <= {*batches[0].schema.names, "sub_id", "sub_ids", "version", "batch"}


def write_skewed_stream(tmp_path: Path) -> list[tuple[int, int]]:
    """Nine in ten events fall into one corner, and so do the subscriptions. Returns what the oracle says."""
    rng, oracle, want = np.random.default_rng(8), Oracle(BOUNDS), list[tuple[int, int]]()
    centre = np.stack([rng.uniform(-180, -92, 1500), rng.uniform(2, 88, 1500)], axis=1)
    rects = np.concatenate([centre - 1.5, centre + 1.5], axis=1)
    storm = pa.table({"op": ["register"] * 1500, "sub_id": np.arange(1500), "user": ["ana"] * 1500})
    for k, side in enumerate(("xmin", "ymin", "xmax", "ymax")):
        storm = storm.append_column(side, pa.array(rects[:, k]))
    storm = storm.append_column("expires", pa.nulls(1500, TIMESTAMP))
    storm = storm.append_column("geometry", pa.nulls(1500, pa.binary())).append_column(
        "keywords", pa.nulls(1500, pa.string())
    )
    batches = []
    for b in range(5):
        table = pa.table(events(rng, 1000, first_id=10_000 * b))
        hot = rng.random(1000) < 0.9
        x = np.where(hot, -180 + np.abs(table["x"].to_numpy()) * 0.49, table["x"].to_numpy())
        y = np.where(hot, np.abs(table["y"].to_numpy()), table["y"].to_numpy())
        batches.append(table.set_column(2, "x", pa.array(x)).set_column(3, "y", pa.array(y)))
    oracle.operate(storm, 0)
    for table in batches:
        want += oracle.match(table, 0)
    write_files(tmp_path / "events", batches)
    write_files(tmp_path / "operations", [storm])
    return want


@pytest.mark.parametrize(
    ("pipeline", "strategy"), [("sps", "distributor"), ("risps", "distributor"), ("sps", "distributor-data")]
)
def test_a_skewed_stream_is_redistributed_and_gives_the_same_matches(
    spark: SparkSession, tmp_path: Path, pipeline: str, strategy: str
) -> None:
    want, sink = write_skewed_stream(tmp_path), sinks.Memory()
    moments, checkpoint = iter(range(0, 1600, 16)), str(tmp_path / "state")  # every batch is a round
    tuning = Tuning.model_validate({"pipeline": pipeline, "strategy": strategy})
    with Engine(spark, CONTRACT, tuning, checkpoint=checkpoint, clock=lambda: float(next(moments))) as engine:
        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
            operations=sources.operations_from_files(spark, str(tmp_path / "operations")),
            sink=sink,
            available_now=True,
        ).wait()
    assert sorted(pairs_of([sink.table()])) == sorted(want)
    rounds = list(JournalReader(Storage(checkpoint)).read(RoundEntry))
    moved = [entry for entry in rounds if entry.outcome == "applied"]
    assert moved
    before, after = (float(moved[0].why[name]) for name in ("mldc", "mldc_new"))
    assert before > 0.5
    assert after < before - 0.3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pipeline": "sps", "strategy": "ps2-frequency"}, "divides the words"),
        ({"join_at": "stream", "strategy": "ps2-adjusted"}, "divides the words"),
        ({"pipeline": "risps", "strategy": "swarm"}, "balances by where events fall"),
    ],
)
def test_a_strategy_that_cannot_serve_a_pipeline_is_refused_at_the_start(
    spark: SparkSession, tmp_path: Path, settings: dict[str, str], says: str
) -> None:
    rng = np.random.default_rng(1)
    write_files(tmp_path / "events", [pa.table(events(rng, 3))])
    sample = random_sample(rng, rng.uniform(-80, 80, (400, 2)), np.tile([-10.0, -10.0, 10.0, 10.0], (400, 1)))
    tuning = Tuning.model_validate(settings)
    with Engine(spark, CONTRACT, tuning, checkpoint=str(tmp_path / "state"), sample=sample) as engine:
        stream = sources.events_from_files(spark, str(tmp_path / "events"))
        with pytest.raises(SettingsError, match=says):
            engine.start(events=stream, sink=sinks.Memory(), available_now=True)
