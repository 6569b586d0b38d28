"""Algorithm 1: its two phases, its balance, and that it is never worse than space or words alone."""

from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.layout.ps2_cases import PURE, WORLD, TextWorld, posts
from geoswarm.control.layout.by_metric import by_metric
from geoswarm.control.layout.hybrid import (
    LEAVES_PER_EXECUTOR_MAX,
    _numbers_of_parts,
    _phase_1,
    _total_in_parts,
    hybrid,
    kdt_tree,
)
from geoswarm.control.layout.kd_tree import kd_tree
from geoswarm.control.layout.kdt_tree import Node
from geoswarm.control.layout.load_model import COSTS, Costs, executor_loads
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.layout.unit import Unit
from geoswarm.core.space.grid import Grid
from geoswarm.core.stats.triostat import Box
from geoswarm.lab.workload.posts import QueryKind


def two_regions(rng: np.random.Generator, n: int = 2000) -> TextSample:
    """In the west large queries ask for what is hardly ever said; in the east, where most is said, small ones for
    the most frequent words."""
    grid = Grid(0.0, 0.0, 2.0, 1.0, columns=100, rows=50)
    points = rng.random((5 * n, 2)) * [2.0, 1.0]
    points[n:, 0] = 1.0 + points[n:, 0] / 2
    common = [f"common{i}" for i in range(40)]
    said = [" ".join(rng.choice(common, 8)) for _ in points]
    for i in range(0, len(said), 10):
        said[i] += f" rare{rng.integers(2000)}"
    centres = rng.random((n, 2)) * [2.0, 1.0]
    west = centres[:, 0] < 1.0
    half = np.where(west, 0.3, 0.02)[:, None]
    rects = np.concatenate([centres - half, centres + half], axis=1)
    rects[:, [0, 2]] = np.where(west[:, None], rects[:, [0, 2]].clip(0.0, 0.99), rects[:, [0, 2]].clip(1.01, 2.0))
    rects[:, [1, 3]] = rects[:, [1, 3]].clip(0.0, 1.0)
    keywords = [f"rare{rng.integers(2000)}" if w else str(rng.choice(common)) for w in west]
    return TextSample.of(grid, points, rects, pa.array(said), pa.array(keywords))


DEAR = Costs(c1_check=0.06, c2_event=0.6, c3_insertion=2.0, c4_deletion=0.8)
"""Copies of subscriptions cost much, copies of events little."""


@pytest.mark.slow
def test_words_are_divided_where_they_differ_and_space_where_they_do_not() -> None:
    sample = two_regions(np.random.default_rng(1), 4000)
    tree = kdt_tree(8, sample, costs=DEAR, sigma=1.2, delta=0.5)
    divided = [node.unit.box for node in tree.places() if node.children]
    whole = [node.unit.box for node in tree.places() if not node.children]
    assert divided
    assert whole
    assert all(box.col1 <= 60 for box in divided)
    assert all(box.col0 >= 40 for box in whole)
    best = min(executor_loads(layout(sample.grid, 8, sample, costs=DEAR), sample, DEAR).max() for layout in PURE)
    assert best > 1.3 * executor_loads(hybrid(sample.grid, 8, sample, costs=DEAR), sample, DEAR).max()


def test_phase_1_finds_the_places_where_few_say_what_is_asked_for() -> None:
    sample = two_regions(np.random.default_rng(1))
    whole = Unit.whole(sample)
    nodes = _phase_1(Node(whole, whole.load(COSTS)), delta=0.99, limit=64, costs=COSTS)
    cells = {
        by_text: {(n.unit.box.col0, n.unit.box.col1) for n in nodes if n.by_text == by_text}
        for by_text in (True, False)
    }
    assert cells[True]
    assert all(last <= 60 for _, last in cells[True])
    assert all(first >= 40 for first, _ in cells[False])
    assert sum(n.unit.box.cells for n in nodes) == sample.grid.cells


@pytest.mark.slow
@pytest.mark.parametrize(("queries", "country"), [("Q1", "US"), ("Q2", "US"), ("Q3", "GB")])
def test_hybrid_makes_no_more_load_than_the_best_of_space_and_words_alone(queries: QueryKind, country: str) -> None:
    sample = posts(queries, 12_000, country)
    rivals = [executor_loads(layout(sample.grid, 8, sample), sample) for layout in PURE]
    mine = executor_loads(hybrid(sample.grid, 8, sample), sample)
    assert mine.sum() <= 1.05 * min(rival.sum() for rival in rivals)
    assert mine.max() <= 1.05 * min(rival.max() for rival in rivals)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), executors=st.integers(1, 7), sigma=st.sampled_from([1.05, 1.2, 2.0]))
def test_executors_are_balanced_or_more_leaves_never_make_the_worst_worse(
    seed: int, executors: int, sigma: float
) -> None:
    sample = TextWorld(seed, events=300, queries=200).sample
    worst = np.inf
    for per_executor in (1, 3, LEAVES_PER_EXECUTOR_MAX):
        tree = kdt_tree(executors, sample, sigma=sigma, leaves_max=per_executor * executors)
        assert len(list(tree.leaves())) <= per_executor * executors
        found = executor_loads(tree.to_plan(executors), sample)
        if found.max() <= sigma * found.min():
            break
        assert found.max() <= worst * 1.000001
        worst = found.max()


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), executors=st.integers(1, 7))
def test_the_tree_and_the_plan_tell_the_same_load(seed: int, executors: int) -> None:
    sample = TextWorld(seed, events=300, queries=200).sample
    tree = kdt_tree(executors, sample)
    events: list[set[int]] = [set() for _ in range(executors)]
    queries: list[set[int]] = [set() for _ in range(executors)]
    for leaf in tree.leaves():
        events[leaf.executor].update(leaf.unit.events.tolist())
        queries[leaf.executor].update(leaf.unit.queries.tolist())
    met = [sum(leaf.unit.checks for leaf in tree.leaves() if leaf.executor == n) for n in range(executors)]
    said, asked = (np.array([len(part) for part in parts], np.float64) for parts in (events, queries))
    for costs in (COSTS, replace(COSTS, by_lists=True)):
        found = executor_loads(tree.to_plan(executors), sample, costs)
        assert found == pytest.approx(costs.load(sample, said, asked, np.array(met)))


@pytest.mark.slow
@pytest.mark.parametrize("queries", ["Q1", "Q2", "Q3"])
@pytest.mark.parametrize("by_lists", [False, True])
def test_hybrid_is_never_worse_than_space_or_words_alone_on_its_own_sample(queries: QueryKind, by_lists: bool) -> None:
    sample, costs = posts(queries, 3000), Costs(c1_check=10.0, by_lists=by_lists)
    worst = [
        executor_loads(layout(sample.grid, 8, sample, costs=costs), sample, costs).max()
        for layout in (kd_tree, by_metric)
    ]
    assert executor_loads(hybrid(sample.grid, 8, sample, costs=costs), sample, costs).max() <= min(worst) * 1.000001


def test_by_lists_no_layout_has_more_to_compare_than_another() -> None:
    sample, costs = posts("Q2", 3000), Costs(1.0, 0.0, 0.0, 0.0, by_lists=True)
    plans = [layout(sample.grid, 8, sample, costs=costs) for layout in (kd_tree, by_metric, hybrid)]
    assert [executor_loads(plan, sample, costs).sum() for plan in plans] == pytest.approx([sample.checks.sum()] * 3)


def test_the_numbers_of_parts_are_those_with_the_least_load_in_all() -> None:
    sample = posts("Q2", 3000)
    whole = Unit.whole(sample)
    boxes = [Box(0, 0, 999, 400), Box(0, 401, 499, 999), Box(500, 401, 999, 999)]
    nodes = [Node(unit, unit.load(COSTS), by_text=i == 1) for i, unit in enumerate(map(whole.within, boxes))]
    totals = [[_total_in_parts(node, k, COSTS) for k in range(1, 5)] for node in nodes]
    want = min(
        (sum(totals[i][k - 1] for i, k in enumerate(deal)), deal)
        for deal in product(range(1, 5), repeat=3)
        if sum(deal) == 6
    )
    assert tuple(_numbers_of_parts(nodes, 6, COSTS)) == want[1]


def test_the_tree_can_be_read() -> None:
    tree = kdt_tree(8, two_regions(np.random.default_rng(1)), costs=DEAR, delta=0.5)
    lines = str(tree).splitlines()
    assert lines[0].startswith("rows 0..49, columns 0..99: behind column ")
    assert any(line.strip().endswith(": by terms") for line in lines)
    assert sum("-> executor" in line for line in lines) == len(list(tree.leaves()))


def test_where_copies_cost_nothing_space_alone_is_left() -> None:
    sample = posts("Q1", 5000, "US")
    free = Costs(c1_check=0.06, c2_event=0.6, c3_insertion=0.0, c4_deletion=0.0)
    assert not hybrid(sample.grid, 8, sample, costs=free).siblings


def test_one_executor_has_everything() -> None:
    assert len(hybrid(WORLD, 1, TextWorld(1).sample).partitions) == 1
