"""Limits and owners: the loop against the obvious version of it, one operation at a time."""

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.core.aggregates.spec import read_spec
from geoswarm.core.subscriptions.aggregate import NO_SPEC, AggregateValues
from geoswarm.core.subscriptions.attributes import CANCEL, REGISTER
from geoswarm.guard.accounts import (
    FINE,
    NOT_OWNER,
    OVER_COST,
    OVER_RATE,
    OVER_SUBSCRIPTIONS,
    Accounts,
    HeldSubscriptions,
    UserOperations,
)
from geoswarm.guard.limits import GuardSettings, aggregate_costs, costs
from geoswarm.guard.rules import GuardRules

SETTINGS = GuardSettings(
    user_operations_per_s=2.0, user_operations_burst=40, user_subscriptions_max=6, user_cost_max=0.025
)
NAMES = pa.array([f"u{i}" for i in range(6)])


class Obvious:
    def __init__(self) -> None:
        self.left = dict.fromkeys(range(6), 40.0)
        self.live: dict[int, tuple[int, int]] = {}  # by subscription: owner, cost

    def take(self, user: int, is_free: bool) -> int:
        if is_free:
            return FINE
        if self.left[user] < 1:
            return OVER_RATE
        self.left[user] -= 1
        return FINE

    def operate(self, op: int, which: int, user: int, cost: int, is_free: bool) -> int:
        held = self.live.get(which)
        if (held and op == REGISTER) or (not held and op == CANCEL):
            return FINE
        if held and held[0] != user:
            return NOT_OWNER
        mine = [c for owner, c in self.live.values() if owner == user]
        if op != CANCEL and not is_free:
            if not held and len(mine) >= 6:
                return OVER_SUBSCRIPTIONS
            if cost > (held[1] if held else 0) and sum(mine) - (held[1] if held else 0) + cost > 25:
                return OVER_COST
        if op == CANCEL:
            del self.live[which]
        else:
            self.live[which] = user, cost
        return FINE


def test_operations_are_judged_as_if_one_at_a_time() -> None:
    seen = set[int]().union(*(story(np.random.default_rng(seed)) for seed in range(20)))
    assert seen == {FINE, OVER_RATE, NOT_OWNER, OVER_SUBSCRIPTIONS, OVER_COST}


def story(rng: np.random.Generator) -> set[int]:
    """All verdicts that were given."""
    accounts, obvious, seen = Accounts(SETTINGS), Obvious(), set[int]()
    free = np.arange(6) == 5
    for second in range(0, 40, 4):
        n = int(rng.integers(1, 200))
        todo = UserOperations(
            rng.integers(0, 3, n), rng.integers(0, 25, n), rng.integers(0, 6, n), rng.integers(1, 8, n)
        )
        taken = accounts.take(NAMES, free, todo.user, float(second))
        assert taken.tolist() == [obvious.take(user, bool(free[user])) for user in todo.user.tolist()]
        seen |= set(taken.tolist())
        todo = UserOperations(*(column[taken == FINE] for column in todo))
        before = dict(obvious.live)
        held = HeldSubscriptions(
            np.array([i in before for i in range(25)]),
            np.array([before.get(i, (-1, 0))[0] for i in range(25)]),
            np.array([before.get(i, (-1, 0))[1] for i in range(25)]),
        )
        judged = accounts.judge(NAMES, free, todo, held)
        rows = zip(*(column.tolist() for column in todo), strict=True)
        want = [obvious.operate(op, which, user, cost, bool(free[user])) for op, which, user, cost in rows]
        assert judged.verdicts.tolist() == want
        for subscriptions, sign in ((before, -1), (obvious.live, 1)):
            codes, paid = np.array(list(subscriptions.values()), np.int64).reshape(-1, 2).T
            accounts.add(NAMES, codes, paid, sign)
        for user in range(6):
            mine = [cost for owner, cost in obvious.live.values() if owner == user]
            assert accounts.read(f"u{user}") == (len(mine), sum(mine) / 1000)
            obvious.left[user] = min(40.0, obvious.left[user] + 4 * 2.0)
        seen |= set(want)
    return seen


def test_a_small_rectangle_costs_one_and_the_world_a_thousand_more() -> None:
    areas, words, vertices = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0, 0, 2, 0]), np.array([0, 0, 0, 1_000_000])
    assert costs(areas, words, vertices, np.array([0, 0, 0, 50])).tolist() == [1000, 1_001_000, 13_000, 10_051_000]


@pytest.mark.parametrize(
    ("aggregate", "window", "group_by", "cost"),
    [
        ("count", "tumbling(60 s)", None, 1),
        ("sum(v)", "count(100)", None, 1),
        ("avg(v)", "session(30 s)", "kind", 10),
        ("max(v)", "sliding(300 s, 60 s)", None, 5),
        ("distinct(v)", "tumbling(1 day)", None, 10),
        ("quantile(v, 0.5)", "sliding(5 min, 1 min)", "kind", 500),
        ("top(v, 3)", "sliding(1 day, 1 min)", "kind", 144_000),
    ],
)
def test_an_aggregate_costs_by_windows_sketch_and_groups(
    aggregate: str, window: str, group_by: str | None, cost: int
) -> None:
    texts = pa.array([read_spec("count", "count(7)").text, read_spec(aggregate, window, group_by).text])
    counts = AggregateValues(np.array([NO_SPEC, 1, 0, 1]), texts, np.zeros(4, np.int64))
    assert aggregate_costs(counts).tolist() == [0, cost, 1, cost]


def test_rules_without_limits_get_the_limits_defaults() -> None:
    settings = GuardSettings.of(GuardRules(beta=4.0))
    assert (settings.beta, settings.user_operations_per_s) == (4.0, 200.0)
    assert GuardSettings.of(SETTINGS) is SETTINGS
    with pytest.raises(ValueError, match="raise user_operations_burst"):
        GuardSettings(user_operations_burst=10)


def test_an_operation_may_count_as_several_and_behind_one_that_is_refused_none_passes() -> None:
    accounts, free = Accounts(SETTINGS), np.arange(6) == 5
    codes, weights = np.array([0, 1, 0, 0, 1, 0, 5]), np.array([30, 10, 11, 1, 30, 0, 99])
    taken = accounts.take(NAMES, free, codes, 0.0, weights)
    assert (taken == FINE).tolist() == [True, True, False, False, True, False, True]
    assert accounts.take(NAMES, free, np.array([0] * 11 + [1]), 0.0).tolist() == [FINE] * 10 + [OVER_RATE] * 2
