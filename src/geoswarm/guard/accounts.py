"""What each user has and may still do: live subscriptions, their cost, and operations that are left.

The table has a row for each user with live subscriptions, or with operations not yet regained. It is not stored: after
a restart live subscriptions are counted again, and all users have their full number of operations. A user is known by a
64-bit hash of the name, under a random key of the process, so that no user can choose a name that shares an account
with another. Limits are in `limits.py`.
"""

import os
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints, kernel
from geoswarm.core.subscriptions.attributes import CANCEL, REGISTER
from geoswarm.guard.limits import THOUSANDTHS, GuardSettings

FINE, OVER_RATE, OVER_SUBSCRIPTIONS, OVER_COST, NOT_OWNER, FULL = range(6)
"""Verdicts on an operation."""
NOT_HERE = -1
"""The owner of a subscription that belongs to none of the users at hand."""
PRUNE_MIN = 4096
_KEY = os.urandom(16)

AccountVerdicts = npt.NDArray[np.int8]


class UserOperations(NamedTuple):
    """Operations in arrival order, as parallel arrays."""

    op: Ints
    subscription: Ints
    """The number of the subscription among those at hand."""
    user: Ints
    """The number of the user among those at hand."""
    cost: Ints
    """The cost of what the operation would register."""


class HeldSubscriptions(NamedTuple):
    """The subscriptions at hand, by number."""

    live: Bools
    owner: Ints
    cost: Ints


class UserTotals(NamedTuple):
    """The users at hand, by number."""

    subscriptions: Ints
    cost: Ints
    free: Bools
    """Whether the user has no limits."""


class Judgement(NamedTuple):
    verdicts: AccountVerdicts
    begins: Bools
    """Whether an operation registers something; a replacement may begin and end."""
    ends: Bools


class Accounts:
    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._keys = np.empty(0, np.int64)  # ascending
        self._subscriptions = np.empty(0, np.int64)
        self._cost = np.empty(0, np.int64)
        self._left = np.empty(0)
        self._at_s = np.empty(0)
        self._prune_at = PRUNE_MIN

    def __len__(self) -> int:
        return len(self._keys)

    def read(self, user: str) -> tuple[int, float]:
        """The number of a user's live subscriptions, and their cost."""
        row = int(self._find(_hashes(pa.array([user])))[0])
        return (0, 0.0) if row < 0 else (int(self._subscriptions[row]), float(self._cost[row]) / THOUSANDTHS)

    def add(self, names: pa.StringArray, codes: Ints, costs: Ints, sign: int) -> None:
        """Counts subscriptions that came into force (sign 1) or left it (-1); `codes` are positions in `names`."""
        if not len(codes):
            return
        counts = np.bincount(codes, minlength=len(names))
        sums = np.bincount(codes, costs, minlength=len(names)).astype(np.int64)
        used = np.flatnonzero(counts)
        rows = self._rows(_hashes(names.take(pa.array(used))))
        np.add.at(self._subscriptions, rows, sign * counts[used])
        np.add.at(self._cost, rows, sign * sums[used])

    def take(
        self, users: pa.StringArray, free: Bools, codes: Ints, now_s: float, weights: Ints | None = None
    ) -> AccountVerdicts:
        """FINE, RATE or FULL for each operation, in arrival order; `codes` are positions in `users`, who are all
        different. The operations are subtracted from what the users may do; with weights, each counts as so many, and
        behind one that is refused none of the same user passes."""
        settings = self._settings
        self._prune(now_s)
        keys = _hashes(users)
        new = np.flatnonzero(self._find(keys) < 0)
        full = np.zeros(len(users), np.bool_)
        full[new[max(0, settings.accounts_max - len(self)) :]] = True
        rows = self._rows(keys[~full])
        rested = np.minimum(  # a new user has all operations left
            self._left[rows] + np.maximum(now_s - self._at_s[rows], 0.0) * settings.user_operations_per_s,
            settings.user_operations_burst,
        )
        left = np.zeros(len(users), np.int64)
        left[~full] = rested
        counts = np.bincount(codes, minlength=len(users))
        order = np.argsort(codes, kind="stable")
        each = np.ones(len(codes), np.int64) if weights is None else weights
        first = np.repeat((np.cumsum(counts) - counts)[counts > 0], counts[counts > 0])
        after = np.empty(len(codes), np.int64)
        total = np.cumsum(each[order])
        after[order] = total - (total - each[order])[first]
        passes = after <= left[codes]
        used = np.where(free, 0, np.bincount(codes, np.where(passes, each, 0), len(users)))
        self._left[rows], self._at_s[rows] = rested - used[~full], now_s
        refused = np.where(full, FULL, OVER_RATE)[codes]
        return np.where(free[codes] | passes, FINE, refused).astype(np.int8)

    def judge(
        self, users: pa.StringArray, free: Bools, operations: UserOperations, held: HeldSubscriptions
    ) -> Judgement:
        """Which operations may be carried out, one after another in arrival order. Accounts change only when `add` is
        called."""
        rows = self._rows(_hashes(users))
        totals = UserTotals(self._subscriptions[rows], self._cost[rows], free)
        cost_max = int(self._settings.user_cost_max * THOUSANDTHS)
        return Judgement(*_judge(operations, held, totals, self._settings.user_subscriptions_max, cost_max))

    def _find(self, keys: Ints) -> Ints:
        """The row of each key, or -1."""
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, at, -1)

    def _rows(self, keys: Ints) -> Ints:
        """The row of each key; new rows have no subscriptions."""
        found = self._find(keys)
        new = np.unique(keys[found < 0])
        if not len(new):
            return found
        at = np.searchsorted(self._keys, new)
        self._keys = np.insert(self._keys, at, new)
        self._subscriptions, self._cost = np.insert(self._subscriptions, at, 0), np.insert(self._cost, at, 0)
        # Their last operation was infinitely long ago, so they have all operations left.
        self._left, self._at_s = np.insert(self._left, at, 0.0), np.insert(self._at_s, at, -np.inf)
        return self._find(keys)

    def _prune(self, now_s: float) -> None:
        """Removes users without live subscriptions who have all operations left."""
        if len(self) < min(self._prune_at, self._settings.accounts_max):
            return
        settings = self._settings
        missing = settings.user_operations_burst - self._left
        kept = (self._subscriptions > 0) | (now_s - self._at_s < missing / settings.user_operations_per_s)
        if not kept.all():
            self._keys, self._subscriptions, self._cost = self._keys[kept], self._subscriptions[kept], self._cost[kept]
            self._left, self._at_s = self._left[kept], self._at_s[kept]
        self._prune_at = max(PRUNE_MIN, 2 * len(self))


def _hashes(names: pa.StringArray) -> Ints:
    digests = [blake2b(name, digest_size=8, key=_KEY).digest() for name in names.cast(pa.binary()).to_pylist()]
    return np.frombuffer(b"".join(digests), np.int64)


@kernel
def _judge(
    todo: UserOperations, held: HeldSubscriptions, totals: UserTotals, subscriptions_max: int, cost_max: int
) -> tuple[AccountVerdicts, Bools, Bools]:
    n = len(todo.op)
    verdicts, begins, ends = np.zeros(n, np.int8), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    for i in range(n):
        which, user = todo.subscription[i], todo.user[i]
        is_live, is_free = held.live[which], totals.free[user]
        if (is_live and todo.op[i] == REGISTER) or (not is_live and todo.op[i] == CANCEL):
            continue  # a duplicate, or unknown: the store reports it
        if is_live and held.owner[which] != user:
            verdicts[i] = NOT_OWNER
            continue
        before = held.cost[which] if is_live else 0
        after = 0 if todo.op[i] == CANCEL else todo.cost[i]
        if todo.op[i] != CANCEL and not is_free:
            if not is_live and totals.subscriptions[user] >= subscriptions_max:
                verdicts[i] = OVER_SUBSCRIPTIONS
                continue
            if after > before and totals.cost[user] + after - before > cost_max:
                verdicts[i] = OVER_COST
                continue
        begins[i], ends[i] = todo.op[i] != CANCEL, is_live
        totals.subscriptions[user] += (1 if begins[i] else 0) - (1 if is_live else 0)
        totals.cost[user] += after - before
        held.live[which], held.owner[which], held.cost[which] = begins[i], user, after
    return verdicts, begins, ends
