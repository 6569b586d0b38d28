"""Guard on a real Spark: an attack is found and blocked, and what operators say holds from the next batch on."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from attacked import GANG, SETTINGS, START_S, STEP_S, WORLD, Traffic
from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import InputError, SettingsError
from geoswarm.guard.findings import DetectionEntry
from geoswarm.guard.limits import GuardSettings
from geoswarm.guard.rules import GuardRules
from geoswarm.run import sinks
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.store.journal import JournalReader
from geoswarm.store.storage import Storage
from worlds import BOUNDS, events, write_files

CALM, STEPS = 4, 18


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[Engine]:
    contract = Contract(columns=100, rows=100, executors=4)
    with Engine(spark, contract, checkpoint=str(tmp_path / "state"), guard=GuardRules(), clock=lambda: 1e9) as made:
        yield made


def reasons(engine: Engine) -> list[str]:
    told: list[str] = engine.dead_letters()["reason"].to_pylist()
    return told


def test_an_attack_on_the_balancing_is_blocked_while_the_stream_runs(spark: SparkSession, tmp_path: Path) -> None:
    traffic = Traffic()
    write_files(tmp_path / "operations", [traffic.operations(s, attacks=s >= CALM) for s in range(STEPS)])
    write_files(tmp_path / "events", [traffic.events(s) for s in range(STEPS)])
    ticks = itertools.count(START_S, STEP_S)
    tuning = Tuning(strategy="swarm", round_s=STEP_S)

    def run(guard: GuardSettings) -> Engine:
        where = {"checkpoint": str(tmp_path / "state"), "clock": lambda: float(next(ticks))}
        return Engine(spark, WORLD, tuning, guard=guard, **where)  # type: ignore[arg-type]

    with run(SETTINGS) as engine:
        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
            operations=sources.operations_from_files(spark, str(tmp_path / "operations"), files_per_batch=1),
            sink=sinks.Memory(),
            available_now=True,
        ).wait()
        assert {user for user, _, _ in engine.blocked()} == set(GANG)
        assert set(reasons(engine)) == {"blocked"}
    entries = list(JournalReader(Storage(str(tmp_path / "state"))).read(DetectionEntry))
    assert [set(entry.blocked) for entry in entries if entry.blocked] == [set(GANG)]
    with run(SETTINGS) as again:
        assert {user for user, _, _ in again.blocked()} == set(GANG)
        for user in GANG:
            again.unblock(user)
        assert again.blocked() == []


def test_blocking_unblocking_and_exempting_hold_from_the_next_batch_on(
    spark: SparkSession, engine: Engine, tmp_path: Path
) -> None:
    engine.subscribe(1, BOUNDS, user="ana")
    engine.subscribe(2, BOUNDS, user="ben")
    folder, sink = tmp_path / "events", sinks.Memory()
    write_files(folder, [pa.table(events(np.random.default_rng(0), 10))])
    run = engine.start(events=sources.events_from_files(spark, str(folder)), sink=sink)
    run.drain()
    engine.block("ana", "spam", remove="all")
    engine.subscribe(3, BOUNDS, user="ana")
    engine.exempt("ben")
    pq.write_table(pa.table(events(np.random.default_rng(1), 10, first_id=100)), folder / "later.parquet")
    run.drain()
    run.stop()
    assert {sub for _, sub in pairs_of([sink.batches[0]])} == {1, 2}
    assert {sub for _, sub in pairs_of([sink.batches[1]])} == {2}
    assert engine.blocked() == [("ana", 1e9, "spam")]
    assert engine.exempted() == ["ben"]
    assert reasons(engine) == ["blocked"]
    engine.unblock("ana")
    engine.subscribe(3, BOUNDS, user="ana")
    engine.cancel(3, user="ben")
    assert engine.status()["subscriptions"] == 2
    assert reasons(engine) == ["blocked", "not-owner"]


def test_with_guard_a_call_without_a_user_is_an_error_and_without_it_there_are_no_blocks(
    spark: SparkSession, engine: Engine, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="1 of 1 operations have no user: Guard is on"):
        engine.subscribe(1, BOUNDS)
    with pytest.raises(InputError, match="have no user"):
        engine.submit(pa.Table.from_pylist([{"op": "cancel", "sub_id": 1}], schema=OPERATION))
    with Engine(spark, checkpoint=str(tmp_path / "other")) as plain:
        for call in (lambda: plain.block("ana"), plain.blocked):
            said: Any = call
            with pytest.raises(SettingsError, match="Guard is off"):
                said()
