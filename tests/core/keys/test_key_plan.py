"""Routing by key: the table, else a hash that hardly notices who comes and goes."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoswarm.core.arrays.jit import Ints
from geoswarm.core.keys.hashing import key_ids
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.errors import PlanError, SchemaError

KEYS = np.arange(100_000, dtype=np.int64)


def some_plan() -> KeyPlan:
    plan = KeyPlan.first([0, 1, 4, 7])
    listed = np.array([90, -7, 12, 5], np.int64)
    return plan.with_table(
        listed, np.array([(0, 1, 4, 7)[(list(plan.executors).index(h) + 1) % 4] for h in plan.homes(listed)], np.int32)
    )


def test_a_key_in_the_table_goes_where_it_says_and_others_where_the_hash_says() -> None:
    plan = some_plan()
    want = plan.homes(KEYS)
    for key, target in zip(plan.keys, plan.targets, strict=True):
        want[key == KEYS] = target
    np.testing.assert_array_equal(plan.route(KEYS), want)
    assert len(plan.keys) == 4
    assert (plan.route(plan.keys) == plan.targets).all()
    assert set(np.unique(plan.route(KEYS))) == {0, 1, 4, 7}


def test_a_large_table_is_looked_up_as_the_obvious_dictionary_would() -> None:
    rng = np.random.default_rng(1)
    listed = np.unique(rng.integers(-(2**63), 2**63 - 1, 5000))
    plan = KeyPlan.first(range(9)).with_table(listed, rng.integers(0, 9, len(listed)).astype(np.int32))
    table = dict(zip(plan.keys.tolist(), plan.targets.tolist(), strict=True))
    asked = np.concatenate([listed, rng.integers(-(2**63), 2**63 - 1, 5000)])
    want = [table.get(int(key), int(home)) for key, home in zip(asked, plan.homes(asked), strict=True)]
    assert plan.route(asked).tolist() == want
    assert plan.route(asked.view(np.uint64)).tolist() == want
    assert plan.is_listed(asked).tolist() == [int(key) in table for key in asked]
    assert not KeyPlan.first(range(9)).is_listed(asked).any()


def test_where_a_key_goes_is_the_same_on_every_machine_and_in_every_release() -> None:
    plan = KeyPlan.first(range(15))
    assert plan.homes(np.array([0, 1, 2, -1, 2**62], np.int64)).tolist() == [5, 3, 7, 3, 4]
    assert key_ids(pa.array(["flood", "", "überfüllt"])).tolist() == [
        7823790285905571202,
        -3086888502018637383,
        6629106994117047023,
    ]


def test_keys_are_spread_evenly() -> None:
    counts = np.bincount(KeyPlan.first(range(15)).route(KEYS))
    assert counts.max() / counts.mean() < 1.06
    assert counts.min() / counts.mean() > 0.94


@given(st.sets(st.integers(0, 40), min_size=1, max_size=20), st.integers(41, 60))
def test_who_joins_takes_a_share_and_moves_nothing_else(executors: set[int], joining: int) -> None:
    keys = KEYS[:20_000]
    before = KeyPlan.first(sorted(executors))
    after = before.with_executors([*before.executors, joining])
    old, new = before.route(keys), after.route(keys)
    assert (new[old != new] == joining).all()
    share = (old != new).mean()
    assert 0.8 < share * (len(executors) + 1) < 1.2
    assert after.epoch == before.epoch + 1
    assert (after.with_executors(before.executors).route(keys) == old).all()


def test_who_leaves_takes_its_entries_along_and_other_keys_stay() -> None:
    plan = some_plan()
    gone = int(plan.targets[0])
    after = plan.with_executors([e for e in plan.executors if e != gone])
    assert gone not in after.route(KEYS)
    stayed = plan.route(KEYS) != gone
    assert (after.route(KEYS)[stayed] == plan.route(KEYS)[stayed]).all()


def test_a_plan_survives_the_journal_and_the_wire() -> None:
    plan = some_plan()
    assert KeyPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    sent = pickle.loads(pickle.dumps(plan))
    assert sent == plan
    assert hash(sent) == hash(plan)
    assert (sent.route(KEYS) == plan.route(KEYS)).all()
    assert plan != plan.with_table(plan.keys, plan.targets)  # another epoch


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        some_plan().targets[0] = 1


def test_entries_that_repeat_the_hash_are_left_out() -> None:
    plan = KeyPlan.first(range(5))
    assert len(plan.with_table(KEYS[:100], plan.homes(KEYS[:100])).keys) == 0


@pytest.mark.parametrize(
    ("executors", "keys", "targets", "said"),
    [
        ((), [], [], "no executor"),
        ((2, 1), [], [], "ascending"),
        ((0, 5000), [], [], "0..4095"),
        ((0, 1), [3, 3], [0, 0], "each of 2 keys once"),
        ((0, 1), [3], [7], "sends 1 of 1 keys"),
        ((0, 1), [3], [0, 1], "1 keys and 2 targets"),
        ((0,), [3], [0], "repeats the hash"),
    ],
)
def test_a_broken_plan_is_refused(executors: tuple[int, ...], keys: list[int], targets: list[int], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        KeyPlan(1, executors, np.array(keys, np.int64), np.array(targets, np.int32))


@pytest.mark.parametrize("change", [{"keys": ["a"]}, {"epoch": 1.5}, {"executors": None}, {"targets": [2**40]}])
def test_a_written_plan_that_is_damaged_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        KeyPlan.from_json(some_plan().to_json() | change)


def test_equal_texts_have_equal_ids_however_they_arrive() -> None:
    words = ["flood", "dam", "", "a", "a\0", "longer than eight bytes", "longer than eight bytez"]
    ids = key_ids(pa.array(words))
    assert len(set(ids.tolist())) == len(words)
    cut = pa.chunked_array([pa.array(["x", *words[:3]])[1:], pa.array(words[3:], pa.large_string()).cast(pa.string())])
    assert key_ids(cut).tolist() == ids.tolist()


def test_integers_are_their_own_ids() -> None:
    numbers: Ints = np.array([-1, 0, 2**62])
    assert key_ids(pa.array(numbers)).tolist() == numbers.tolist()
    assert key_ids(pa.array([2**64 - 1], pa.uint64())).tolist() == [-1]
    assert key_ids(pa.array([3], pa.int16())).tolist() == [3]


def test_null_keys_and_keys_of_another_type_are_refused() -> None:
    with pytest.raises(SchemaError, match="1 of 2 keys are null"):
        key_ids(pa.array([1, None]))
    with pytest.raises(SchemaError, match="type double"):
        key_ids(pa.array([1.5]))
