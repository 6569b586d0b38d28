"""What executors report of keys: all state of the window, the table's keys at rest, and sums instead of light keys."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.core.keys.hashing import SLOTS, key_ids, slot_owners, slots_of_keys
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.flow.keyed.count import Count
from geoswarm.flow.keyed.key_report import KeyLoads
from geoswarm.flow.keyed.operator import KEY
from geoswarm.flow.keyed.state_size import ROW_BYTES, row_bytes
from geoswarm.lab.workload.zipf import Zipf
from stepped_keyed import SteppedKeyed, random_key_plan
from store.test_keyed_state import WORDS, Memory, Tell, rows_of

ROW = ROW_BYTES + 8.0  # an id, a batch, and the number that `Tell` keeps


@pytest.mark.parametrize(("seed", "window"), [(0, 1), (1, 2), (2, 5), (3, 30), (4, 200)])
def test_state_is_all_that_a_key_holds_in_the_window_however_long(tmp_path: Path, seed: int, window: int) -> None:
    rng, ids = np.random.default_rng(seed), key_ids(pa.array(WORDS))
    engine, memory, interval, at_rest = SteppedKeyed(tmp_path, Tell(window)), Memory(window), 0, 0
    for b in range(60):
        interval += int(rng.choice([0, 1, 1, 3]))
        if rng.random() < 0.3:
            engine.replan(random_key_plan(engine.plan, ids, rng, can_split=False))
        rows = rows_of(rng, b, int(rng.choice([0, 5, 30])))
        engine.batch(b, interval, rows)
        memory.batch(interval, rows)
        held = {word: ROW * sum(word == w for _, w, _ in memory.all) for word in WORDS}
        touched, listed = set(rows.column(KEY).to_pylist()), set(engine.plan.keys.tolist())
        want = {
            int(key): held[word]
            for key, word in zip(ids, WORDS, strict=True)
            if word in touched or (int(key) in listed and held[word])
        }
        reported = [(k, s) for loads in engine.loads.values() for k, s in zip(loads.ids, loads.state, strict=True)]
        assert len(reported) == len(want), "each key by one executor"
        assert {int(k): float(s) for k, s in reported} == want
        at_rest += len(want) - len(touched)
    assert at_rest, "or keys at rest were not tried"


def test_a_row_is_as_large_as_its_own_texts_and_lists() -> None:
    rows = pa.record_batch(
        {"n": pa.array([1, 2, 3]), "text": pa.array(["", "four", "12345678"]), "list": pa.array([[1], [], [1, 2, 3]])}
    )
    assert row_bytes(rows).tolist() == [ROW_BYTES + 8 + 4 + n + 4 + 8 * m for n, m in ((0, 1), (4, 0), (8, 3))]
    assert row_bytes(rows.slice(1)).tolist() == row_bytes(rows).tolist()[1:]
    assert row_bytes(rows.slice(0, 0)).tolist() == []


def zipf_loads(keys: int, executors: int) -> list[KeyLoads]:
    """One report per executor, of all its keys under plain hash."""
    ids, load = np.arange(keys), Zipf(keys=keys).first().astype(np.float64)
    owner = KeyPlan.first(range(executors)).route(ids)
    return [KeyLoads(ids[owner == d], load[owner == d], load[owner == d]) for d in range(executors)]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(0, 500), st.integers(1, 60), st.integers(0, 20))
def test_a_shortened_report_names_the_heaviest_and_loses_no_load(seed: int, keys: int, heavy: int, named: int) -> None:
    rng = np.random.default_rng(seed)
    whole = KeyLoads(rng.choice(2**40, keys, replace=False), rng.pareto(1.0, keys), rng.random(keys))
    is_named = np.isin(np.arange(keys), rng.integers(0, max(1, keys), named))
    short = whole.shorten(is_named, heavy)
    assert len(short.ids) == min(keys, heavy + is_named.sum())
    assert np.isin(whole.ids[is_named], short.ids).all()
    left = ~np.isin(whole.ids, short.ids)
    assert left.sum() == 0 or whole.load[left].max() <= whole.load[~left & ~is_named].min()
    want = np.bincount(slots_of_keys(whole.ids[left]), whole.load[left], SLOTS)
    np.testing.assert_allclose(np.bincount(short.slots, short.slot_load, SLOTS), want)
    kept = dict(zip(whole.ids.tolist(), zip(whole.load, whole.state, strict=True), strict=True))
    assert all(kept[int(k)] == (c, s) for k, c, s in zip(short.ids, short.load, short.state, strict=True))
    again = KeyLoads.unpack(short.pack())
    assert (again.ids.tolist(), again.slots.tolist()) == (short.ids.tolist(), short.slots.tolist())
    for sent, got in zip(short, again, strict=True):
        np.testing.assert_allclose(got, sent, rtol=1e-6)


@pytest.mark.parametrize(("keys", "whole_kb", "short_kb"), [(100_000, 1600, 440), (1_000_000, 16_000, 560)])
def test_reports_of_heavy_keys_and_sums_are_short_whatever_the_number_of_keys(
    keys: int, whole_kb: int, short_kb: int
) -> None:
    whole, short = 0, 0
    for loads in zipf_loads(keys, 10):
        whole += len(loads.pack())
        short += len(loads.shorten(np.zeros(len(loads.ids), np.bool_), 1024).pack())
    assert whole / 1e3 == pytest.approx(whole_kb, rel=0.02)
    assert short / 1e3 == pytest.approx(short_kb, rel=0.05)


def test_light_keys_are_summed_where_their_hash_sends_them() -> None:
    for loads, executor in zip(zipf_loads(20_000, 7), range(7), strict=True):
        short = loads.shorten(np.zeros(len(loads.ids), np.bool_), 100)
        assert (slot_owners(tuple(range(7)))[short.slots] == executor).all()


def test_what_is_reported_changes_nothing_in_what_goes_out(tmp_path: Path) -> None:
    rng, ids = np.random.default_rng(5), key_ids(pa.array(WORDS))
    engines = [
        SteppedKeyed(tmp_path / str(heavy), Count(window=3), heavy_keys=heavy, weighs_table=bool(heavy))
        for heavy in (None, 1, 5)
    ]
    for b in range(12):
        rows = rows_of(rng, b)
        if b % 3 == 0:
            plan = random_key_plan(engines[0].plan, ids, rng, can_split=True)
            for engine in engines:
                engine.replan(plan)
        given = [sorted(map(str, engine.batch(b, b // 2, rows).to_pylist())) for engine in engines]
        assert given[0] == given[1] == given[2]
        totals = [
            sum(float(loads.load.sum() + loads.slot_load.sum()) for loads in engine.loads.values())
            for engine in engines
        ]
        assert all(a == pytest.approx(b) for a, b in pairwise(totals))
    assert any(len(loads.slots) for loads in engines[1].loads.values())
