"""The benchmarks with words at a tiny size: they run, their claims have figures, their pictures are drawn."""

import math
from typing import Any

import numpy as np
import pytest

from geoswarm.flow.match.match import match
from geoswarm.lab.bench.engine import percolate, text_pipeline
from geoswarm.lab.bench.kit import text_density
from geoswarm.lab.bench.kit.harness import Result
from geoswarm.lab.bench.ps2 import costs as ps2_costs
from geoswarm.lab.workload.posts import Posts


def silent(_: str) -> None:
    pass


def expect(result: Result, *keys: str) -> None:
    assert set(keys) <= set(result.summary)
    assert all(math.isfinite(value) and value > 0 for value in result.summary.values()), result.summary


def drawn_bars(result: Result, module: Any) -> int:
    return sum(len(axes.patches) for axes in module.plot(result).axes)


def test_the_text_pipeline_sets_keywords_beside_the_null_pipeline(spark: Any) -> None:
    sizes = text_pipeline.TextPipelineSizes((3_000, 4_000), 1_000, 2, 2, 1, densities=(0.1,), warm_up=False)
    result = text_pipeline.measure(sizes, 0, silent)
    expect(result, "vs_null", "vs_null_at_0.1", "vs_null_world", "vs_null_4_k", "register_per_s")
    rows = {row["pipeline"]: row for row in result.rows}
    assert rows["null"]["batch_events"] == rows["3 k subscriptions"]["batch_events"] == 2_000
    posts = Posts(country=text_pipeline.COUNTRY)
    assert rows["3 k subscriptions"]["matches_per_event"] == pytest.approx(_matches(posts, 3_000, 2_000), abs=0.01)
    assert drawn_bars(result, text_pipeline) > 0


def _matches(posts: Posts, subscriptions: int, events: int, factor: float = 1.0) -> float:
    grid = text_density.posts_grid(posts)
    asked = text_density.shrink(posts.subscriptions(0, subscriptions), factor)
    said = text_density.sort_by_z(grid, posts.events(0, events))
    met = match(said, [text_density.text_segment(grid, asked)], grid, 0, rows_max=events, pairs_max=1 << 24)
    return sum(len(run.subs) for run in met) / events


def test_sides_are_made_as_short_as_the_wanted_matches_take() -> None:
    posts = Posts(seed=3, country="DE")
    before = _matches(posts, 50_000, 20_000)
    factor = text_density.shrink_factor(posts, 50_000, before / 5)
    assert _matches(posts, 50_000, 20_000, factor) == pytest.approx(before / 5, rel=0.15)
    assert text_density.shrink_factor(posts, 50_000, before * 2) == 1.0


def test_the_percolator_finds_the_same_one_by_one_and_in_batches() -> None:
    result = percolate.measure(percolate.PercolateSizes(5_000, 30, 200, 1), 0, silent)
    expect(result, "docs_per_s", "docs_per_s_batched", "posts_per_s", "posts_per_s_batched")
    one, many = result.rows[:2]
    assert one["matches_per_doc"] == many["matches_per_doc"] > 0
    assert 200 <= one["words"] <= 500
    assert drawn_bars(result, percolate) >= len(result.rows)


def test_a_document_is_made_of_whole_posts() -> None:
    posts = Posts(seed=1, country="US")
    written = percolate.documents(posts, 40, np.random.default_rng(0))
    texts = [text.as_py() for text in written.column("text")]
    low, high = percolate.DOCUMENT_POSTS
    assert all(10 * low <= len(text.split()) <= 15 * high for text in texts)
    used = int(np.random.default_rng(0).integers(low, high + 1, 40).sum())
    said = [text.as_py() for text in posts.events(0, used).column("text")]
    assert sorted(" ".join(texts).split()) == sorted(" ".join(said).split())


def test_what_sparks_exchange_takes_for_a_row_is_counted_over_all_processes(spark: Any) -> None:
    found = ps2_costs.exchange_us(spark, Posts(seed=0, country="US").events(0, 20_000))
    assert 0.05 < found < 100
