"""PS2Stream's Figures 6 to 11: what the layouts are measured by, on worlds small enough to check."""

import numpy as np
import pytest

from geoswarm.lab.bench.kit.catalogue import bench_names
from geoswarm.lab.bench.kit.harness import Result
from geoswarm.lab.bench.ps2 import fig8 as ps2_fig8
from geoswarm.lab.bench.ps2 import fig9 as ps2_fig9
from geoswarm.lab.bench.ps2 import fig10 as ps2_fig10
from geoswarm.lab.bench.ps2.engine import LayoutEngineSizes, run_layouts_on_engine
from geoswarm.lab.bench.ps2.fig6 import space_vs_text
from geoswarm.lab.bench.ps2.layouts import (
    BASELINES,
    LAYOUTS,
    LayoutSizes,
    LayoutWorld,
    QueryCase,
    hybrid_ratios,
    layout_bars,
    way_of,
    workers_of_queries,
)

TINY = LayoutSizes(1_000, 1_000, 1)


@pytest.fixture(scope="module")
def world() -> LayoutWorld:
    return LayoutWorld.of(QueryCase("GB", "Q3"), TINY, seed=1)


def row_of(case: str, layout: str, value: float) -> dict[str, object]:
    return {"case": case, "layout": layout, "tuples_per_s": value}


def test_every_figure_from_6_to_11_has_a_benchmark() -> None:
    assert {f"ps2-fig{n}" for n in range(6, 12)} <= set(bench_names())


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "hypergraph"])
def test_no_layout_takes_more_than_if_all_workers_were_level(world: LayoutWorld, layout: str) -> None:
    row = world.measure_plan(layout, world.plan(layout))
    assert 0 < row["tuples_per_s"] <= row["if_level_tuples_per_s"] * (1 + 1e-9)
    assert row["max_over_mean"] == pytest.approx(row["if_level_tuples_per_s"] / row["tuples_per_s"], rel=1e-6)


def test_only_layouts_by_words_copy_events_and_all_drop_the_same(world: LayoutWorld) -> None:
    rows = {name: world.measure_plan(name, world.plan(name)) for name in ("kd-tree", "grid", "metric", "frequency")}
    assert rows["kd-tree"]["copies_per_event"] == rows["grid"]["copies_per_event"] == 0
    assert min(rows["metric"]["copies_per_event"], rows["frequency"]["copies_per_event"]) > 0
    assert len({row["dropped_share"] for row in rows.values()}) == 1


def test_every_query_is_held_by_somebody_and_one_worker_holds_each_once(world: LayoutWorld) -> None:
    held = workers_of_queries(world.stream, world.plan("hybrid"), 8)
    assert np.diff(held.offsets).min() >= 1
    alone = workers_of_queries(world.stream, world.with_workers(1).plan("kd-tree"), 1)
    assert len(alone.workers) == world.sizes.live


def test_more_workers_take_more(world: LayoutWorld) -> None:
    few, many = (world.with_workers(workers) for workers in (2, 16))
    assert (
        many.measure_plan("hybrid", many.plan("hybrid"))["tuples_per_s"]
        > (few.measure_plan("hybrid", few.plan("hybrid"))["tuples_per_s"])
    )


def test_all_entries_of_lists_belong_to_some_slot_of_the_plan(world: LayoutWorld) -> None:
    plan = world.plan("metric")
    way = way_of(world.stream, plan)
    assert way.counts.sum() == world.stream.of_queries.offsets[world.sizes.live]
    assert 0 <= way.slot_of_list.min() <= way.slot_of_list.max() < len(plan.partitions)


def test_hybrid_is_compared_with_the_better_rival_and_the_worse_country() -> None:
    rows = [row_of("US-Q1", name, value) for name, value in (("hybrid", 9.0), ("kd-tree", 10.0), ("metric", 3.0))]
    rows += [row_of("US-Q3", name, value) for name, value in (("hybrid", 8.0), ("kd-tree", 4.0), ("metric", 5.0))]
    rows += [row_of("GB-Q3", name, value) for name, value in (("hybrid", 6.0), ("kd-tree", 4.0), ("metric", 2.0))]
    found = hybrid_ratios(rows, "tuples_per_s", "engine_")
    assert found == {
        "engine_hybrid_vs_kdtree_q3": pytest.approx(1.5),
        "engine_hybrid_vs_metric_q3": pytest.approx(1.6),
        "engine_hybrid_worst": pytest.approx(0.9),
    }


def test_space_is_compared_with_text_by_the_best_of_each() -> None:
    rows = [row_of("US-Q1", name, float(i)) for i, name in enumerate(BASELINES, start=1)]
    assert space_vs_text(rows, "tuples_per_s") == {"space_vs_text_us_q1": pytest.approx(6 / 3)}


def test_a_tuple_waits_longer_the_more_are_offered_and_never_less_than_it_takes(world: LayoutWorld) -> None:
    tuples = ps2_fig8._Tuples.of(world, world.plan("metric"))
    slow, fast = (tuples.latencies_s(share * tuples.taken_per_s, world.setup) for share in (0.1, 0.9))
    assert (fast >= slow).all()
    assert tuples.mean_and_p99(fast)[0] > tuples.mean_and_p99(slow)[0]
    reached = np.flatnonzero(np.diff(tuples.offsets))
    assert (slow[reached] >= tuples.seconds[tuples.offsets[reached]]).all()
    assert tuples.mean_and_p99(fast)[0] <= fast.max()


def test_a_queue_with_equal_services_waits_as_the_textbook_says(world: LayoutWorld) -> None:
    same = ps2_fig8._Tuples.__new__(ps2_fig8._Tuples)
    same.offsets, same.workers, same.seconds = np.array([0, 1]), np.array([0]), np.array([1e-3])
    same.weights, same.work_s, same._squares = np.array([1.0]), np.array([1e-3]), np.array([1e-6])
    waited_s = same.latencies_s(500.0, world.setup)[0] - 1e-3 - world.setup.dispatch_us * 1e-6
    assert waited_s == pytest.approx(0.5e-3, rel=1e-3)  # half a service at half the load


def test_dispatchers_keep_words_only_where_terms_are_divided(world: LayoutWorld) -> None:
    by_space, by_text = (ps2_fig9._row(world, name, world.plan(name)) for name in ("kd-tree", "metric"))
    assert by_space["h1_terms"] == by_space["h2_terms"] == by_space["divided_cells"] == 0
    assert by_text["h2_terms"] == world.stream.lists
    assert by_text["paper_mb"] > by_space["paper_mb"]
    assert by_text["ours_mb"] > by_space["ours_mb"]


def test_our_workers_map_the_same_whatever_the_plan_and_keep_no_copies(world: LayoutWorld) -> None:
    bytes_per_query = ps2_fig10._bytes_per_query(world, 1_000)
    assert bytes_per_query > 32  # four sides, at least
    rows = [ps2_fig10._row(world, name, world.plan(name), bytes_per_query) for name in ("kd-tree", "metric")]
    assert rows[0]["ours_mapped_mb"] == rows[1]["ours_mapped_mb"]
    assert all(row["ours_mapped_mb"] / 8 <= row["ours_touched_mb"] <= row["ours_mapped_mb"] for row in rows)
    assert all(row["paper_mb"] <= row["paper_largest_mb"] for row in rows)


def test_bars_stand_in_groups_by_query_set() -> None:
    rows = [row_of(case, name, 1000.0) for case in ("US-Q1", "GB-Q1") for name in ("hybrid", "kd-tree", "metric")]
    result = Result(rows, {})
    drawn = layout_bars([("one", result.rows, "tuples_per_s")], "thousand tuples/s")
    (panel,) = drawn.axes
    assert len(panel.patches) == 6
    assert [label.get_text() for label in panel.get_xticklabels()] == ["US-Q1", "GB-Q1"]


def test_layouts_take_turns_on_the_engine_and_find_as_much(spark: object) -> None:
    sizes = LayoutEngineSizes(subscriptions=2_000, sample=2_000, batch_events=1_500, batches=2, turns=1)
    rows = run_layouts_on_engine(
        spark, QueryCase("GB", "Q3"), sizes, 0, ("kd-tree", "hybrid", "metric"), lambda what: None
    )
    by = {row["layout"]: row for row in rows}
    assert all(row["projected_tuples_per_s"] > 0 and row["matches_per_event"] > 0 for row in rows)
    assert by["kd-tree"]["copies_per_event"] == 0 < by["metric"]["copies_per_event"]
    # Queries come and go between turns, the posts are the same.
    found = [row["matches_per_event"] for row in rows]
    assert max(found) < 1.5 * min(found)
