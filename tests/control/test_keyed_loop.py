"""The control plane of a keyed operator: tables, parts of keys, and executors that come and go."""

import numpy as np
import pytest

from geoswarm.control.keyed.loop import KeyedLoop
from geoswarm.control.keyed.registry import planner
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.keys.plan import KeyPlan, parts_of


def loop_of(executors: int = 5, can_split: bool = True, name: str = "mixed") -> KeyedLoop:
    return KeyedLoop(planner(name), KeyPlan.first(range(executors)), 3, can_split)


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
    loop.take(ids, work, np.ones(len(ids)))
    outcome = loop.close_round()
    assert outcome is not None
    assert outcome.plan is loop.plan
    assert outcome.plan.epoch == 1, "splitting and moving are one step"
    assert 0 in (outcome.entry.splits or {})
    loads = loads_of(loop.plan, ids, work)
    assert loads.max() <= 1.1 * loads.mean(), loads


def test_without_a_merge_the_heavy_key_is_named_and_stays_whole() -> None:
    loop, (ids, work) = loop_of(can_split=False), zipf()
    loop.take(ids, work, np.ones(len(ids)))
    outcome = loop.close_round()
    assert outcome is not None
    assert outcome.entry.splits == {}
    assert outcome.entry.figures is not None
    assert "0 (" in (outcome.entry.figures.overweight or "")
    assert "split them over executors" in (outcome.entry.figures.remedy or "")


def test_a_split_key_that_cools_down_becomes_whole_again() -> None:
    loop, (ids, work) = loop_of(), zipf()
    loop.take(ids, work, np.ones(len(ids)))
    loop.close_round()
    assert len(loop.plan.split_keys)
    for _ in range(2):
        loop.take(ids, np.ones(len(ids)), np.ones(len(ids)))
        loop.close_round()
    assert not len(loop.plan.split_keys)
    assert np.isin(loop.plan.keys, ids).all(), "no entry is left for parts that are no more"


def test_small_changes_leave_the_parts_as_they_are() -> None:
    loop, (ids, work) = loop_of(), zipf()
    loop.take(ids, work, np.ones(len(ids)))
    loop.close_round()
    splits = dict(zip(loop.plan.split_keys.tolist(), loop.plan.split_ways.tolist(), strict=True))
    rng = np.random.default_rng(0)
    for _ in range(5):
        loop.take(ids, work * rng.uniform(0.95, 1.05, len(ids)), np.ones(len(ids)))
        loop.close_round()
        assert dict(zip(loop.plan.split_keys.tolist(), loop.plan.split_ways.tolist(), strict=True)) == splits


@pytest.mark.parametrize("executors", [1, 2, 9])
def test_executors_that_join_or_leave_are_level_after_a_round(executors: int) -> None:
    loop, (ids, work) = loop_of(), zipf()
    loop.take(ids, work, np.ones(len(ids)))
    loop.close_round()
    before = loop.plan
    plan = loop.scale(range(executors))
    assert plan.executors == tuple(range(executors))
    assert plan.epoch == before.epoch + 1
    loop.take(ids, work, np.ones(len(ids)))
    loop.close_round()
    loads = loads_of(loop.plan, ids, work)
    assert loads.max() <= 1.15 * loads.mean(), loads
    assert loop.scale(range(executors)) is loop.plan, "nothing is done twice"


def test_what_several_executors_report_of_a_key_is_added_up() -> None:
    loop = loop_of(2, can_split=False, name="hash")
    for _ in range(3):
        loop.take(np.array([3, 9]), np.array([1.0, 2.0]), np.array([8.0, 8.0]))
    loop.take(np.array([9]), np.array([4.0]), np.array([0.0]))
    outcome = loop.close_round()
    assert outcome is not None
    assert outcome.plan is None
    assert outcome.entry.figures is not None
    assert outcome.entry.figures.keys == 2
    total = 3 * 1.0 + 3 * 2.0 + 4.0
    homes = loop.plan.homes(np.array([3, 9]))
    high = 10.0 if homes[0] != homes[1] else total
    assert outcome.entry.figures.skew_before == pytest.approx(high / (total / 2))


def test_parts_of_a_key_are_named_alike_everywhere() -> None:
    assert parts_of(7, 3).tolist() == parts_of(7, 3).tolist()
    assert parts_of(7, 5)[:3].tolist() == parts_of(7, 3).tolist(), "more parts leave those before as they are"
    assert len({*parts_of(7, 50), *parts_of(8, 50)}) == 100
