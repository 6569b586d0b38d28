"""Aggregates on Spark, by tasks and by the driver: the oracle's answers, from both and from one after the other."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import geoswarm as gs
import worlds
from aggregate_worlds import CONTRACT, SETTINGS, AggregateWorld, check
from geoswarm.run.spark import driver_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def play(
    spark: "SparkSession", folder: Path, world: AggregateWorld, **tuning: Any
) -> tuple[gs.sinks.Memory, gs.sinks.Memory]:
    """A file for each batch; two starts."""
    matches, answers = gs.sinks.Memory(), gs.sinks.Memory()
    settings = gs.Tuning(aggregates=SETTINGS, round_s=1.0, **tuning)

    def clock() -> float:
        return world.now_us(len(matches.batches)) / 1e6

    for batches in (world.batches // 2, world.batches):
        worlds.write_files(folder / "events", [world.events(number) for number in range(batches)])
        worlds.write_files(folder / "operations", [world.operations(number) for number in range(batches)])
        with gs.Engine(spark, CONTRACT, settings, checkpoint=str(folder / "state"), clock=clock) as engine:
            events = gs.sources.events_from_files(spark, str(folder / "events"), files_per_batch=1)
            operations = gs.sources.operations_from_files(spark, str(folder / "operations"), files_per_batch=1)
            run = engine.start(
                events=events, operations=operations, sink=matches, aggregates=answers, available_now=True
            )
            run.wait()
    return matches, answers


def test_the_local_engine_goes_on_with_open_windows_of_spark_and_spark_with_its_own(
    spark: "SparkSession", tmp_path: Path
) -> None:
    world, state = AggregateWorld(64, batches=6), str(tmp_path / "state")
    matches, answers = gs.sinks.Memory(), gs.sinks.Memory()
    folders = [str(tmp_path / name) for name in ("events", "operations")]

    def clock() -> float:
        return world.now_us(len(matches.batches)) / 1e6

    for batches, is_local in ((2, False), (4, True), (6, False)):
        worlds.write_files(tmp_path / "events", [world.events(number) for number in range(batches)])
        worlds.write_files(tmp_path / "operations", [world.operations(number) for number in range(batches)])
        settings = gs.Tuning(aggregates=SETTINGS)
        sinks: dict[str, Any] = {"sink": matches, "aggregates": answers}
        if is_local:
            events = gs.local.events_from_files(folders[0], files_per_batch=1)
            operations = gs.local.operations_from_files(folders[1], files_per_batch=1)
            with gs.LocalEngine(CONTRACT, settings, checkpoint=state, clock=clock) as local:
                local.start(events=events, operations=operations, available_now=True, **sinks).wait()
        else:
            read = gs.sources.events_from_files(spark, folders[0], files_per_batch=1)
            asked = gs.sources.operations_from_files(spark, folders[1], files_per_batch=1)
            with gs.Engine(spark, CONTRACT, settings, checkpoint=state, clock=clock) as engine:
                engine.start(events=read, operations=asked, available_now=True, **sinks).wait()
    assert check(tmp_path / "state", world, matches, answers) > 3


@pytest.mark.parametrize("matches", ["arrays", "pairs"])
def test_tasks_count_and_give_what_the_oracle_gives(spark: "SparkSession", tmp_path: Path, matches: str) -> None:
    world = AggregateWorld(60, batches=4, follows=matches == "pairs")
    assert check(tmp_path / "state", world, *play(spark, tmp_path, world, matches=matches)) > 3


def test_parts_of_events_are_counted_where_they_are_merged(spark: "SparkSession", tmp_path: Path) -> None:
    world = AggregateWorld(61, batches=4, areas=True)
    assert check(tmp_path / "state", world, *play(spark, tmp_path, world, pipeline="risps")) > 3


@pytest.mark.usefixtures("driver_runs")
def test_the_driver_counts_alike(spark: "SparkSession", tmp_path: Path) -> None:
    world = AggregateWorld(62, batches=6)
    assert check(tmp_path / "state", world, *play(spark, tmp_path, world)) > 3


def test_batches_of_the_driver_and_of_tasks_take_turns(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(1000))
    monkeypatch.setattr(driver_rows, "is_warm", lambda: next(looks) % 2 == 0)
    world = AggregateWorld(63, batches=6)
    assert check(tmp_path / "state", world, *play(spark, tmp_path, world)) > 3
