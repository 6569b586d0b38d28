"""Dead letters of operations that Guard refuses: what, how much, and what to do about it.

The first of a version are kept in full; the rest is counted, in one letter for each reason. `door.py` decides who is
refused; this file writes the letters.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Ints
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.guard import accounts
from geoswarm.guard.accounts import AccountVerdicts
from geoswarm.guard.limits import LETTERS_MAX, THOUSANDTHS, GuardSettings
from geoswarm.guard.names import short_name

USERS_LISTED_MAX = 5
NAME_CHARACTERS_MAX = 40
"""The length of users' names in letters that only count."""
Extras = Callable[[list[str]], Iterable[Mapping[str, Any]]]
"""A function from the users of rows to the values that the detail of each row names beside its columns."""


class Letters:
    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._written = 0
        self._unwritten: dict[str, Counter[str]] = {}  # numbers by reason and user

    def turn_away(
        self,
        rows: pa.RecordBatch,
        numbers: Ints,
        dead: DeadLetters,
        reason: str,
        detail: str,
        extras: Extras | None = None,
    ) -> None:
        """Writes letters for some rows, whose `numbers` ascend."""
        shown, rest = np.split(numbers, [max(0, LETTERS_MAX - self._written)])
        if len(shown):
            self._written += len(shown)
            chosen = np.zeros(len(rows), np.bool_)
            chosen[shown] = True
            each = extras(rows.column("user").take(pa.array(shown)).to_pylist()) if extras else None
            dead.add(rows, chosen, reason, detail, each)
        if len(rest):
            counts = pc.value_counts(rows.column("user").take(pa.array(rest)).cast(pa.binary()).fill_null(b"(no name)"))
            found = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
            more = Counter(self._unwritten.get(reason, Counter()))
            for user, count in found:
                more[user.decode(errors="replace")[:NAME_CHARACTERS_MAX]] += count
            self._unwritten[reason] = more

    def refuse_blocked(
        self, rows: pa.RecordBatch, numbers: Ints, blocks: list[tuple[str, float, str]], dead: DeadLetters
    ) -> None:
        held = {user: {"blocked_since": when(since_s), "why": why} for user, since_s, why in blocks}
        detail = "user {user} is blocked since {blocked_since} ({why}): an operator can unblock"

        def extras(users: list[str]) -> Iterator[dict[str, str]]:
            return (held[short_name(user)] for user in users)

        self.turn_away(rows, numbers, dead, "blocked", detail, extras)

    def refuse(
        self, rows: pa.RecordBatch, numbers: Ints, verdicts: AccountVerdicts, costs: Ints, dead: DeadLetters
    ) -> None:
        """Writes letters by the verdicts of `accounts.py`; FINE rows have none."""
        s, lifted = self._settings, "or have an operator exempt the user"
        rate = f"{s.user_operations_per_s:g} operations a second, {s.user_operations_burst} at once after a rest"
        details = {
            accounts.OVER_RATE: ("user-rate", f"user {{user}} may do {rate}: send this one later, {lifted}"),
            accounts.OVER_SUBSCRIPTIONS: (
                "user-subscriptions",
                f"user {{user}} has {s.user_subscriptions_max} live subscriptions, as many as one user may: "
                f"cancel some, {lifted}",
            ),
            accounts.OVER_COST: (
                "user-cost",
                f"subscription {{sub_id}} costs {{cost:g}}, with which user {{user}} would exceed {s.user_cost_max:g}: "
                f"make regions smaller or simpler, cancel some, {lifted}",
            ),
            accounts.NOT_OWNER: ("not-owner", "subscription {sub_id} is not {user}'s: only who has it may change it"),
            accounts.FULL: ("full", f"all {s.accounts_max} accounts of users are taken: raise accounts_max"),
        }
        for verdict, (reason, detail) in details.items():
            chosen = verdicts == verdict
            if chosen.any():
                asked = [{"cost": cost} for cost in (costs[chosen][:LETTERS_MAX] / THOUSANDTHS).tolist()]
                self.turn_away(rows, numbers[chosen], dead, reason, detail, partial(_these, asked))

    def close(self, dead: DeadLetters) -> None:
        """Writes how many were refused beyond those that are kept."""
        for reason, users in self._unwritten.items():
            most = ", ".join(f"{user} ({count})" for user, count in users.most_common(USERS_LISTED_MAX))
            others = f" and {len(users) - USERS_LISTED_MAX} others" if len(users) > USERS_LISTED_MAX else ""
            detail = f"{users.total()} more operations were refused for this reason, of {most}{others}: not kept"
            dead.add_more(reason, users.total(), detail)


def _these(each: list[dict[str, float]], users: list[str]) -> list[dict[str, float]]:
    return each


def when(at_s: float) -> str:
    """A moment in readable form."""
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at_s:g} s after 1970"
