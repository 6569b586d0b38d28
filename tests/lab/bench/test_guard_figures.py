"""Guard's figures at a tiny size: every kind has its line, times are in order, and the pictures are drawn."""

import math
from dataclasses import replace
from typing import Any

import pytest

from geoswarm.lab.bench.guard import auto as guard_auto
from geoswarm.lab.bench.guard import blocking, engine, fig6_18, fig6_19, fig6_22, worlds
from geoswarm.lab.bench.guard import fig6_14_to_17 as timeline
from geoswarm.lab.bench.guard.half_hours import HalfHourSizes
from geoswarm.lab.bench.guard.outcomes import (
    ATTACK,
    CALM,
    GUARDED,
    KINDS,
    OURS,
    AttackOutcome,
    availability_by_minute,
    recovery_s,
)
from geoswarm.lab.bench.kit.catalogue import bench_names
from geoswarm.lab.bench.kit.harness import Result, Scale
from geoswarm.lab.bench.kit.projection import ProjectedBatch
from geoswarm.run.sim.attack_world import SensedHotspot
from geoswarm.run.sim.spans import Span
from geoswarm.store.journal.entries import BatchEntry

TINY = HalfHourSizes(128, 50, 1, (OURS,), queries=200_000, warm_s=60.0, minutes=8, step_s=15.0, cells_per_side=60)


def silent(_: str) -> None:
    pass


def outcome(rates: list[float], **more: object) -> AttackOutcome:
    spans = [Span(i * 15.0, 15.0, 1.0, rate * 15.0, 0.0, 0.0, (0.0,), 0, 0, 1) for i, rate in enumerate(rates)]
    plain = AttackOutcome(OURS, ATTACK, 600, 10, 0, spans, [], {}, [], [], [])
    return replace(plain, **more)  # type: ignore[arg-type]


def test_all_of_guards_figures_are_listed() -> None:
    assert {f"guard-fig6.{n}" for n in range(14, 23)} | {"guard-worlds", "guard-engine"} <= set(bench_names())


def test_a_timeline_has_a_line_for_every_kind() -> None:
    shown = timeline.FIGURES["guard-fig6.16"]
    result = timeline.measure(shown, TINY, 1, silent)
    assert {row["kind"] for row in result.rows} == set(KINDS)
    for kind in KINDS:
        lines = [row for row in result.rows if row["kind"] == kind]
        assert [row["minute"] for row in lines] == list(range(8))
        assert min(row["events_per_s"] for row in lines) > 0
    before = {kind: [r["events_per_s"] for r in result.rows if r["kind"] == kind][:5] for kind in KINDS}
    assert all(rates == before[CALM] for rates in before.values())
    assert {"unguarded_loss_max", "guarded_loss_max", "guarded_kept_loss_max", "extra_loss_max"} <= set(result.summary)
    assert len(timeline.plot(shown, result).axes[0].lines) == len(KINDS) + 1


def test_rates_have_losses_and_boxes() -> None:
    thrown = fig6_18.measure(TINY._replace(rates=(600,)), 1, silent)
    assert [row["kind"] for row in thrown.rows].count(CALM) == 1
    assert math.isclose(
        max(row["loss"] for row in thrown.rows if row["kind"] == ATTACK), thrown.summary["unguarded_loss_max"]
    )
    assert fig6_18.plot(thrown).axes
    boxes = fig6_19.measure(TINY._replace(rates=(1200,)), 1, silent)
    for row in boxes.rows:
        assert 0 <= row["min"] <= row["q1"] <= row["median"] <= row["q3"] <= row["max"] <= 1
    assert fig6_19.plot(boxes).axes


def test_times_to_block_and_recover_have_a_row_for_every_rate_and_number_of_attackers() -> None:
    by_rate, by_attackers = blocking.FIGURES.values()
    by_number = blocking.measure(by_attackers, TINY._replace(rates=(600,), attackers=(1, 10)), 1, silent)
    assert [(row["rate"], row["attackers"]) for row in by_number.rows] == [(600, 1), (600, 10)]
    assert {"false_blocks", "missed"} <= set(by_number.summary)
    assert blocking.plot(by_rate, by_number).axes
    assert blocking.plot(by_attackers, by_number).axes
    recovered = fig6_22.measure(TINY._replace(rates=(600,)), 1, silent)
    assert {row["kind"] for row in recovered.rows} == {"guarded", "queries kept"}
    assert fig6_22.plot(recovered).axes


def test_every_kind_of_world_can_be_played() -> None:
    kinds = [*worlds.NATURAL, *worlds.NEW]
    tiny = TINY._replace(minutes=4)
    result: Result = worlds.measure_worlds([worlds.GuardWorld(kind, OURS, 1) for kind in kinds], tiny, silent)
    assert [row["kind"] for row in result.rows] == kinds
    assert result.summary["worlds"] == len(kinds)
    assert {f"caught_{kind}" for kind in worlds.NEW} < set(result.summary)


def test_there_are_more_than_two_hundred_worlds_of_all_kinds() -> None:
    chosen = worlds.guard_worlds(Scale.FULL, 0)
    assert len(set(chosen)) == len(chosen) >= 200
    assert {case.kind for case in chosen} == {worlds.THESIS, *worlds.NATURAL, *worlds.NEW}
    assert {case.kind for case in worlds.guard_worlds(Scale.SMALL, 0)} == {case.kind for case in chosen}


def test_availability_is_whole_while_the_stream_is_taken() -> None:
    assert availability_by_minute(outcome([100.0] * 4 + [45.0] * 4), 100.0) == [1.0, pytest.approx(0.5)]


def test_recovery_counts_from_the_lowest_round_to_a_minute_at_the_level_before() -> None:
    rates = [100.0] * 20 + [50.0, 30.0, 60.0, 90.0] + [99.0] * 12
    blocked = {"blocked_at_s": {"attacker0": 330.0}}
    assert recovery_s(outcome(rates, **blocked), 100.0) == 30.0
    assert recovery_s(outcome(rates[:24], **blocked), 100.0) is None
    assert recovery_s(outcome(rates), 100.0) is None


def test_rounds_to_block_count_from_the_second_malicious_hotspot() -> None:
    hotspots = [SensedHotspot(at_s, 10, 5, 5) for at_s in (310.0, 370.0, 400.0)]
    found = outcome([1.0], sensed=hotspots, blocked_at_s={"attacker0": 420.0}, suspected_at_s=[360.0, 420.0])
    assert found.rounds_to_block == 1
    assert found.block_s == 110.0
    assert found.detect_s == pytest.approx((50.0 + 50.0 + 20.0) / 3)
    assert replace(found, missed=["attacker1"]).rounds_to_block is None


def batch(makespan_s: float) -> ProjectedBatch:
    entry = BatchEntry(0, subscriptions=10, events_in=100)
    return ProjectedBatch(entry, makespan_s, makespan_s / 2, makespan_s, 0.0)


def test_losses_on_the_engine_are_of_the_batches_from_the_attack_on() -> None:
    sizes = engine.GuardEngineSizes(10, 1.0, 100, settles=2, attacked=3)
    kinds = {CALM: [1.0, 1.0], ATTACK: [2.0, 4.0], GUARDED: [2.0, 1.0]}
    blocked = {"attacker3": 60.0, "attacker1": 120.0, "user7": 60.0}
    runs = {
        kind: engine.AttackRun(
            [batch(9.0)] * 2 + [batch(before)] * 2 + [batch(late)], blocked if kind == GUARDED else {}
        )
        for kind, (before, late) in kinds.items()
    }
    summary = engine.loss_summary(runs, sizes)
    assert summary["unguarded_loss"] == pytest.approx(1 - 3 / 8)
    assert summary["guarded_loss"] == pytest.approx(1 - 3 / 5)
    assert summary["settled_unguarded_loss"] == pytest.approx(0.75)
    assert summary["settled_guarded_loss"] == pytest.approx(0.0)
    assert (summary["blocked"], summary["false_blocks"], summary["blocked_s"]) == (3.0, 1.0, 120.0)


def test_the_attack_runs_through_the_real_engine(spark: Any) -> None:
    result = engine.measure(engine.GuardEngineSizes(2000, 40.0, 1000, 1, 2, 60, 1), 0, silent, spark)
    by_kind = {kind: [row for row in result.rows if row["kind"] == kind] for kind in engine.RACED}
    assert [row["s"] for row in by_kind[ATTACK]] == [-15.0, 0.0, 15.0]
    assert by_kind[CALM][0]["subscriptions"] == by_kind[GUARDED][0]["subscriptions"] == 2000
    assert all(row["events_per_s"] > 0 for row in result.rows)
    assert {"unguarded_loss", "guarded_loss", "false_blocks"} <= set(result.summary)
    assert engine.plot(result).axes


def test_guard_under_auto_has_keys_of_its_own() -> None:
    result = guard_auto.measure(TINY._replace(settings=guard_auto.BOTH, rates=(600,)), 1, silent)
    assert {row["cluster"] for row in result.rows} == set(guard_auto.BOTH)
    for key in ("unguarded_loss_max", "guarded_loss_max", "false_blocks", "missed"):
        assert {key, f"{key}_auto"} <= set(result.summary)
    assert guard_auto.plot(result).axes
