"""Distributor's figures at a tiny size: what is projected, what the keys say, and that the engine redistributes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoswarm.control.outcome import RoundEntry
from geoswarm.flow.observe import Load
from geoswarm.lab.bench.distributor import course, race, skew
from geoswarm.lab.bench.distributor import fig8 as distributor_fig8
from geoswarm.lab.bench.distributor.race import (
    BASE,
    BEST,
    HASHED,
    LOAD,
    MACHINES,
    MODES,
    OURS,
    CollisionRuns,
    CollisionSizes,
    CostedBatch,
    Mode,
    PlannedEntry,
    cost_batch,
    hot_loads,
    latency_s,
    project_costs,
    publications_per_s,
)
from geoswarm.lab.bench.distributor.skew import SkewRun, SkewSizes, level_runs
from geoswarm.lab.bench.kit.catalogue import bench_names
from geoswarm.lab.workload.postcodes import Britain, make_britain
from geoswarm.store.journal.entries import BatchEntry

SWEEP = SkewSizes(CollisionSizes(10, 100, 3), ("sps", HASHED), (0.3, 0.7), (0.3, 0.4))
THROUGHPUT, LATENCY = skew.FIGURES["distributor-fig4"], skew.FIGURES["distributor-fig5"]


def silent(_: str) -> None:
    pass


@pytest.fixture
def few_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a task of every batch."""
    monkeypatch.setattr(race, "MACHINES", 10)


@pytest.fixture(scope="module")
def country() -> Britain:
    return make_britain(0, places=4000, sectors=250)


def batch(heaped: int, *, slow: float = 1.0) -> CostedBatch:
    """Ten partitions of a second each: some are with one executor, and each of the others has one of its own."""
    owners = [max(0, partition - heaped + 1) for partition in range(10)]
    return project_costs(100, 0, 0.0, dict.fromkeys(range(10), slow * 1e6), owners)


def test_every_figure_of_the_paper_has_a_benchmark() -> None:
    assert {f"distributor-fig{number}" for number in range(4, 9)} <= set(bench_names())


def test_a_batch_ends_with_its_costliest_executor_after_everybody_has_routed() -> None:
    partitions = {5: Load(30, 1, 1, 4_000_000), 6: Load(10, 1, 1, 9_000_000), 7: Load(10, 1, 1, 3_000_000)}
    entry = BatchEntry(0, plan_epoch=2, partitions=partitions, events_in=50, route_cpu_us=32_000_000)
    found = cost_batch(PlannedEntry(entry, [5, 6, 7, 8], [0, 3, 3, 1]))
    assert (found.route_s, found.mean_s) == (2.0, 1.0)
    assert (found.makespan_s, found.mldc) == (14.0, 11.0)


def test_the_first_batch_is_not_counted_and_a_publication_waits_for_half_of_the_batch_before() -> None:
    run = [batch(10), batch(2), batch(4)]
    assert publications_per_s(run) == pytest.approx(200 / 6)
    assert latency_s(run) == pytest.approx(((1.0 + 2.0) + (1.0 + 4.0)) / 2)


def test_a_publication_is_as_hot_as_those_that_it_may_match() -> None:
    rects = np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 3.0, 3.0], [8.0, 8.0, 9.0, 9.0]])
    boxes = np.array([[0.5, 0.5, 0.5, 0.5], [1.5, 1.5, 1.6, 1.6], [5.0, 5.0, 5.0, 5.0]])
    shares, loads = hot_loads(boxes, rects, np.array([True, False, False]))
    assert shares.tolist() == [1.0, 0.5, 0.0]
    assert loads.tolist() == [1.0, 2.0, 0.0]


def runs_of(heaped: dict[Mode, int], slow: Sequence[Mode] = ()) -> list[SkewRun]:
    """Every mode takes as long in all cells, but for those at 0.7, where all but ours take twice as long."""
    runs = []
    for pipeline, at in SWEEP.cells():
        for mode in [*MODES, OURS, BEST]:
            longer = 2 if at == 0.7 and mode not in (OURS, BEST) else 1
            run = [batch(10), *[batch(heaped.get(mode, heaped[OURS]) * longer, slow=1.5 if mode in slow else 1.0)] * 2]
            runs.append(SkewRun(pipeline, at, mode, run, [RoundEntry(0, "distributor", 0, "kept")] * 2))
    return level_runs(runs)


def test_the_lead_is_over_the_best_of_the_others_and_grows_with_skew(country: Britain) -> None:
    heaped = {mode: 2 if mode == OURS else 3 if mode == BASE else 4 for mode in MODES}
    result = skew.skew_result(THROUGHPUT, runs_of(heaped), country, SWEEP)
    assert len(result.rows) == 4 * (len(MODES) + 1)
    summary = result.summary
    for key in ("best_everywhere_distributor", "best_everywhere_distributor_as_measured"):
        assert summary[key] == pytest.approx(1.5)
    assert summary["best_everywhere"] == summary["best_everywhere_as_measured"] == pytest.approx(1.0)
    assert summary["lead_at_0.3"] == pytest.approx(1.5)
    assert summary["lead_at_0.7"] == pytest.approx((3.0 * 1.5) ** 0.5)  # RIhPS ends at 0.4, where it is 1.5
    assert summary["noise"] == summary["noise_max"] == 0.0
    assert len(skew.plot(THROUGHPUT, result).axes) == 2


def test_a_machine_that_was_slow_for_one_mode_is_distinguished_from_a_slow_mode(country: Britain) -> None:
    result = skew.skew_result(THROUGHPUT, runs_of(dict.fromkeys(MODES, 2), slow=[BASE]), country, SWEEP)
    assert result.summary["lead_as_measured_at_0.3"] == pytest.approx(1.5)
    assert result.summary["lead_at_0.3"] == pytest.approx(1.0)
    assert 0.1 < result.summary["noise_cpu"] < 0.25  # half of the sides are apart, but for the first batch


def test_latency_leads_are_of_the_same_runs_turned_over(country: Britain) -> None:
    heaped = {mode: 2 if mode == OURS else 3 for mode in MODES}
    result = skew.skew_result(LATENCY, runs_of(heaped), country, SWEEP)
    assert result.summary["best_everywhere_distributor"] == pytest.approx(1.5)
    ours = next(row for row in result.rows if row["mode"] == OURS.name)
    assert ours["latency_ms"] == pytest.approx(3000.0)
    assert len(skew.plot(LATENCY, result).axes) == 2


@pytest.mark.usefixtures("few_machines")
def test_a_skewed_stream_is_redistributed_once_and_both_figures_show_it(
    spark: Any, country: Britain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "SHOWN", (OURS, BASE))
    monkeypatch.setattr(course, "SUFFIXES", course.SUFFIXES[:1])
    sizes, (rates_shown, levels_shown) = (
        course.CourseSizes(CollisionSizes(200, 4000, 4), (0.7,)),
        course.FIGURES.values(),
    )
    runs = course.run_course(CollisionRuns(spark, country, sizes.each, 0, tmp_path), sizes, silent)
    rates, levels = (course.course_result(shown, runs, country, sizes) for shown in (rates_shown, levels_shown))
    assert levels.summary["redistributions_0.7"] == 1
    assert levels.summary["mldc_0.7"] < levels.summary["mldc_static_0.7"]
    ours = [row for row in rates.rows if row["mode"] == OURS.name]
    assert ours[0]["moves_after"] > 0 == ours[1]["moves_after"]
    assert ours[0]["plan"] < ours[1]["plan"] == ours[2]["plan"]
    for shown, result in ((rates_shown, rates), (levels_shown, levels)):
        assert len(course.plot(shown, result).axes[0].lines) >= len(course.SHOWN)


@pytest.mark.usefixtures("few_machines")
def test_a_new_plan_asks_for_no_list_anew_and_moving_them_would_cost(spark: Any, country: Britain) -> None:
    result = distributor_fig8.measure_redistribution(
        spark, country, distributor_fig8.StaticSideSizes((150,), 4000), 0, silent
    )
    (row,) = result.rows
    assert row["moves"] > 0 < row["moved_mb"]
    assert 0 < row["moved_ms"] < row["moved_indexed_ms"]
    assert 0 < row["lists_ms"] < row["plan_ms"]
    assert distributor_fig8.plot(result).axes


def test_a_stream_for_hashed_subscriptions_is_hot_where_they_are(spark: Any, country: Britain, tmp_path: Path) -> None:
    stage = CollisionRuns(spark, country, CollisionSizes(300, 600, 2), 0, tmp_path)
    (_, planned), _ = stage.entries(HASHED, Mode(LOAD, "stream"), 0.4)
    rows = {executor: load.events for executor, load in planned.entry.executors.items()}
    hot = sum(rows.get(executor, 0) for executor in stage.hot.executors) / sum(rows.values())
    assert len(stage.hot.executors) / MACHINES < hot < 0.6
    assert not (tmp_path / "run").exists()
