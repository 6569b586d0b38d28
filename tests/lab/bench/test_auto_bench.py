"""`bench auto` at a tiny size: what it measures of whom, and what its keys say."""

from typing import Any

import pytest

from geoswarm.control.registry import strategies
from geoswarm.flow.observe import Load
from geoswarm.lab.bench.engine import auto
from geoswarm.lab.bench.engine.auto import AUTO, EVEN, PLACES, PRINTED, AutoSizes, WorldRuns
from geoswarm.lab.bench.engine.auto_sim import SimSizes
from geoswarm.lab.bench.engine.auto_worlds import WorldSizes, paper_of, spot_of, stream_of
from geoswarm.lab.bench.kit.engine_race import ROUND_S, StrategyRace, least_of_runs
from geoswarm.lab.bench.kit.projection import ProjectedBatch
from geoswarm.lab.bench.swarm.fig12_to_16 import TimelineSizes
from geoswarm.store.journal.entries import BatchEntry

TINY = AutoSizes(
    WorldSizes(2000, 1500, 3, 6, 3),
    ("crowd",),
    (),
    1,
    SimSizes(("one-step",), TimelineSizes(256, 0.0, queries=2000, hotspot_queries=2000), 3, 1.0),
    jumping_rounds=24,
)
WORLDS = ("hotspot", "moving", "crowd", "hot-cell", "words", "collisions", "attack")


def batch(busiest: float) -> ProjectedBatch:
    """Ten events that would take a second if all were level; a match takes what an event does."""
    loads = {
        n: Load(events, 0, matches, 100 * (events + matches)) for n, (events, matches) in enumerate(((6, 6), (4, 4)))
    }
    return ProjectedBatch(BatchEntry(1, subscriptions=5, events_in=10, executors=loads), busiest, 1.0, busiest, 0.0)


def test_keys_are_of_the_worst_world_and_of_batches_that_count() -> None:
    flat = [batch(1.0)] * 5
    one = WorldRuns(
        "hotspot",
        {AUTO: [*flat[:4], batch(1.5)], PRINTED: [batch(4.0)] * 5, EVEN: flat},
        {AUTO: [[batch(2.0)] * 5, flat], PRINTED: [[batch(8.0)] * 5], EVEN: [[batch(1.5)] * 5, flat]},
    )
    two = WorldRuns(
        "crowd",
        {AUTO: [batch(2.0), *flat[:4]], PRINTED: [batch(2.0)] * 5, EVEN: [batch(1.25)] * 5},
        {AUTO: [flat], PRINTED: [[batch(9.0)] * 5], EVEN: [[batch(1.5)] * 5]},
    )
    told = auto.summarise([one, two], TINY, {"one-step": {AUTO: 2.0, PLACES: 9.0, EVEN: 1.0}})
    assert told["auto_vs_best_hotspot"] == pytest.approx(5 / 5.5)
    assert told["auto_vs_best_crowd"] == pytest.approx(1.25 * 5 / 6)
    assert told["auto_vs_best_min"] == told["auto_vs_best_hotspot"]
    assert told["auto_vs_paper"] == pytest.approx((20 / 5.5 * 10 / 6) ** 0.5)
    assert told["auto_vs_paper_once"] == pytest.approx((4 * 9) ** 0.5), "the first run of each"
    assert told["auto_vs_best_min_once"] == pytest.approx(1.5 / 2)
    assert told["cold_busiest"] == 2.0, "the two batches before the step"
    assert told["busiest_max"] == 1.5, "of the batch that is two rounds after it"
    assert told["busiest_max_once"] == 1.5, "the mean of two runs"
    assert told["busiest_max_work"] == pytest.approx(1.2), "six of ten, whatever they took"
    assert told["noise"] == 1.125
    assert told["noise_max"] == 1.25
    assert told["auto_vs_best_sim_one_step"] == 2.0, "`auto-places` is no rival"


def took(cpu_us: tuple[int, int], events: tuple[int, int] = (10, 10)) -> BatchEntry:
    loads = {n: Load(count, count, 0, us) for n, (count, us) in enumerate(zip(events, cpu_us, strict=True))}
    return BatchEntry(1, executors=loads, events_in=sum(events))


def test_runs_of_one_plan_take_the_least_that_any_of_them_took_and_other_plans_what_they_took() -> None:
    race = StrategyRace(stream_of("crowd", TINY.world, 0), machines=2, batches=1)
    own, same_work = took((5_000, 9_000)), took((4_000, 7_000))
    other_work = took((1_000, 1_000), events=(11, 9))
    alike = least_of_runs([own], [own, same_work, other_work], race)
    assert alike.match_max_s == pytest.approx(7e-3)
    assert alike.match_mean_s == pytest.approx(5.5e-3)
    assert least_of_runs([other_work], [own, same_work, other_work], race).match_max_s == pytest.approx(1e-3)


def test_a_hot_cell_is_a_cell_and_nobody_asks_for_a_crowd() -> None:
    spots = {world: spot_of(world, TINY.world) for world in ("hotspot", "moving", "crowd", "hot-cell")}
    assert spots["crowd"].queries == 0 < spots["hotspot"].queries
    assert spots["hot-cell"].side_share < 1 / 1000
    assert spots["moving"].drift != (0.0, 0.0)
    assert {spot.start_s for spot in spots.values()} == {3 * ROUND_S}


def test_partitions_stay_few_while_hotspots_jump() -> None:
    assert 1.0 < auto.partitions_after(60, 6, 0) <= 8.0


def test_every_strategy_goes_through_the_engine(spark: Any) -> None:
    result = auto.measure(TINY, 0, lambda _: None, spark)
    assert [(row["world"], row["strategy"]) for row in result.rows] == [
        ("crowd", name) for name in (AUTO, PRINTED, EVEN)
    ] + [("one-step, simulated", name) for name in (AUTO, PRINTED, EVEN)]
    assert all(row["cpu_us_per_event"] > 0 and row["busiest_cold"] >= 1 for row in result.rows[:3])
    assert {"auto_vs_best_min", "auto_vs_paper", "busiest_max", "cold_busiest", "partitions_per_executor"} <= set(
        result.summary
    )
    assert len(auto.plot(result).axes) == 1


@pytest.mark.parametrize("world", WORLDS)
def test_a_world_is_the_same_for_everyone_and_its_paper_has_a_strategy(world: str) -> None:
    streams = [stream_of(world, TINY.world, 5) for _ in range(2)]
    for part in ("events", "operations"):
        drawn = [[getattr(stream, part)(n) for n in (0, 4)] for stream in streams]
        assert drawn[0] == drawn[1]
        assert drawn[0][0] != drawn[0][1] or part == "operations"
    assert len(streams[0].standing)
    assert paper_of(world) in strategies()
    assert (streams[0].guard is not None) == (world == "attack")
