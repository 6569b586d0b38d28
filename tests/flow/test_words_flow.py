"""Words and places side by side, from operations to matches, beside the oracle."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.core.space.change import Divide
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.cut import TermCut
from geoswarm.errors import StreamError
from geoswarm.flow.merge import join_rows
from geoswarm.flow.observe import Quote, quote_events
from geoswarm.flow.route import route
from geoswarm.model import SUB_IDS
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.store.checkpoint import Checkpoint
from restless import changes_with_terms
from stepped import SteppedEngine
from worlds import BOUNDS, events, operations, with_demands, with_facts, with_keywords, with_texts

CONTRACT = Contract(columns=30, rows=30, executors=4)


@pytest.mark.parametrize("seed", range(8))
def test_words_and_places_are_matched_as_by_hand(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    engine, oracle = SteppedEngine(tmp_path, CONTRACT, Tuning(deltas_max=2, dead_share_max=0.2)), Oracle(BOUNDS)
    refused = matches = 0
    for number in range(6):
        now_us = 10 * number
        storm = with_keywords(
            rng, operations(rng, 120, ids=90, now_us=now_us), share=float(rng.choice([0.0, 0.5, 1.0]))
        )
        said = with_texts(rng, events(rng, 150, first_id=1000 * number))
        refused += oracle.operate(storm, now_us)
        result = engine.batch(number, said, storm, now_us)
        assert sorted(result.pairs) == sorted(oracle.match(said, now_us))
        assert result.manifest.refused <= refused
        matches += len(result.pairs)
    assert matches > 0
    engine.checkpoint.close()


@pytest.mark.parametrize("seed", range(12))
def test_however_terms_are_divided_the_matches_are_the_oracles(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng((seed, 7))
    shape, rows_max = str(rng.choice(["arrays", "pairs"])), int(rng.choice([7, 1000]))
    tuning = Tuning.model_validate({"matches": shape, "match_rows_max": rows_max})
    engine, oracle, copies, dropped = SteppedEngine(tmp_path, CONTRACT, tuning), Oracle(BOUNDS), 0, 0
    plan = engine.checkpoint.plan
    three = TermCut.of(3, {})
    engine.checkpoint.adopt_plan(plan.apply([Divide(p.id, three, (0, 1, 2)) for p in plan.partitions]))
    share = float(rng.choice([0.6, 1.0]))  # where everybody asks for words, events that say none go nowhere
    for number in range(5):
        storm = with_keywords(rng, operations(rng, 80, ids=60, now_us=10 * number), share=share)
        said = with_texts(rng, events(rng, 100, first_id=1000 * number))
        if seed % 2:
            said, storm = with_facts(rng, said), with_demands(rng, storm, 0.3)
        oracle.operate(storm, 10 * number)
        result = engine.batch(number, said, storm, 10 * number)
        assert sorted(result.pairs) == sorted(oracle.match(said, 10 * number))
        matched = {event for event, _ in result.pairs}
        assert result.report.matched == len(matched)
        copies, dropped = copies + result.report.copies, dropped + result.report.dropped
        plan = engine.checkpoint.plan
        engine.checkpoint.adopt_plan(plan.apply(changes_with_terms(plan, rng, int(rng.integers(1, 5)))))
    assert copies > 0
    assert dropped > 0 or share < 1 or seed % 2  # an event may be of an object that somebody names
    engine.checkpoint.close()


def test_events_without_a_text_column_meet_only_those_who_ask_for_no_words(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    engine, oracle = SteppedEngine(tmp_path, CONTRACT), Oracle(BOUNDS)
    storm, silent = with_keywords(rng, operations(rng, 100, ids=90)), pa.table(events(rng, 100))
    oracle.operate(storm, 0)
    result = engine.batch(0, silent, storm, 0)
    assert sorted(result.pairs) == sorted(oracle.match(silent, 0))
    assert result.pairs
    engine.checkpoint.close()


def test_a_text_that_is_no_utf8_is_quoted_all_the_same() -> None:
    texts = pa.array([b"flood \xff river", b"dam", None], pa.binary()).view(pa.string())
    rows = pa.record_batch({"x": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 6.0], "text": texts})
    assert quote_events(rows) == [Quote(1.0, 4.0, "flood \ufffd river"), Quote(2.0, 5.0, "dam"), Quote(3.0, 6.0, None)]
    assert len(quote_events(rows, 2)) == 2
    assert quote_events(rows, 0) == []


def numbered_rows(numbers: list[int], ids: list[int], subs: list[list[int]]) -> pa.RecordBatch:
    rows = events(np.random.default_rng(1), 10).take(pa.array(ids))
    columns = [*rows.columns, pa.array(numbers), pa.array(subs, SUB_IDS.type)]
    return pa.record_batch(columns, names=[*rows.schema.names, "_event", SUB_IDS.name])


def test_the_rows_of_an_event_become_one() -> None:
    first, second = numbered_rows([7, 8], [1, 2], [[11], [12]]), numbered_rows([8, 7], [2, 1], [[13, 14], [15]])
    whole = join_rows([first, second, first.slice(0, 0)])
    assert dict(zip(whole["event_id"].to_pylist(), whole["sub_ids"].to_pylist(), strict=True)) == {
        1: [11, 15],
        2: [12, 13, 14],
    }


def test_one_number_for_two_events_is_never_believed() -> None:
    with pytest.raises(StreamError, match="another order"):
        join_rows([numbered_rows([7, 8], [1, 2], [[11], [12]]), numbered_rows([7, 8], [2, 1], [[13], [14]])])


def test_events_of_a_shared_partition_go_to_the_same_executors_when_a_task_runs_again_in_another_order() -> None:
    grid = Grid(*BOUNDS, columns=4, rows=4)
    everybody = Plan(0, grid, 3, (Partition(0, 0, 0, 3, 3, 2, others=(0, 1)),), 1)
    rows, rng = events(np.random.default_rng(2), 300), np.random.default_rng(3)
    went = {i: p.executor for p in route(rows, everybody) for i in p.events["event_id"].to_pylist()}
    again = route(rows.take(pa.array(rng.permutation(300))), everybody)
    assert {i: p.executor for p in again for i in p.events["event_id"].to_pylist()} == went
    assert min(list(went.values()).count(e) for e in range(3)) > 70  # about a third each


def test_an_index_that_is_made_again_is_the_same_one(tmp_path: Path) -> None:
    rng, engine = np.random.default_rng(6), SteppedEngine(tmp_path, CONTRACT)
    engine.batch(0, with_texts(rng, events(rng, 50)), with_keywords(rng, operations(rng, 80, ids=80), 1.0), 0)
    engine.checkpoint.finish(0, ["flood flood river", "dam"] * 20)
    engine.batch(1, with_texts(rng, events(rng, 50)), with_keywords(rng, operations(rng, 80, ids=80), 1.0), 0)
    engine.checkpoint.close()
    files = [tmp_path / "subscriptions" / f"{entry.name}.index" for entry in engine.checkpoint.manifest.segments]
    before = [file.read_bytes() for file in files]
    for file in files:
        file.write_bytes(b"lost")
    Checkpoint(str(tmp_path), CONTRACT, engine.tuning).close()
    assert [file.read_bytes() for file in files] == before
