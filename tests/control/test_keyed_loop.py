"""The control plane of a keyed operator: tables, parts of keys, and executors that come and go."""

import numpy as np
import pytest

from geoswarm.control.keyed.loop import KeyedLoop, add_up
from geoswarm.control.keyed.registry import planner
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.keys.hashing import SLOTS
from geoswarm.core.keys.plan import KeyPlan, parts_of
from geoswarm.flow.keyed.key_report import KeyLoads


def loop_of(executors: int = 5, can_split: bool = True, name: str = "mixed") -> KeyedLoop:
    return KeyedLoop(planner(name), KeyPlan.first(range(executors)), can_split)


def loads_of(plan: KeyPlan, ids: Ints, work: Floats) -> Floats:
    """The load of each executor, with the rows of split keys dealt out by the plan."""
    loads = np.zeros(plan.executors[-1] + 1)
    for key, load in zip(ids, work, strict=True):
        dealt = plan.deal(np.full(100, key))
        np.add.at(loads, plan.route(dealt), load / 100)
    return loads[list(plan.executors)]


def zipf(n: int = 400) -> tuple[Ints, Floats]:
    return np.arange(n) * 7, 1000.0 / np.arange(1.0, n + 1) ** 1.4


def test_a_round_that_counted_nothing_changes_nothing() -> None:
    loop = loop_of()
    assert loop.close_round() is None
    assert loop.plan.epoch == 0


def test_a_key_too_heavy_for_one_executor_is_split_and_all_are_level() -> None:
    loop, (ids, work) = loop_of(), zipf()
    assert work[0] > work.sum() / 5, "or nothing is shown"
    loop.take(KeyLoads(ids, work, np.ones(len(ids))))
    outcome = loop.close_round()
    assert outcome is not None
    assert outcome.plan is loop.plan
    assert outcome.plan.epoch == 1, "splitting and moving are one step"
    assert 0 in (outcome.entry.splits or {})
    loads = loads_of(loop.plan, ids, work)
    assert loads.max() <= 1.1 * loads.mean(), loads


def test_without_a_merge_the_heavy_key_is_named_and_stays_whole() -> None:
    loop, (ids, work) = loop_of(can_split=False), zipf()
    loop.take(KeyLoads(ids, work, np.ones(len(ids))))
    outcome = loop.close_round()
    assert outcome is not None
    assert outcome.entry.splits == {}
    assert outcome.entry.figures is not None
    assert "0 (" in (outcome.entry.figures.overweight or "")
    assert "split them over executors" in (outcome.entry.figures.remedy or "")


def test_a_split_key_that_cools_down_becomes_whole_again() -> None:
    loop, (ids, work) = loop_of(), zipf()
    loop.take(KeyLoads(ids, work, np.ones(len(ids))))
    loop.close_round()
    assert len(loop.plan.split_keys)
    for _ in range(2):
        loop.take(KeyLoads(ids, np.ones(len(ids)), np.ones(len(ids))))
        loop.close_round()
    assert not len(loop.plan.split_keys)
    assert np.isin(loop.plan.keys, ids).all(), "no entry is left for parts that are no more"


def test_small_changes_leave_the_parts_as_they_are() -> None:
    loop, (ids, work) = loop_of(), zipf()
    loop.take(KeyLoads(ids, work, np.ones(len(ids))))
    loop.close_round()
    splits = dict(zip(loop.plan.split_keys.tolist(), loop.plan.split_ways.tolist(), strict=True))
    rng = np.random.default_rng(0)
    for _ in range(5):
        loop.take(KeyLoads(ids, work * rng.uniform(0.95, 1.05, len(ids)), np.ones(len(ids))))
        loop.close_round()
        assert dict(zip(loop.plan.split_keys.tolist(), loop.plan.split_ways.tolist(), strict=True)) == splits


@pytest.mark.parametrize("executors", [1, 2, 9])
def test_executors_that_join_or_leave_are_level_after_a_round(executors: int) -> None:
    loop, (ids, work) = loop_of(), zipf()
    loop.take(KeyLoads(ids, work, np.ones(len(ids))))
    loop.close_round()
    before = loop.plan
    plan = loop.scale(range(executors))
    assert plan.executors == tuple(range(executors))
    assert plan.epoch == before.epoch + 1
    loop.take(KeyLoads(ids, work, np.ones(len(ids))))
    loop.close_round()
    loads = loads_of(loop.plan, ids, work)
    assert loads.max() <= 1.15 * loads.mean(), loads
    assert loop.scale(range(executors)) is loop.plan, "nothing is done twice"


def test_what_several_executors_report_of_a_key_is_added_up() -> None:
    loop = loop_of(2, can_split=False, name="hash")
    for _ in range(3):
        loop.take(KeyLoads(np.array([3, 9]), np.array([1.0, 2.0]), np.array([8.0, 8.0])))
    loop.take(KeyLoads(np.array([9]), np.array([4.0]), np.array([0.0])))
    outcome = loop.close_round()
    assert outcome is not None
    assert outcome.plan is None
    assert outcome.entry.figures is not None
    assert outcome.entry.figures.keys == 2
    total = 3 * 1.0 + 3 * 2.0 + 4.0
    homes = loop.plan.homes(np.array([3, 9]))
    high = 10.0 if homes[0] != homes[1] else total
    assert outcome.entry.figures.skew_before == pytest.approx(high / (total / 2))


def test_loads_add_up_over_a_round_and_the_last_state_counts() -> None:
    rng, load, state = np.random.default_rng(0), np.zeros(20), np.zeros(20)
    slots = np.zeros(SLOTS)
    reports = []
    for _ in range(30):
        ids = rng.choice(20, int(rng.integers(0, 8)), replace=False)
        some = rng.choice(50, int(rng.integers(0, 5)), replace=False)
        reports.append(KeyLoads(ids, rng.random(len(ids)), rng.random(len(ids)), some, rng.random(len(some))))
        load[ids] += reports[-1].load
        state[ids] = reports[-1].state
        slots[some] += reports[-1].slot_load
    for cut in (0, 11, 30):  # some may be added up before
        got = add_up([add_up(reports[:cut]), *reports[cut:]])
        np.testing.assert_allclose(got.load, load[got.ids])
        assert got.state.tolist() == state[got.ids].tolist()
        assert set(got.ids.tolist()) == set(np.flatnonzero(load))
        np.testing.assert_allclose(got.slot_load, slots[got.slots])
        assert set(got.slots.tolist()) == set(np.flatnonzero(slots))


def test_a_round_with_sums_of_light_keys_levels_all_executors() -> None:
    ids, work = zipf(5000)
    loop = loop_of(can_split=False, name="mixed-compact")
    for executor in range(5):
        mine = loop.plan.route(ids) == executor
        whole = KeyLoads(ids[mine], work[mine] ** 0.5, np.ones(mine.sum()))
        loop.take(whole.shorten(np.zeros(mine.sum(), np.bool_), 50))
    outcome = loop.close_round(state_bytes=5000.0)
    assert outcome is not None
    assert outcome.entry.figures is not None
    assert outcome.entry.figures.keys == 250, "the others are in sums"
    loads, before = (np.bincount(plan.route(ids), work**0.5, 5) for plan in (loop.plan, KeyPlan.first(range(5))))
    assert before.max() > 1.08 * before.mean(), "or nothing is shown"
    assert loads.max() <= 1.08 * loads.mean() * (1 + 1e-6)
    assert outcome.entry.figures.skew == pytest.approx(loads.max() / loads.mean(), rel=1e-6)
    moved = np.flatnonzero(loop.plan.route(ids) != KeyPlan.first(range(5)).route(ids))
    assert outcome.entry.figures.migration_share == pytest.approx(len(moved) / 5000)


def test_an_imbalance_that_is_within_the_noise_changes_nothing() -> None:
    ids = np.arange(40)
    home = KeyPlan.first(range(4)).route(ids)
    work = 1.0 / np.bincount(home, minlength=4)[home]  # all executors alike
    work[home == 2] *= 1.15
    for noise, decision, why in ((0.0, "rebalanced", "None"), (0.02, "rebalanced", "None"), (0.1, "kept", "noise")):
        loop = loop_of(4)
        loop.take(KeyLoads(ids, work, np.ones(40)))
        outcome = loop.close_round(noise=noise)
        assert outcome is not None
        assert outcome.entry.decision == decision
        assert outcome.entry.figures is not None
        assert why in str(outcome.entry.figures.kept)


def test_parts_of_a_key_are_named_alike_everywhere() -> None:
    assert parts_of(7, 3).tolist() == parts_of(7, 3).tolist()
    assert parts_of(7, 5)[:3].tolist() == parts_of(7, 3).tolist(), "more parts leave those before as they are"
    assert len({*parts_of(7, 50), *parts_of(8, 50)}) == 100
