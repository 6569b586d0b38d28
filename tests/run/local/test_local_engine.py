"""The local engine through files, kills and changes of engine: always the oracle's matches."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
from geoswarm.control.outcome import RoundEntry
from geoswarm.control.registry import strategies
from geoswarm.core.space.plan import Plan
from geoswarm.errors import SchemaError, SettingsError, StreamError
from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.scenario import TUNING, BatchFiles, Scenario, batches_of, compare
from geoswarm.lab.crash.victim import IN_PROCESS, process
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.model import EVENT
from geoswarm.run.pipeline import Batch
from geoswarm.run.process_rows import LocalRows
from geoswarm.store import plans
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import KeyedBatchEntry
from geoswarm.store.storage import Storage
from worlds import events as some_events
from worlds import random_sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCENARIO = Scenario(seed=5)
WORLD = gs.Contract(columns=20, rows=10, executors=3)
EVERYWHERE = (-180.0, -90.0, 180.0, 90.0)


def check(home: Path, files: int) -> None:
    verdict = compare(SCENARIO, home / "checkpoint", home / "output")
    assert verdict.is_equal, verdict
    assert verdict.batches == files
    assert verdict.pairs > 100 * files


@pytest.mark.parametrize("exchange", ["packed", "rows"])
@pytest.mark.parametrize("matches", ["arrays", "pairs"])
def test_it_gives_what_the_oracle_gives(tmp_path: Path, exchange: str, matches: str) -> None:
    SCENARIO.write(tmp_path, range(4))
    process(tmp_path, IN_PROCESS, TUNING.model_copy(update={"exchange": exchange, "matches": matches}))
    assert batches_of(tmp_path / "run" / "checkpoint") == [
        BatchFiles(range(k, k + 1), range(k, k + 1)) for k in range(4)
    ]
    check(tmp_path / "run", 4)


def forget_last_commit(home: Path) -> None:
    commits = home / "checkpoint" / "spark" / "commits"
    newest = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for file in commits.iterdir():
        if file.name.strip(".").split(".")[0] == str(newest):  # with its checksum
            file.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(strategies()))
def test_every_strategy_survives_a_lost_commit_and_a_restart(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(3)
    sample = random_sample(rng, rng.uniform((0, 0), (100, 50), (50, 2)), np.array([[10.0, 10.0, 30.0, 20.0]]))
    tuning = TUNING.model_copy(update={"strategy": name})
    SCENARIO.write(tmp_path, range(2))
    process(tmp_path, IN_PROCESS, tuning, sample=sample)
    forget_last_commit(tmp_path / "run")
    SCENARIO.write(tmp_path, range(2, 3))
    process(tmp_path, IN_PROCESS, tuning, sample=sample)
    check(tmp_path / "run", 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "static-history", "ps2-hybrid", "ps2-adjusted"])
def test_without_a_sample_the_first_batch_is_the_sample(tmp_path: Path, name: str) -> None:
    """Also where its commit was lost: the batch that is run again finds the plan that was drawn from it."""
    tuning = TUNING.model_copy(update={"strategy": name})
    SCENARIO.write(tmp_path, range(1))
    process(tmp_path, IN_PROCESS, tuning)
    forget_last_commit(tmp_path / "run")
    SCENARIO.write(tmp_path, range(1, 3))
    process(tmp_path, IN_PROCESS, tuning)
    check(tmp_path / "run", 3)
    journal = JournalReader(Storage(str(tmp_path / "run" / "checkpoint")))
    told = [entry for entry in journal.read(RoundEntry) if "first plan" in entry.decision]
    assert [entry.decision for entry in told] == ["first plan, drawn from batch 0"]
    assert int(told[0].why["events"]) > 200
    assert told[0].strategy == name


@pytest.mark.parametrize(
    ("pipeline", "join_at"), [("sps", "static"), ("rihps", "static"), ("risps", "static"), ("spis", "stream")]
)
def test_where_workers_keep_no_index_auto_has_small_partitions(tmp_path: Path, pipeline: str, join_at: str) -> None:
    """Also from a checkpoint in which events were dealt out, and back."""
    named = {"strategy": "auto"}
    for files, pipe in ((2, {}), (4, {"pipeline": pipeline, "join_at": join_at}), (5, {})):
        SCENARIO.write(tmp_path, range(files))
        process(tmp_path, IN_PROCESS, TUNING.model_copy(update=named | pipe))
        drawn = plans.newest(Storage(str(tmp_path / "run" / "checkpoint")))[0]
        assert drawn.drawn_by == ("distributor-at-once" if pipe else "auto")
        assert (len(drawn.partitions) > drawn.executors) == (files > 2), "the last start keeps them for a round"
    check(tmp_path / "run", 5)


def test_a_plan_that_a_strategy_understands_is_kept_and_another_is_drawn_anew(tmp_path: Path) -> None:
    def run(name: str, batches: int) -> tuple[Plan, str]:
        """The plan of the last batch, and what the journal says about the start."""
        tables = [pa.table(some_events(np.random.default_rng(b), 50, first_id=100 * b)) for b in range(batches)]
        with gs.LocalEngine(WORLD, gs.Tuning(strategy=name), checkpoint=str(tmp_path)) as engine:
            plan = engine._checkpoint.plan
            matches_of(engine, tables)
        told = [entry.decision for entry in JournalReader(Storage(str(tmp_path))).read(RoundEntry)]
        return plan, told[-1] if told else ""

    before, _ = run("swarm-measured", 1)
    kept, why = run("auto", 2)
    assert why == "auto goes on with the plan in force, last run with swarm-measured"
    assert (kept.partitions, kept.drawn_by, kept.epoch) == (before.partitions, "auto", before.epoch + 1)
    fresh, why = run("static-uniform", 3)
    assert why == "static-uniform began with a plan of its own, last run with auto"
    assert not {p.id for p in fresh.partitions} & {p.id for p in kept.partitions}


def test_many_tasks_for_each_executor_are_not_taken_for_executors(tmp_path: Path) -> None:
    for name, wanted in (("over-partitioned", 4 * 16), ("auto", 4)):
        with gs.LocalEngine(
            gs.Contract(columns=20, rows=20, executors=4), gs.Tuning(strategy=name), checkpoint=str(tmp_path)
        ) as engine:
            matches_of(engine, [pa.table(some_events(np.random.default_rng(1), 50))])
            assert engine._checkpoint.plan.executors == wanted


def test_a_first_batch_that_has_not_what_a_strategy_needs_is_said_and_the_stream_goes_on(tmp_path: Path) -> None:
    tuning, rng = gs.Tuning(strategy="static-history"), np.random.default_rng(1)
    empty = pa.table(some_events(rng, 5)).slice(0, 0)
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(7, EVERYWHERE)
        sink = matches_of(engine, [empty, pa.table(some_events(rng, 20))])
        assert len(sink.table()) == 20
        decisions = [entry.decision for entry in JournalReader(Storage(str(tmp_path))).read(RoundEntry)]
    assert decisions[:2] == ["batch 0 is empty", "first plan, drawn from batch 1"]


def test_a_checkpoint_goes_from_one_engine_to_the_other_and_back(spark: "SparkSession", tmp_path: Path) -> None:
    """With a batch under way at each change. Of the steps, every tenth compacts the log of files: one by each."""
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100000")
    done = 0
    for master, files in ((IN_PROCESS, 8), ("local[2]", 3), (IN_PROCESS, 9), ("local[2]", 2)):
        SCENARIO.write(tmp_path, range(done, done + files))
        done += files
        process(tmp_path, master, TUNING)
        forget_last_commit(tmp_path / "run")
    process(tmp_path, IN_PROCESS, TUNING)
    check(tmp_path / "run", done)


@pytest.mark.slow
@pytest.mark.parametrize(("sink", "kills"), [("rolled", 2), ("delta", 1)])
def test_kills_by_signal_lose_and_repeat_nothing(tmp_path: Path, sink: str, kills: int) -> None:
    SCENARIO.write(tmp_path, range(10))
    rng = np.random.default_rng(2)
    with Victim(tmp_path, IN_PROCESS, "--sink", sink) as victim:
        victim.start()
        for kill in range(kills):
            before = victim.commits()
            if not victim.until(lambda before=before: victim.commits() > before, f"a batch before kill {kill}"):  # type: ignore[misc]
                break
            victim.kill("driver", rng)
        victim.until_done()
        assert victim.starts >= 2
        check(victim.home, 10)
        assert sink != "rolled" or list(victim.output.glob("batch=*/batches-*.parquet"))


# -- as a user meets it


def matches_of(engine: Any, events: Any, **more: Any) -> gs.sinks.Memory:
    sink = gs.sinks.Memory()
    engine.start(events=events, sink=sink, available_now=True, **more).wait()
    return sink


def test_tables_go_in_and_matches_come_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(7, EVERYWHERE, user="ana")
        tables = [pa.table(some_events(rng, 20, first_id=100 * k)) for k in range(3)]
        sink = matches_of(engine, tables)
        assert sorted(sink.batches) == [0, 1, 2]
        assert sink.table()["event_id"].to_pylist() != []
        assert len(sink.table()) == 60
        assert sink.table()["sub_ids"].to_pylist() == [[7]] * 60
        assert engine.status()["matches"] == 60
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        assert len(matches_of(engine, tables).table()) == 0, "what went through does not come again"
        assert engine.status()["subscriptions"] == 1


def test_a_stream_that_runs_takes_in_what_comes_and_drains(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    source = gs.local.from_tables(pa.table(some_events(rng, 5)))
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        sink = gs.sinks.Memory()
        run = engine.start(events=source, sink=sink)
        run.drain()
        assert len(sink.table()) == 0
        engine.subscribe(1, EVERYWHERE)
        source.append(pa.table(some_events(rng, 5, first_id=10)))
        run.drain()
        assert len(sink.table()) == 5
        engine.scale(5)
        source.append(pa.table(some_events(rng, 5, first_id=20)))
        run.drain()
        assert len(sink.table()) == 10
        with pytest.raises(StreamError, match="running already"):
            engine.start(events=source, sink=sink)
        run.stop()
        assert not run.is_active


def test_a_new_checkpoint_has_an_executor_for_each_core_and_keeps_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def executors(cores: int, contract: gs.Contract, tuning: gs.Tuning | None = None, folder: str = "state") -> int:
        monkeypatch.setattr("geoswarm.run.local.engine.usable_cores", lambda: cores)
        with gs.LocalEngine(contract, tuning, checkpoint=str(tmp_path / folder)) as engine:
            return engine.executors

    free = gs.Contract(columns=20, rows=10)
    assert executors(6, free) == 6
    assert executors(32, free) == 6  # a larger machine
    assert executors(32, free, gs.Tuning(strategy="static-uniform")) == 6
    assert executors(1, free, folder="small") == 2
    assert executors(1000, free, folder="huge") == 200  # no more than cells
    within = gs.Tuning(executors={"min": 3, "max": 9})  # type: ignore[arg-type]
    assert executors(32, free, within, folder="range") == 9
    with pytest.raises(
        SettingsError, match="has 6 executors, and 7 are asked for: leave the number out of the contract"
    ):
        executors(6, gs.Contract(columns=20, rows=10, executors=7))
    with pytest.raises(SettingsError, match="300 executors at least: use 1 to 200 on this grid"):
        executors(6, free, gs.Tuning(executors={"min": 300, "max": 300}))  # type: ignore[arg-type]


def test_a_number_that_was_scaled_to_is_kept_by_other_starts_and_strategies(tmp_path: Path) -> None:
    events = [pa.table(some_events(np.random.default_rng(1), 5, first_id=10 * b)) for b in range(2)]

    def run(contract: gs.Contract, strategy: str, scaled: int | None = None) -> int:
        with gs.LocalEngine(contract, gs.Tuning(strategy=strategy), checkpoint=str(tmp_path)) as engine:
            if scaled is not None:
                engine.scale(scaled)  # before any stream runs
            matches_of(engine, events)
            assert engine.status()["executors"] == engine.executors
            return engine.executors

    assert run(WORLD, "swarm-measured") == 3
    assert run(WORLD, "swarm-measured", 8) == 3  # these tables are done: no batch comes
    events.append(pa.table(some_events(np.random.default_rng(2), 5, first_id=50)))
    assert run(WORLD, "swarm-measured") == 8
    assert run(WORLD, "auto") == 8
    assert run(WORLD, "over-partitioned") == 8 * 16
    assert run(gs.Contract(columns=20, rows=10), "swarm") == 3  # what it was asked for is not in that plan


def test_a_stage_without_a_number_follows_the_matching(tmp_path: Path) -> None:
    source, rng = gs.local.from_tables(pa.table(some_events(np.random.default_rng(1), 5))), np.random.default_rng(2)
    stages = [
        gs.Stage(gs.operators.Count(key="event_id", name=name), gs.sinks.Memory(), tuning=tuning)
        for name, tuning in (("free", gs.KeyTuning()), ("fixed", gs.KeyTuning(executors=4)))
    ]
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        run = engine.start(events=source, sink=gs.sinks.Memory(), stages=stages)
        run.drain()
        engine.scale(5)
        source.append(pa.table(some_events(rng, 5, first_id=20)))
        run.drain()
    entries = list(JournalReader(Storage(str(tmp_path))).read(KeyedBatchEntry))
    numbers = {name: [len(e.executors) for e in entries if e.operator == name] for name in ("free", "fixed")}
    assert numbers == {"free": [3, 5], "fixed": [4, 4]}


def test_a_generated_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    tweets = Tweets(seed=3)
    for total, batches in ((600, 2), (1000, 2)):
        with gs.LocalEngine(WORLD, checkpoint=str(tmp_path / "state")) as engine:
            if total == 600:
                engine.subscribe(1, EVERYWHERE)
            source = gs.local.from_workload(tweets, rows_per_batch=300, rows_total=total)
            sink = matches_of(engine, source)
            assert len(sink.batches) == batches
    assert [len(table) for table in sink.batches.values()] == [300, 100]
    assert sink.table()["event_id"].to_pylist() != []
    assert set(sink.table()["event_id"].to_pylist()) == set(range(600, 1000))


def test_a_function_gets_an_arrow_table(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, EVERYWHERE)
        tables = [pa.table(some_events(np.random.default_rng(1), 4))]
        engine.start(
            events=tables, sink=lambda table, batch: seen.append((batch, len(table))), available_now=True
        ).wait()
    assert seen == [(0, 4)]


def test_an_error_in_a_batch_ends_the_stream_and_is_raised(tmp_path: Path) -> None:
    def fail(table: pa.Table, batch: int) -> None:
        raise ValueError("the sink is full")

    tables = [pa.table(some_events(np.random.default_rng(1), 4))]
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        run = engine.start(events=tables, sink=fail)
        with pytest.raises(ValueError, match="the sink is full"):
            run.wait()
        assert len(matches_of(engine, tables).batches) == 1, "the batch is run again"


def test_what_cannot_work_is_refused_before_the_stream_starts(tmp_path: Path) -> None:
    table = pa.table(some_events(np.random.default_rng(1), 4))
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path / "state")) as engine:
        with pytest.raises(SchemaError, match="events have no column y"):
            matches_of(engine, table.drop_columns(["y"]))
        with pytest.raises(SchemaError, match=r"column event_id of events is bool, wanted is an integer"):
            matches_of(engine, table.set_column(0, "event_id", pa.array([True] * 4)))
        with pytest.raises(SchemaError, match="rename them"):
            matches_of(engine, table.append_column("sub_id", pa.array([1] * 4)))
        with pytest.raises(SettingsError, match="no folder"):
            matches_of(engine, gs.local.events_from_files(str(tmp_path / "none"), format="json"))
        away = gs.sinks.Kafka("localhost:9092", "matches", {"kafka.sasl.jaas.config": "for Java alone"})
        with pytest.raises(SettingsError, match="does not take these settings: Java JAAS"):
            engine.start(events=table, sink=away)
        with pytest.raises(SettingsError, match="never ends"):
            matches_of(engine, gs.local.from_workload(Tweets(seed=1), rows_per_batch=10))


def test_a_batch_whose_events_have_no_partition_at_all_is_committed(tmp_path: Path) -> None:
    """Spark makes such batches of a topic that is still empty."""
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path / "state")) as engine:
        pipeline = engine._prepare_stream(EVENT, gs.sinks.Noop(), (), None, 0.0)
        pipeline.run(Batch(0, LocalRows.of_tasks(EVENT, []), EVENT, lambda: iter(()), ""))
        assert engine.status()["last_batch"]["batch"] == 0
