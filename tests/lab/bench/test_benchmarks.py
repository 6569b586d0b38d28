"""Every benchmark of the foundation at a tiny size: it runs, its claims have figures, its picture is drawn."""

import math
from typing import Any

import numpy as np
import pytest

from geoswarm.errors import GeoswarmError
from geoswarm.lab.bench.engine import kernel, pipeline, subscriptions
from geoswarm.lab.bench.engine.many_subscriptions import ManySizes
from geoswarm.lab.bench.kit import density
from geoswarm.lab.bench.kit.harness import Result


def silent(_: str) -> None:
    pass


def expect(result: Result, *keys: str) -> None:
    assert set(keys) <= set(result.summary)
    assert all(math.isfinite(value) and value > 0 for value in result.summary.values()), result.summary


def drawn_lines(result: Result, module: Any) -> int:
    return sum(len(axes.lines) + len(axes.patches) for axes in module.plot(result).axes)


def test_the_kernel_benchmark_sets_the_flat_index_beside_its_rivals() -> None:
    result = kernel.measure(kernel.KernelSizes((300, 3_000), 4_000, 1_000, 3_000), 0, silent)
    expect(result, "vs_strtree", "vs_strtree_boxes", "vs_rtree", "vs_strtree_32k", "vs_boxes_32k", "points_per_s_1m")
    assert len(result.rows) == 2 * 2 * 5
    assert drawn_lines(result, kernel) == 2 * 5


def test_a_rival_that_finds_other_matches_is_not_measured() -> None:
    rects = np.array([[0.0, 0.0, 10.0, 10.0], [5.0, 5.0, 20.0, 20.0]])
    contestants = kernel._index_contestants(rects)
    x = y = np.array([1.0, 7.0, 15.0])
    kernel._check_equal(contestants, x, y)
    liar = kernel._index_contestants(rects + 1.5)[kernel.RTREE]
    with pytest.raises(GeoswarmError, match="one of them is wrong"):
        kernel._check_equal(contestants | {kernel.RTREE: liar}, x, y)


@pytest.mark.parametrize("wanted", [1.0, 17.0])
def test_rectangles_are_made_as_large_as_the_wanted_matches_take(wanted: float) -> None:
    workload = density.tweets_for(20_000, wanted, seed=3)
    assert density.matches_of(workload, 20_000) == pytest.approx(wanted, rel=0.1)


def test_the_subscriptions_benchmark_counts_what_it_registers_and_cancels() -> None:
    many = ManySizes(3_000, 1_000, events=2_000, turns=1)
    sizes = subscriptions.SubscriptionSizes(4_000, 2_000, ((50, 12), (200, 3)), 2_000, many)
    result = subscriptions.measure(sizes, 0, silent)
    expect(result, "bulk_register_per_s", "bulk_cancel_per_s", "bytes_per_subscription", "cold_start_s")
    expect(result, "pause_ms_p99", "events_100m_vs_1m", "register_per_s_100m", "start_s_100m", "rss_gb_100m")
    registered = next(row for row in result.rows if row["what"] == "register in bulk")
    assert registered["operations"] == 6_000
    assert drawn_lines(result, subscriptions) > 0


def test_the_pipeline_benchmark_sets_matching_beside_the_null_pipeline(spark: Any) -> None:
    result = pipeline.measure(pipeline.PipelineSizes((500,), 500, 400, 2, 2, 1, 50, warm_up=False), 0, silent)
    expect(result, "vs_null", "packed_vs_rows", "matches_per_s_100", "arrays_vs_pairs")
    rows = {row["pipeline"]: row for row in result.rows}
    assert rows["null"]["batch_events"] == rows["500 subscriptions"]["batch_events"] == 800
    assert rows["500 subscriptions, crowded"]["matches_per_event"] > 10
    assert drawn_lines(result, pipeline) > 0
