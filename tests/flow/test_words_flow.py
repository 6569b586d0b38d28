"""Words and places side by side, from operations to matches, beside the oracle."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.sim.oracle import Oracle
from geoswarm.space.change import Divide
from geoswarm.text.cut import TermCut
from pure_engine import PureEngine
from restless import divided
from worlds import BOUNDS, events, operations, with_keywords, with_texts

CONTRACT = Contract(columns=30, rows=30, executors=4)


@pytest.mark.parametrize("seed", range(12))
def test_words_and_places_are_matched_as_by_hand(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    engine, oracle = PureEngine(tmp_path, CONTRACT, Tuning(deltas_max=2, dead_share_max=0.2)), Oracle(BOUNDS)
    refused = 0
    for number in range(6):
        now_us = 10 * number
        storm = with_keywords(
            rng, operations(rng, 120, ids=90, now_us=now_us), share=float(rng.choice([0.0, 0.5, 1.0]))
        )
        said = with_texts(rng, events(rng, 150, first_id=1000 * number))
        refused += oracle.operate(storm, now_us)
        through = engine.batch(number, said, storm, now_us)
        assert sorted(through.pairs) == sorted(oracle.match(said, now_us))
        assert through.manifest.refused <= refused
    engine.checkpoint.close()


@pytest.mark.parametrize("seed", range(40))
def test_however_terms_are_divided_the_matches_are_the_oracles(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng((seed, 7))
    tuning = Tuning(matches=str(rng.choice(["arrays", "pairs"])), match_rows_max=int(rng.choice([7, 1000])))
    engine, oracle, copies, dropped = PureEngine(tmp_path, CONTRACT, tuning), Oracle(BOUNDS), 0, 0
    plan = engine.checkpoint.plan
    three = TermCut.of(3, {})
    engine.checkpoint.adopt_plan(plan.apply([Divide(p.id, three, (0, 1, 2)) for p in plan.partitions]))
    share = float(rng.choice([0.6, 1.0]))  # where everybody asks for words, events that say none go nowhere
    for number in range(5):
        storm = with_keywords(rng, operations(rng, 80, ids=60, now_us=10 * number), share=share)
        said = with_texts(rng, events(rng, 100, first_id=1000 * number))
        oracle.operate(storm, 10 * number)
        through = engine.batch(number, said, storm, 10 * number)
        assert sorted(through.pairs) == sorted(oracle.match(said, 10 * number))
        matched = {event for event, _ in through.pairs}
        assert through.report.matched == len(matched)
        copies, dropped = copies + through.report.copies, dropped + through.report.dropped
        plan = engine.checkpoint.plan
        engine.checkpoint.adopt_plan(plan.apply(divided(plan, rng, int(rng.integers(1, 5)))))
    assert copies > 0
    assert dropped > 0 or share < 1
    engine.checkpoint.close()


def test_events_without_a_text_column_meet_only_those_who_ask_for_no_words(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    engine, oracle = PureEngine(tmp_path, CONTRACT), Oracle(BOUNDS)
    storm, silent = with_keywords(rng, operations(rng, 100, ids=90)), pa.table(events(rng, 100))
    oracle.operate(storm, 0)
    through = engine.batch(0, silent, storm, 0)
    assert sorted(through.pairs) == sorted(oracle.match(silent, 0))
    assert through.pairs
    engine.checkpoint.close()
