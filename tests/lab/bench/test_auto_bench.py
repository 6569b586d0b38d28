"""`bench auto` at a tiny size: what it measures of whom, and what its keys say."""

from typing import Any

import pytest

from geoswarm.lab.bench.engine import auto
from geoswarm.lab.bench.engine.auto import AUTO, EVEN, PRINTED, AutoSizes, WorldRuns
from geoswarm.lab.bench.kit.engine_race import ROUND_S
from geoswarm.lab.bench.kit.projection import ProjectedBatch
from geoswarm.store.journal.entries import BatchEntry

TINY = AutoSizes(2000, 1500, 3, 6, 3, ("crowd",), (AUTO, PRINTED, EVEN))


def batch(busiest: float) -> ProjectedBatch:
    """Ten events that would take a second if all were level."""
    return ProjectedBatch(BatchEntry(1, subscriptions=5, events_in=10), busiest, 1.0, busiest, 0.0)


def test_keys_are_of_the_worst_world_and_of_batches_that_count() -> None:
    flat = [batch(1.0)] * 5
    one = WorldRuns("hotspot", {AUTO: [*flat[:4], batch(1.5)], PRINTED: [batch(4.0)] * 5, EVEN: flat})
    two = WorldRuns("crowd", {AUTO: [batch(2.0), *flat[:4]], PRINTED: [batch(2.0)] * 5, EVEN: [batch(1.25)] * 5})
    told = auto.summarise([one, two], TINY)
    assert told["auto_vs_best_hotspot"] == pytest.approx(5 / 5.5)
    assert told["auto_vs_best_crowd"] == pytest.approx(1.25 * 5 / 6)
    assert told["auto_vs_best_min"] == told["auto_vs_best_hotspot"]
    assert told["auto_vs_paper"] == pytest.approx((20 / 5.5 * 10 / 6) ** 0.5)
    assert told["cold_busiest"] == 2.0, "the two batches before the step"
    assert told["busiest_max"] == 1.5, "of the batch that is two rounds after it"
    assert told["noise"] == 1.125


def test_a_hot_cell_is_a_cell_and_nobody_asks_for_a_crowd() -> None:
    spots = {world: auto.spot_of(world, TINY) for world in ("hotspot", "moving", "crowd", "hot-cell")}
    assert spots["crowd"].queries == 0 < spots["hotspot"].queries
    assert spots["hot-cell"].side_share < 1 / 1000
    assert spots["moving"].drift != (0.0, 0.0)
    assert {spot.start_s for spot in spots.values()} == {3 * ROUND_S}


def test_partitions_stay_few_while_hotspots_jump() -> None:
    assert 1.0 < auto.partitions_after(60, 6, 0) <= 8.0


def test_every_strategy_goes_through_the_engine(spark: Any) -> None:
    result = auto.measure(TINY, 0, lambda _: None, spark)
    assert [(row["world"], row["strategy"]) for row in result.rows] == [("crowd", name) for name in TINY.names]
    assert all(row["cpu_us_per_event"] > 0 and row["busiest_cold"] >= 1 for row in result.rows)
    assert {"auto_vs_best_min", "auto_vs_paper", "busiest_max", "cold_busiest", "partitions_per_executor"} <= set(
        result.summary
    )
    assert len(auto.plot(result).axes) == 1
