"""The door on its own: no store, no files, only values."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import validate_operations
from geoswarm.guard.accounts import NOT_HERE, HeldSubscriptions
from geoswarm.guard.commands import Command
from geoswarm.guard.door import EVER_US, GuardDoor, Owned, Removal
from geoswarm.guard.guard import Guard
from geoswarm.guard.limits import THOUSANDTHS, GuardSettings
from geoswarm.guard.sensing import LiveQueries

GRID = Grid(-180.0, -90.0, 180.0, 90.0, columns=10, rows=10)
NOW_US = 1_700_000_000_000_000
MINUTE_US = 60_000_000


@dataclass
class Few:
    """A handful of subscriptions, as the door may ask for them: by id, the user and the cost."""

    live: dict[int, tuple[str, int]] = field(default_factory=dict)

    def owned(self) -> Iterable[Owned]:
        names, costs = [user for user, _ in self.live.values()], [cost for _, cost in self.live.values()]
        yield Owned(pa.array(names, pa.string()), np.arange(len(names)), np.array(costs, np.int64))

    def held(self, ids: Ints, users: pa.StringArray) -> HeldSubscriptions:
        known = {user: number for number, user in enumerate(users.to_pylist())}
        found = [self.live.get(int(i)) for i in ids]
        owners = [NOT_HERE if each is None else known.get(each[0], NOT_HERE) for each in found]
        costs = [0 if each is None else each[1] for each in found]
        is_live = np.array([each is not None for each in found], np.bool_)
        return HeldSubscriptions(is_live, np.array(owners, np.int64), np.array(costs, np.int64))

    def queries(self, window: Floats, *, is_middle: bool) -> LiveQueries:
        raise AssertionError("no partition made the cluster rebalance")


def rows(*operations: tuple[str, int, str | None]) -> pa.RecordBatch:
    box = {"xmin": 1.0, "ymin": 1.0, "xmax": 2.0, "ymax": 2.0}
    given = [{"op": op, "sub_id": sub_id, "user": user, **box} for op, sub_id, user in operations]
    return pa.RecordBatch.from_pylist(given, schema=OPERATION)


def new_door(live: Few | None = None, **settings: object) -> GuardDoor:
    chosen = GuardSettings.model_validate(settings)
    return GuardDoor(chosen, GRID, Guard(chosen), live or Few())


def pass_through(door: GuardDoor, live: Few, batch: pa.RecordBatch) -> tuple[list[bool], list[str]]:
    """Which of the operations that entered are admitted; and the reasons of those that were turned away."""
    dead = DeadLetters("operation", 0)
    entered = door.enter(batch, NOW_US, dead)
    admitted = door.admit(validate_operations(entered, GRID, NOW_US, dead), live, NOW_US, dead)
    door.close(dead)
    return admitted.tolist(), dead.table()["reason"].to_pylist()


def test_an_operation_without_a_user_does_not_enter() -> None:
    assert pass_through(new_door(), Few(), rows(("register", 1, None), ("register", 2, "ana"))) == ([True], ["no-user"])


def test_a_blocked_user_is_turned_away_until_unblocked() -> None:
    door = new_door()
    door.begin([Command("block", "ana", NOW_US, "spam")], NOW_US)
    assert pass_through(door, Few(), rows(("register", 1, "ana"), ("register", 2, "ben"))) == ([True], ["blocked"])
    door.begin([Command("unblock", "ana", NOW_US)], NOW_US)
    assert pass_through(door, Few(), rows(("register", 1, "ana"))) == ([True], [])


def test_only_the_owner_may_change_a_subscription() -> None:
    live = Few({7: ("ben", THOUSANDTHS)})
    door = new_door(live)
    batch = rows(("cancel", 7, "ana"), ("cancel", 7, "ben"))
    assert pass_through(door, live, batch) == ([False, True], ["not-owner"])


def test_what_is_live_at_the_start_counts_against_the_limit() -> None:
    live = Few({7: ("ana", THOUSANDTHS)})
    door = new_door(live, user_subscriptions_max=1)
    assert pass_through(door, live, rows(("register", 8, "ana"))) == ([False], ["user-subscriptions"])
    (owned,) = live.owned()
    door.remove_owned(owned)
    assert pass_through(door, Few(), rows(("register", 8, "ana"))) == ([True], [])


def test_a_block_removes_what_the_operator_says() -> None:
    door = new_door(round_s=60.0)
    given = [
        Command("block", user, NOW_US, "", which) for user, which in (("a", "all"), ("b", "nothing"), ("c", "recent"))
    ]
    begun = door.begin(given, NOW_US)
    assert begun.removals == [Removal(["a"], EVER_US), Removal(["c"], NOW_US - 5 * MINUTE_US)]
    assert begun.closed is None


def test_a_decision_is_news_until_it_is_kept() -> None:
    door = new_door()
    news = [door.has_news]
    door.begin([Command("exempt", "fleet", NOW_US)], NOW_US)
    news.append(door.has_news)
    door.mark_kept()
    news.append(door.has_news)
    assert news == [False, True, False]
    pass_through(door, Few(), rows(("register", 1, "ana")))
    assert not door.has_news  # it is admitted, and not yet done
    door.count_done(np.empty(0, np.int64), NOW_US)
    assert door.has_news
