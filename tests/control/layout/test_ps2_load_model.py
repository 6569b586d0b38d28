"""Definition 1 by hand, and beside a count that compares everything with everything."""

import math
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.layout.ps2_cases import WORLD, TextWorld
from geoswarm.control.balance.static import Replicated
from geoswarm.control.layout.by_metric import by_metric
from geoswarm.control.layout.hybrid import hybrid
from geoswarm.control.layout.kd_tree import kd_tree
from geoswarm.control.layout.load_model import Costs, destinations, executor_loads
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.cut import TermCut
from geoswarm.core.text.tokens import hash_terms
from geoswarm.errors import InputError
from geoswarm.lab.bench.ps2.costs import measure_costs
from geoswarm.lab.workload.posts import Posts

SQUARE = Grid(0.0, 0.0, 4.0, 4.0, columns=4, rows=4)
COSTS = Costs(c1_check=1.0, c2_event=10.0, c3_insertion=100.0, c4_deletion=1000.0)


def town() -> TextSample:
    """Three posts and three queries in the left half, one post that no query asks for in the right."""
    points = np.array([[0.5, 0.5], [0.5, 0.6], [1.5, 3.5], [3.5, 3.5]])
    texts = pa.array(["flood river", "flood", "dam", "silence"])
    rects = np.array([[0.1, 0.1, 0.9, 0.9], [0.1, 0.1, 0.9, 0.9], [0.1, 0.1, 1.9, 3.9]])
    return TextSample.of(SQUARE, points, rects, texts, pa.array(["flood AND river", "flood", "dam OR river"]))


def test_a_query_is_entered_under_its_rarest_word_and_an_event_goes_where_it_is_asked_for() -> None:
    sample = town()
    hashes = hash_terms(pa.array(["flood", "river", "dam"]))
    flood, river, dam = (int(np.flatnonzero(sample.hashes == h)[0]) for h in hashes)
    postings = [set(part.tolist()) for part in np.split(sample.postings.terms, sample.postings.offsets[1:-1])]
    assert postings == [{river}, {flood}, {dam, river}]  # river is said once, flood twice
    asked = [set(part.tolist()) for part in np.split(sample.asked.terms, sample.asked.offsets[1:-1])]
    assert asked == [{flood, river}, {flood}, {dam}, set()]


def test_definition_1_by_hand() -> None:
    sample = town()
    hashes = hash_terms(pa.array(["flood", "river", "dam"])).tolist()
    cut = TermCut.of(2, dict(zip(hashes, (0, 1, 1), strict=True)))
    parts = tuple(Partition(i, 0, 0, 3, 3, executor=i, cut=0, shares=(i,)) for i in range(2))
    plan = Plan(0, SQUARE, 2, parts, 2, cuts=(cut,))
    # share 0: posts 0 and 1, query 1; share 1: posts 0 and 2, queries 0 and 2
    # lists that posts meet: flood 1, river 2 for post 0; flood 1 for post 1; dam 1 for post 2: 5 of 12 pairs
    c1 = 5 / 12
    assert executor_loads(plan, sample, COSTS) == pytest.approx([c1 * 2 * 1 + 20 + 1100, c1 * 2 * 2 + 20 + 2200])
    assert executor_loads(plan, sample, COSTS, replicates=False) == pytest.approx([2 + 20, 3 + 20])


def test_a_subscription_on_a_border_is_paid_for_on_both_sides_unless_the_index_is_shared() -> None:
    sample = town()
    upper, lower = Partition(0, 0, 0, 1, 3, executor=0), Partition(1, 2, 0, 3, 3, executor=1)
    plan = Plan(0, SQUARE, 2, (upper, lower), 2)
    assert sorted(destinations(plan, sample).queries.T.tolist()) == [[0, 1], [1, 1], [2, 0], [2, 1]]
    assert executor_loads(plan, sample, COSTS, replicates=False) == pytest.approx([1 + 10, 4 + 20])


def test_where_all_executors_serve_events_are_shared_out_and_subscriptions_copied() -> None:
    sample = TextWorld(4, events=200).sample
    plan = Replicated().first_plan(WORLD, 4)
    sent = destinations(plan, sample)
    assert sent.queries.shape[1] == 4 * sample.queries
    assert len(set(sent.events[0].tolist())) == sent.events.shape[1]


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1), executors=st.integers(2, 6), layout=st.sampled_from([kd_tree, by_metric, hybrid])
)
def test_what_is_counted_at_once_is_what_is_counted_one_by_one(seed: int, executors: int, layout: object) -> None:
    sample = TextWorld(seed).sample
    plan = layout(WORLD, executors, sample)  # type: ignore[operator]
    shares = [cut.shares_of(sample.hashes) for cut in plan.cuts]
    for table in shares:
        table[0] = 0
    events, queries = set(), set()
    for p in plan.partitions:

        def has(term: int, p: Partition = p) -> bool:
            return p.cut is None or int(shares[p.cut][term]) in p.shares

        for e in range(sample.events):
            terms = sample.asked.terms[sample.asked.offsets[e] : sample.asked.offsets[e + 1]]
            inside = p.row0 <= sample.rows[e] <= p.row1 and p.col0 <= sample.columns[e] <= p.col1
            if inside and any(has(t) for t in terms):
                events.add((e, p.executor))
        for q in range(sample.queries):
            row0, col0, row1, col1 = (side[q] for side in sample.boxes)
            terms = sample.postings.terms[sample.postings.offsets[q] : sample.postings.offsets[q + 1]]
            meets = row0 <= p.row1 and row1 >= p.row0 and col0 <= p.col1 and col1 >= p.col0
            if meets and any(has(t) for t in terms):
                queries.add((q, p.executor))
    sent = destinations(plan, sample)
    assert sorted(map(tuple, sent.events.T.tolist())) == sorted(events)
    assert sorted(map(tuple, sent.queries.T.tolist())) == sorted(queries)


def test_costs_are_measured_on_the_matcher_and_the_store(tmp_path: Path) -> None:
    posts = Posts(seed=2, country="GB")
    grid = Grid(*posts.bounds, columns=200, rows=200)
    costs = measure_costs(str(tmp_path), grid, posts.events(0, 4000), posts.subscriptions(0, 4000), time.process_time)
    assert all(
        math.isfinite(cost) and cost >= 0 for cost in (costs.c1_check, costs.c2_event)
    )  # too short to tell apart
    assert min(costs.c3_insertion, costs.c4_deletion) > 0
    with pytest.raises(InputError, match="give more"):
        measure_costs(str(tmp_path), grid, posts.events(0, 1), posts.subscriptions(0, 1), time.process_time)
