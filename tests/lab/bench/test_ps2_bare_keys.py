"""PS2Stream's Figure 7 by bare keys: what is counted is what one would count by hand, and the means are means."""

from dataclasses import replace

import numpy as np
import pytest

from geoswarm.control.layout.load_model import C1_US, COSTS, c1_at, executor_loads
from geoswarm.core.space.plan import Plan
from geoswarm.lab.bench.ps2.bare_keys import INDEX_SIDE, count_under
from geoswarm.lab.bench.ps2.bare_queries import word_pairs
from geoswarm.lab.bench.ps2.fig7 import seed_means
from geoswarm.lab.bench.ps2.key_worlds import KeySizes, KeyWorld
from geoswarm.lab.bench.ps2.layouts import RIVALS, WORKERS, QueryCase
from geoswarm.lab.workload.posts import POSTS_PER_CHANGE, Posts


@pytest.fixture(scope="module")
def world() -> KeyWorld:
    return KeyWorld.of(QueryCase("GB", "Q3"), KeySizes(drawn=120, planned=120, events=100, days=1), seed=1)


def owner(plan: Plan, world: KeyWorld, row: int, column: int, term: int) -> tuple[int, int]:
    """The rectangle of a cell, and the worker of a term there."""
    place = int(plan.slot_of_cell[row * plan.grid.columns + column])
    part = plan.partitions[place]
    if part.cut is None:
        return place, part.executor
    share = int(plan.cuts[part.cut].shares_of(world.text.hashes[[term]])[0])
    slots = [slot for slot in plan.siblings[place] if share in plan.partitions[slot].shares]
    return place, plan.partitions[slots[0]].executor


@pytest.mark.parametrize("layout", RIVALS)
def test_lists_visits_and_entries_are_those_that_one_counts_cell_by_cell(world: KeyWorld, layout: str) -> None:
    plan, text, queries = world.plan(layout), world.text, world.queries
    step = plan.grid.rows // INDEX_SIDE
    on_list: dict[tuple[int, int, int], set[int]] = {}
    h2: set[tuple[int, int]] = set()
    for i in range(queries.size):
        row0, col0, row1, col1 = queries.boxes[:, i].tolist()
        for term in queries.postings.terms[queries.postings.offsets[i] : queries.postings.offsets[i + 1]].tolist():
            for row in range(row0, row1 + 1):
                for column in range(col0, col1 + 1):
                    place, worker = owner(plan, world, row, column, term)
                    cell = row // step * INDEX_SIDE + column // step
                    on_list.setdefault((worker, cell, term), set()).add(i)
                    h2.add((place, term))
    got, pairs = count_under(plan, text, queries), word_pairs(text)
    visits: set[tuple[int, int]] = set()
    for n, (event, term) in enumerate(zip(pairs.rows.tolist(), pairs.terms.tolist(), strict=True)):
        row, column = int(text.rows[event]), int(text.columns[event])
        place, worker = owner(plan, world, row, column, term)
        cell = row // step * INDEX_SIDE + column // step
        assert got.checks[n] == len(on_list.get((worker, cell, term), ()))
        if (place, term) in h2:
            visits.add((event, worker))
    assert got.visits.sum() == len(visits)
    assert got.entries.sum() == sum(map(len, on_list.values()))
    assert got.requests.sum() == len({(worker, i) for (worker, _, _), some in on_list.items() for i in some})


def test_bare_queries_are_those_with_texts() -> None:
    posts = Posts(seed=3, country="GB", words=2000)
    bare, rows = posts.bare_subscriptions(10, 300, "Q3"), posts.subscriptions(10, 300, "Q3")
    vocabulary = posts.vocabulary().to_pylist()
    for i, text in enumerate(rows.column("keywords").to_pylist()):
        joined = " OR " if bare.any_of[i] else " AND "
        assert text == joined.join(vocabulary[word] for word in bare.words[:, i] if word >= 0)
    assert np.array_equal(bare.sides[0], rows.column("xmin").to_numpy())
    ids = np.array([12, 10, 307])
    assert posts.subscriptions_of(ids, "Q3").column("keywords").to_pylist() == [
        rows.column("keywords")[i - 10].as_py() for i in ids.tolist()
    ]


@pytest.mark.parametrize("layout", ["kd-tree", "hybrid"])
def test_a_planner_foresees_what_the_machines_compare(layout: str) -> None:
    sizes = KeySizes(drawn=20_000, planned=20_000, events=3_000, days=1)
    world = KeyWorld.of(QueryCase("US", "Q3"), sizes, seed=0)
    plan, first = world.plan(layout), world.text.of_events(np.arange(sizes.events))
    only_checks = replace(COSTS, c1_check=1.0, c2_event=0.0, c3_insertion=0.0, c4_deletion=0.0, by_lists=True)
    foreseen = executor_loads(plan, first, only_checks)
    counted = count_under(plan, first, world.queries).compared
    assert foreseen == pytest.approx(counted, rel=0.15)
    assert foreseen.sum() < first.checks.sum()  # blocks are cut, and each part has fewer queries


@pytest.mark.parametrize("layout", RIVALS)
def test_where_handing_over_is_dear_visits_are_all_that_counts(world: KeyWorld, layout: str) -> None:
    dear = world.with_handover(1e6)
    row = dear.measure_plan(layout, dear.plan(layout))
    visits = row["visits_per_event"] + (1 + row["copies_per_query"]) / POSTS_PER_CHANGE
    tuples = 1 + 1 / POSTS_PER_CHANGE
    assert row["if_level_tuples_per_s"] == pytest.approx(WORKERS * tuples / visits, rel=0.01)


def test_c1_is_what_was_measured_and_nothing_is_made_up_beyond() -> None:
    assert [c1_at(count) for count, _ in C1_US] == pytest.approx([us for _, us in C1_US])
    assert c1_at(1) == pytest.approx(C1_US[0][1])
    assert c1_at(10**8) == pytest.approx(C1_US[-1][1])
    assert C1_US[1][1] > c1_at(400_000) > C1_US[2][1]


def test_means_are_geometric_over_seeds_and_of_the_lesser_country() -> None:
    rates = {("US-Q3", 0): (8.0, 4.0, 2.0), ("US-Q3", 1): (2.0, 1.0, 2.0), ("GB-Q3", 0): (3.0, 2.0, 1.0)}
    rows = [
        {"case": case, "seed": seed, "layout": layout, "tuples_per_s": rate}
        for (case, seed), three in rates.items()
        for layout, rate in zip(("hybrid", "kd-tree", "metric"), three, strict=True)
    ]
    found = seed_means(rows)
    assert found["hybrid_vs_kdtree_q3_us"] == pytest.approx(2.0)
    assert found["hybrid_vs_metric_q3_us"] == pytest.approx(2.0)  # of 4 and 1
    assert found["hybrid_vs_kdtree_q3"] == pytest.approx(1.5)
    assert (found["hybrid_vs_metric_q3_least"], found["hybrid_vs_metric_q3_most"]) == (1.0, 4.0)
    assert found["hybrid_worst"] == pytest.approx(2.0**0.5)
