"""What holds for all seven layouts of PS2Stream: plans are plans, and no match can be lost."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.layout.ps2_cases import LAYOUTS, NAMES, WORLD, TextWorld, posts
from geoswarm.config import Contract
from geoswarm.control.balance.layouts import Layout
from geoswarm.control.layout.load_model import destinations
from geoswarm.control.layout.text_sample import ANYTHING
from geoswarm.control.registry import first_plan, strategy
from geoswarm.control.strategy import Sample
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.expression import parse, satisfied
from geoswarm.core.text.tokens import terms_of
from geoswarm.errors import InputError, PlanError
from geoswarm.run.oracle.oracle import Oracle
from stepped import SteppedEngine
from worlds import BOUNDS, events, operations, with_keywords, with_texts

STRATEGIES = ["grid", "kd-tree", "r-tree", "frequency", "hypergraph", "metric", "hybrid"]


def matches(drawn: TextWorld) -> list[tuple[int, int]]:
    """(event, subscription), by comparing all with all; subscriptions that cannot be read are not in the sample."""
    asked = []
    for rect, keywords in zip(drawn.rects, drawn.keywords.to_pylist(), strict=True):
        try:
            asked.append((rect, None if keywords is None else parse(keywords)))
        except InputError:
            continue
    found = []
    for e, ((x, y), text) in enumerate(zip(drawn.points, drawn.texts.to_pylist(), strict=True)):
        terms = set(terms_of(text or ""))
        for q, ((xmin, ymin, xmax, ymax), words) in enumerate(asked):
            if xmin <= x <= xmax and ymin <= y <= ymax and (words is None or satisfied(words, terms)):
                found.append((e, q))
    return found


def holders(plan: Plan, row: int, column: int, share_of: dict[int, int]) -> list[Partition]:
    """The partitions that have a cell and a term, whose share in each cut is given."""
    here = [p for p in plan.partitions if p.row0 <= row <= p.row1 and p.col0 <= column <= p.col1]
    return [p for p in here if p.cut is None or share_of[p.cut] in p.shares]


@pytest.mark.parametrize("layout", LAYOUTS, ids=NAMES)
@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 2**32 - 1), executors=st.integers(1, 9), share=st.sampled_from([0.0, 0.7, 1.0]))
def test_no_match_is_lost_whatever_the_layout(layout: Layout, seed: int, executors: int, share: float) -> None:
    drawn = TextWorld(seed, words_share=share)
    plan = layout(WORLD, executors, drawn.sample)  # one that does not cover each cell and share once is a PlanError
    assert (plan.epoch, plan.grid, plan.executors) == (0, WORLD, executors)
    sent = destinations(plan, drawn.sample)
    event_at, query_at = (set(zip(*pairs.tolist(), strict=True)) for pairs in sent)
    sample = drawn.sample
    shares = [cut.shares_of(sample.hashes) for cut in plan.cuts]
    for e, q in matches(drawn):
        said = set(sample.said.terms[sample.said.offsets[e] : sample.said.offsets[e + 1]].tolist())
        entered = sample.postings.terms[sample.postings.offsets[q] : sample.postings.offsets[q + 1]].tolist()
        common = said.intersection(entered)
        assert common, "an event satisfies a conjunction only if it says its rarest word"
        for term in common:
            share_of = {c: 0 if term == ANYTHING else int(by_term[term]) for c, by_term in enumerate(shares)}
            (owner,) = holders(plan, sample.rows[e], sample.columns[e], share_of)
            assert (e, owner.executor) in event_at
            assert (q, owner.executor) in query_at


@pytest.mark.parametrize("layout", LAYOUTS, ids=NAMES)
def test_the_engine_finds_what_the_oracle_finds_under_every_layout(layout: Layout, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    grid_of_sample = TextWorld(3)

    def plan(grid: Grid, executors: int) -> Plan:
        assert grid == WORLD
        return layout(grid, executors, grid_of_sample.sample)

    contract = Contract(columns=WORLD.columns, rows=WORLD.rows, executors=4)
    engine, oracle = SteppedEngine(tmp_path, contract, first_plan=plan), Oracle(BOUNDS)
    pairs = 0
    for number in range(3):
        storm = with_keywords(rng, operations(rng, 120, ids=90, now_us=number))
        said = with_texts(rng, events(rng, 150, first_id=1000 * number))
        oracle.operate(storm, number)
        through = engine.batch(number, said, storm, number)
        assert sorted(through.pairs) == sorted(oracle.match(said, number))
        pairs += len(through.pairs)
    assert pairs
    engine.close()


@pytest.mark.parametrize("layout", LAYOUTS, ids=NAMES)
@pytest.mark.parametrize(("rows", "queries"), [(0, 0), (0, 20), (20, 0), (1, 1)])
def test_a_poor_sample_still_gives_a_plan(layout: Layout, rows: int, queries: int) -> None:
    for executors in (1, 3, 7):
        assert layout(WORLD, executors, TextWorld(1, rows, queries).sample).executors == executors


@pytest.mark.parametrize("layout", LAYOUTS, ids=NAMES)
def test_executors_may_outnumber_cells(layout: Layout) -> None:
    drawn, tiny = TextWorld(2), Grid(*BOUNDS, columns=2, rows=1)
    sample = type(drawn.sample).of(tiny, drawn.points, drawn.rects, drawn.texts, drawn.keywords)
    assert layout(tiny, 5, sample).executors == 5


@pytest.mark.parametrize("layout", LAYOUTS, ids=NAMES)
def test_the_same_sample_gives_the_same_plan(layout: Layout) -> None:
    first, second = (layout(s.grid, 4, s) for s in (posts("Q2", 3000), posts("Q2", 3000)))
    assert first.to_json() == second.to_json()
    assert {p.executor for p in first.partitions} == set(range(4))


@pytest.mark.parametrize("layout", LAYOUTS, ids=NAMES)
def test_a_sample_of_another_grid_is_refused(layout: Layout) -> None:
    with pytest.raises(PlanError, match="use one grid"):
        layout(Grid(*BOUNDS, columns=7, rows=7), 2, TextWorld(1).sample)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_layout_is_a_strategy_that_asks_for_words(name: str) -> None:
    drawn = TextWorld(5)
    sample = Sample(drawn.points, drawn.rects, drawn.texts, drawn.keywords)
    assert first_plan(f"ps2-{name}", sample, WORLD, 3).drawn_by == f"ps2-{name}"
    for poor in (None, Sample(drawn.points, drawn.rects)):
        with pytest.raises(InputError, match="texts, rects and their keywords"):
            strategy(f"ps2-{name}").first_plan(WORLD, 3, poor)


def test_texts_and_points_must_be_as_many() -> None:
    drawn = TextWorld(1)
    with pytest.raises(InputError, match="give one to each"):
        type(drawn.sample).of(WORLD, drawn.points[1:], drawn.rects, drawn.texts, drawn.keywords)
