"""Keyed operators on Spark: on a stream of their own, beside the matching, and in its midst."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from geoswarm.config import Contract, KeyTuning, Tuning
from geoswarm.control.outcome import KeyRoundEntry
from geoswarm.errors import InputError, SchemaError, SettingsError, StateError
from geoswarm.flow.keyed.count import Count
from geoswarm.flow.keyed.delivery import Delivery
from geoswarm.flow.keyed.trending import Trending
from geoswarm.model import SUB_IDS, TIMESTAMP
from geoswarm.run import sinks
from geoswarm.run.oracle.keyed import deliveries, trends
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair, pairs_of
from geoswarm.run.side_stages import Stage
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.keyed_stream import KeyedStream
from geoswarm.run.spark.rows import SparkRows
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import KeyedBatchEntry
from geoswarm.store.storage import Storage
from restless import changes_with_terms
from worlds import (
    BOUNDS,
    events,
    operations,
    wandering_events,
    with_accuracy,
    with_alert_rules,
    with_keywords,
    with_on,
    with_texts,
    write_files,
)

INTERVAL_S = 2.0
WINDOW = 3


def ticking_clock() -> Callable[[], float]:
    """A clock that goes on by a second each time it is asked, which is once a batch."""
    moments = iter(range(1_000_000))
    return lambda: float(next(moments))


def words(rng: np.random.Generator, n: int) -> pa.Table:
    keys = np.minimum(rng.zipf(1.4, n), 300)
    return pa.table({"word": pa.array([f"word {k}" for k in keys], mask=rng.random(n) < 0.01)})


def stream_of(spark: SparkSession, folder: Path, schema: str = "word string") -> DataFrame:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def expected_counts(batches: list[pa.Table], b: int) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for i in range(b + 1):
        if int(i // INTERVAL_S) > int(b // INTERVAL_S) - WINDOW:
            counted.update(w for w in batches[i]["word"].to_pylist() if w is not None)
    return {w: counted[w] for w in set(batches[b]["word"].to_pylist()) - {None}}


def counts_of(table: pa.Table) -> dict[str, int]:
    rows = table.to_pylist()
    assert len(rows) == len({row["key"] for row in rows}), "each key once"
    return {row["key"]: row["count"] for row in rows}


def test_words_are_counted_exactly_while_keys_move_and_executors_come_and_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    batches = [words(rng, 3000) for _ in range(10)]
    write_files(tmp_path / "rows", batches)
    memory = sinks.Memory()
    # By time so few rows need no plan: what a task takes is mostly the same for each.
    tuning = KeyTuning(executors=3, interval_s=INTERVAL_S, load_by="work")
    operator = Count(key="word", window=WINDOW)
    with KeyedStream(spark, operator, tuning, checkpoint=str(tmp_path / "state"), clock=ticking_clock()) as counting:

        def sink(rows: DataFrame, batch_id: int) -> None:
            memory.write(SparkRows(rows), batch_id)
            if batch_id in (3, 6):
                counting.scale(5 if batch_id == 3 else 2)

        counting.start(rows=stream_of(spark, tmp_path / "rows"), sink=sink, available_now=True).wait()
        dead = counting.dead_letters()
    for b in range(10):
        assert counts_of(memory.batches[b]) == expected_counts(batches, b), b
    assert set(dead["reason"].to_pylist()) == {"key"}
    assert len(dead) == sum(table["word"].null_count for table in batches)
    reader = JournalReader(Storage(str(tmp_path / "state")))
    at_work = [len(entry.executors) for entry in reader.read(KeyedBatchEntry)]
    assert at_work == [3] * 4 + [5] * 3 + [2] * 3
    decisions = Counter(entry.decision for entry in reader.read(KeyRoundEntry))
    assert decisions["scaled"] == 2
    assert decisions["rebalanced"] >= 1
    assert any(entry.splits for entry in reader.read(KeyRoundEntry))


def test_a_batch_that_is_run_again_is_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    batches = [words(rng, 500) for _ in range(5)]
    write_files(tmp_path / "rows", batches)
    state, memory, clock = tmp_path / "state", sinks.Memory(), ticking_clock()
    operator, tuning = Count(key="word", window=WINDOW), KeyTuning(executors=3, interval_s=INTERVAL_S)

    def run(sink: Any) -> None:
        with KeyedStream(spark, operator, tuning, checkpoint=str(state), clock=clock) as counting:
            counting.start(rows=stream_of(spark, tmp_path / "rows"), sink=sink, available_now=True).wait()

    def fails(rows: DataFrame, batch_id: int) -> None:
        memory.write(SparkRows(rows), batch_id)
        if batch_id == 2:
            raise RuntimeError("the sink has it, and then the machine is gone")

    with pytest.raises(Exception, match="machine is gone"):
        run(fails)
    run(memory)
    for file in (state / "spark" / "commits").glob("*4*"):  # Spark forgets that batch 4 was through
        file.unlink()
    before = memory.batches[4]
    run(memory)
    assert counts_of(memory.batches[4]) == counts_of(before)
    for b in range(5):
        assert counts_of(memory.batches[b]) == expected_counts(batches, b), b


def test_what_cannot_be_counted_is_said_before_the_stream_starts(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path / "rows", [pa.table({"word": ["a"], "weight": [1.5]})])
    rows = stream_of(spark, tmp_path / "rows", "word string, weight double")
    with KeyedStream(spark, Count(key="weight"), checkpoint=str(tmp_path / "one")) as counting:
        with pytest.raises(SchemaError, match="cast it to integers or strings"):
            counting.start(rows=rows, sink=sinks.Memory())
        with pytest.raises(SettingsError, match="1 or more"):
            counting.scale(0)
    with (
        KeyedStream(spark, Count(key="wird"), checkpoint=str(tmp_path / "two")) as counting,
        pytest.raises(SchemaError, match="wird"),
    ):
        counting.start(rows=rows, sink=sinks.Memory())
    with pytest.raises(SettingsError, match="holds the state of operator count"):
        KeyedStream(spark, Count(key="word", name="other"), checkpoint=str(tmp_path / "one"))
    with pytest.raises(SettingsError, match="there is no planner"):
        KeyedStream(spark, Count(key="word"), KeyTuning(planner="mixt"), checkpoint=str(tmp_path / "three"))


def test_state_kept_with_other_columns_is_not_read_as_if_it_were_the_same(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path / "rows", [pa.table({"word": ["a", "b"]}), pa.table({"word": ["a"]})])

    def run(schema: str, key: str) -> None:
        with KeyedStream(spark, Count(key=key), checkpoint=str(tmp_path / "state"), clock=lambda: 0.0) as counting:
            rows = stream_of(spark, tmp_path / "rows", schema).selectExpr(f"{key}")
            counting.start(rows=rows, sink=sinks.Memory(), available_now=True).wait()

    run("word string", "word")
    write_files(tmp_path / "rows", [pa.table({"word": ["a", "b"]})] * 2 + [pa.table({"number": [5]})])
    with pytest.raises(StateError, match="other columns"):
        run("number bigint", "number")


@pytest.mark.parametrize("table_max", [0, 1])
def test_a_table_without_room_is_plain_hashing(spark: SparkSession, tmp_path: Path, table_max: int) -> None:
    batches = [words(np.random.default_rng(b), 800) for b in range(4)]
    write_files(tmp_path / "rows", batches)
    memory = sinks.Memory()
    tuning = KeyTuning(executors=1 if table_max else 4, interval_s=1.0, table_max=table_max)
    with KeyedStream(
        spark, Count(key="word", window=9), tuning, checkpoint=str(tmp_path / "state"), clock=lambda: 0.0
    ) as counting:
        counting.start(rows=stream_of(spark, tmp_path / "rows"), sink=memory, available_now=True).wait()
        assert not len(counting._keyed.plan.keys)
    everything = Counter(w for table in batches for w in table["word"].to_pylist() if w is not None)
    assert counts_of(memory.batches[3]) == {w: everything[w] for w in set(batches[3]["word"].to_pylist()) - {None}}


CONTRACT = Contract(columns=30, rows=30, executors=3)


@pytest.mark.parametrize(
    ("seed", "matches", "terms", "noisy"),
    [(1, "arrays", False, False), (4, "pairs", True, False), (2, "arrays", False, True)],
)
def test_objects_enter_leave_and_stay(
    spark: SparkSession, tmp_path: Path, seed: int, matches: str, terms: bool, noisy: bool
) -> None:
    """With noise also where alerts wait for a confirmation, have pauses, and fixes are vague, and put in order."""
    rng, oracle, want = np.random.default_rng(seed), Oracle(BOUNDS), list[Pair]()
    oracle.following.accuracy_max_m = 20.0 if noisy else None
    oracle.waiting.reorder_us = 12_000_000 if noisy else 0
    batches, storms = [], []
    for b in range(5):
        batch = wandering_events(rng, 250, near=20.0, objects=25, first_id=1000 * b, at_us=10_000_000 * b)
        storm = with_on(rng, operations(rng, 60, ids=50, now_us=b, near=20.0, lasts_us=10**9))
        if terms:
            batch, storm = with_texts(rng, batch), with_keywords(rng, storm)
        if noisy:
            batch, storm = with_accuracy(rng, batch), with_alert_rules(rng, storm)
        batches.append(batch)
        storms.append(storm)
        oracle.operate(storm, b * 1_000_000)
        want += oracle.deliver(batch, b * 1_000_000)
    write_files(tmp_path / "events", batches)
    write_files(tmp_path / "operations", storms)
    said = {"matches": matches, "accuracy_max_m": oracle.following.accuracy_max_m}
    said |= {"reorder_s": oracle.waiting.reorder_us / 1e6}
    memory, tuning = sinks.Memory(), Tuning.model_validate(said)
    with Engine(spark, CONTRACT, tuning, checkpoint=str(tmp_path / "state"), clock=ticking_clock()) as engine:

        def sink(found: DataFrame, batch_id: int) -> None:
            memory.write(SparkRows(found), batch_id)
            if noisy and batch_id in (1, 3):
                engine.scale(5 if batch_id == 1 else 2)
            if terms:
                plan = engine._checkpoint.plan
                engine._checkpoint.adopt_plan(plan.apply(changes_with_terms(plan, rng, 4)))

        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
            operations=sources.operations_from_files(spark, str(tmp_path / "operations"), files_per_batch=1),
            sink=sink,
            available_now=True,
        ).wait()
        status = engine.status()
    table = memory.table()
    assert sorted(pairs_of([table])) == sorted(want)
    assert status["events"] == 5 * 250
    assert (status["cooled"], status["vague"]) == (oracle.following.cooled, oracle.following.vague)
    assert (status["cooled"] > 5, status["vague"] > 50) == (noisy, noisy)
    assert status["late_fixes"] == oracle.following.late + oracle.waiting.late > 10
    assert status["last_batch"]["held_fixes"] == len(oracle.waiting.fixes)
    assert len({oracle.on.get(sub) for _, sub in want}) > 4, "transitions of all kinds were asked for"
    if matches == "arrays":
        assert all(table[SUB_IDS.name].to_pylist()), "an event without a subscription does not go out"


def test_without_a_column_for_objects_only_subscriptions_on_inside_match(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path / "events", [pa.table(events(np.random.default_rng(0), 50))])
    memory = sinks.Memory()
    with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, BOUNDS, on="enter")
        engine.subscribe(2, BOUNDS)
        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events")), sink=memory, available_now=True
        ).wait()
    assert Counter(sub for subs in memory.table()["sub_ids"].to_pylist() for sub in subs) == {2: 50}


def test_operators_that_would_share_their_state_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path / "events", [pa.table(events(np.random.default_rng(0), 5))])
    with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        stream = sources.events_from_files(spark, str(tmp_path / "events"))
        for operators in ([Count(key="event_id")] * 2, [Count(key="event_id", name="transitions")]):
            stages = [Stage(operator, sinks.Memory()) for operator in operators]
            with pytest.raises(SettingsError, match="a `name` of its own"):
                engine.start(events=stream, sink=sinks.Memory(), stages=stages)


def test_users_get_digests_and_regions_their_trends_beside_the_matching(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    batches = [with_texts(rng, events(rng, 400, first_id=1000 * b)) for b in range(6)]
    write_files(tmp_path / "events", batches)
    found, delivered, trending = sinks.Memory(), sinks.Memory(), sinks.Memory()
    keys = KeyTuning(executors=3, interval_s=INTERVAL_S)
    stages = [
        Stage(Delivery(per_interval=5, digest_max=4), delivered, on="matches", tuning=keys),
        Stage(Trending(region_deg=90.0, window=3, top=3, count_min=2), trending, tuning=keys),
    ]
    tuning = Tuning.model_validate({"matches": "pairs"})
    with Engine(spark, CONTRACT, tuning, checkpoint=str(tmp_path / "state"), clock=ticking_clock()) as engine:
        users = {}
        for i in range(30):
            x, y = float(rng.uniform(-170, 120)), float(rng.uniform(-85, 50))
            users[i] = f"user {i % 4}"
            engine.subscribe(i, (x, y, x + 40.0, y + 30.0), user=users[i])
        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
            sink=found,
            stages=stages,
            available_now=True,
        ).wait()
        entries = list(JournalReader(engine._checkpoint.storage).read(KeyedBatchEntry))
    interval_of = {entry.batch: entry.interval for entry in entries if entry.operator == "delivery"}
    times = {row["event_id"]: row["ts"] for table in batches for row in table.select(["event_id", "ts"]).to_pylist()}
    told = [
        (
            interval_of[b],
            [
                {"user": users[sub], "event_id": event, "sub_id": sub, "ts": times[event]}
                for event, sub in pairs_of([found.batches[b]])
            ],
        )
        for b in range(6)
    ]
    nows, digests = deliveries(told, 5, 4)
    for b in range(6):
        rows = delivered.batches[b].to_pylist()
        now = sorted((r["user"], r["event_id"], r["sub_id"]) for r in rows if r["kind"] == "now")
        assert now == sorted((r["user"], r["event_id"], r["sub_id"]) for r in nows[b]), b
        said = {
            r["user"]: (r["missed"], [(m["event_id"], m["sub_id"]) for m in r["matches"]]) for r in rows if r["missed"]
        }
        ended = interval_of[b - 1] if b and interval_of[b - 1] != interval_of[b] else None
        wanted = {} if ended is None else {user: (missed, some) for user, missed, some in digests[ended]}
        assert said == wanted, b
    posts = [(interval_of[b], batches[b].to_pylist()) for b in range(6)]
    for b in range(1, 6):
        ended = interval_of[b - 1] if interval_of[b - 1] != interval_of[b] else None
        want = [] if ended is None else trends(posts[:b], ended, 3, 90.0, 3, 2)
        rows = [{k: row[k] for k in want[0]} for row in trending.batches[b].to_pylist()] if want else []
        assert sorted(map(str, rows)) == sorted(map(str, want)), b
    assert any(len(trending.batches[b]) for b in range(6))


def test_what_a_stage_cannot_do_is_said_before_the_stream_starts(spark: SparkSession, tmp_path: Path) -> None:
    plain = pa.table(events(np.random.default_rng(0), 5))
    write_files(tmp_path / "events", [plain])
    write_files(tmp_path / "owned", [plain.append_column("user", pa.array(["ana"] * 5))])
    memory, folder = sinks.Memory(), str(tmp_path / "out")
    delivery, count = Delivery(per_interval=1), Count(key="event_id")
    cases: list[tuple[str, Any, Stage, str]] = [
        ("events", memory, Stage(count, memory), "a sink of their own"),
        ("events", sinks.Parquet(folder), Stage(count, sinks.Parquet(folder)), "a sink of their own"),
        ("owned", memory, Stage(delivery, sinks.Memory(), on="matches"), "a column user"),
        ("events", memory, Stage(Trending(), sinks.Memory()), "text"),
        ("events", memory, Stage(count, sinks.Memory(), on="match"), "use events or matches"),  # type: ignore[arg-type]
    ]
    with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state")) as engine:
        for source, sink, stage, complaint in cases:
            stream = sources.events_from_files(spark, str(tmp_path / source))
            with pytest.raises(InputError, match=complaint):
                engine.start(events=stream, sink=sink, stages=[stage])
    with pytest.raises(SettingsError, match="but of an engine"):
        KeyedStream(spark, count, checkpoint=str(tmp_path / "state"))
    KeyedStream(spark, count, checkpoint=str(tmp_path / "keyed")).close()
    with pytest.raises(SettingsError, match="of a KeyedStream"):
        Engine(spark, CONTRACT, checkpoint=str(tmp_path / "keyed"))


def test_objects_are_forgotten_while_no_subscription_asks_about_them(spark: SparkSession, tmp_path: Path) -> None:
    box, outside = (0.0, 0.0, 10.0, 10.0), 50.0
    places = [5.0, outside, 5.0]  # inside, then outside while no subscription asks, then inside again
    rows = [
        pa.table({"event_id": [b], "ts": pa.array([b * 10**6]).cast(TIMESTAMP), "x": [x], "y": [5.0], "object_id": [1]})
        for b, x in enumerate(places)
    ]
    write_files(tmp_path / "events", rows)
    memory = sinks.Memory()
    with Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state"), clock=ticking_clock()) as engine:
        engine.subscribe(7, box, on="enter")

        def sink(found: DataFrame, batch_id: int) -> None:
            memory.write(SparkRows(found), batch_id)
            if batch_id == 0:
                engine.cancel(7)
            elif batch_id == 1:
                engine.subscribe(7, box, on="enter")

        engine.start(
            events=sources.events_from_files(spark, str(tmp_path / "events"), files_per_batch=1),
            sink=sink,
            available_now=True,
        ).wait()
    assert sorted(pairs_of([memory.table()])) == [(0, 7), (2, 7)]
