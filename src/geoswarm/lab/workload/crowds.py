"""Users of an ordinary day, and crowds that are no attack: a festival, commuters, a news event.

They are parties of a `traffic.Traffic`; attackers are in `attack.py`.

Thesis §6.4: 100 users, 600 changes a second, queries at the places of tweets, activity by Zipf's law such that 80 % of
it comes from 20 % of the users. Half of the changes register and half cancel, so that the number of queries stays. The
thesis' users ask for places of the whole stream; here a user also has homes, to which part of the queries go, because
a user whose queries lie everywhere is easy to distinguish from an attacker.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.errors import SettingsError
from geoswarm.lab.workload.draw import Ranks, key_of, picks
from geoswarm.lab.workload.lifetimes import Lifetimes
from geoswarm.lab.workload.traffic import (
    Changes,
    EventStream,
    axes_of,
    cancellations,
    centres,
    coprime_of,
    in_time,
    merge_changes,
    names_by_number,
    nothing,
    tweets_of,
    uniforms,
    within,
)

ACTIVE_USERS, ACTIVE_SHARE = 0.2, 0.8
"""80 % of the activity comes from 20 % of the users."""
HOME_SIDE_SHARE = 0.03
"""The side of the square round a home, as a share of the world's side: a city and its suburbs."""
HOMES_SEED = 0x5EED


@dataclass(frozen=True)
class NormalUsers:
    """Users of an ordinary day: each registers as often as it cancels, at places of the stream or near its homes."""

    stream: EventStream
    users: int = 100
    queries: int = 900_000
    changes_per_s: float = 600.0
    homes: int = 3
    """The number of homes of each user, which are places of the stream's average day."""
    home_share: float = 0.5
    """The share of a user's queries near homes; the others lie at posts of that moment. In the thesis it is 0."""
    prefix: str = "user"

    def __post_init__(self) -> None:
        if not (self.users >= 2 and self.queries >= 1 and self.changes_per_s > 0 and self.homes >= 1):
            raise SettingsError(
                f"{self.users} users with {self.queries} queries, {self.changes_per_s:g} changes/s and {self.homes} "
                "homes are no crowd: use 2 users or more, and 1 or more of the others"
            )
        if not 0.0 <= self.home_share <= 1.0:
            raise SettingsError(f"home_share {self.home_share} of the users is no share: use 0 to 1")

    def standing(self) -> Changes:
        ids = np.arange(self.queries)
        return self._register(ids, np.zeros(len(ids)), *centres(tweets_of(self.stream), 0, self.queries))

    def changes(self, since_s: float, until_s: float) -> Changes:
        numbers = in_time(since_s, until_s, 0.0, self.changes_per_s)
        comes, at_s = numbers % 2 == 0, numbers / self.changes_per_s
        first = (int(numbers[0]) + 1) // 2 if len(numbers) else 0
        count = int(comes.sum())
        # A post of the same stream, only fewer of them: its n-th is made when the n-th query is registered.
        posts = replace(tweets_of(self.stream), events_per_s=self.changes_per_s / 2).events(first, count)
        x, y = (posts.column(side).to_numpy() for side in ("x", "y"))
        new = self._register(self.queries + np.arange(first, first + count), at_s[comes], x, y)
        old = Lifetimes(self.queries, tweets_of(self.stream).seed).departing(numbers[~comes] // 2)
        return merge_changes(new, cancellations(at_s[~comes], old, self.users_of(old)))

    def names(self, users: Ints) -> pa.StringArray:
        return names_by_number(self.prefix, users)

    def users_of(self, ids: Ints) -> Ints:
        key = key_of(tweets_of(self.stream).seed, "owners")
        return picks(ids, key, 0, activity_table(self.users)).astype(np.int64)

    @cached_property
    def _homes(self) -> tuple[Floats, Floats]:
        tweets = tweets_of(self.stream)
        return centres(replace(tweets, seed=tweets.seed ^ HOMES_SEED), 0, self.users * self.homes)

    def _register(self, ids: Ints, at_s: Floats, x: Floats, y: Floats) -> Changes:
        tweets, users = tweets_of(self.stream), self.users_of(ids)
        key = key_of(tweets.seed, "homes")
        which = users * self.homes + (uniforms(ids, key, 0) * self.homes).astype(np.int64)
        near = [
            within(ids, key, n, home[which], HOME_SIDE_SHARE, *axis)
            for n, home, axis in zip((1, 2), self._homes, axes_of(tweets), strict=True)
        ]
        at_home = uniforms(ids, key, 3) < self.home_share
        x, y = np.where(at_home, near[0], x), np.where(at_home, near[1], y)
        return Changes(at_s, np.ones(len(ids), np.bool_), ids, users, x, y)


@dataclass(frozen=True)
class Gathering:
    """A festival, a news event: many users' new queries at one place within a while; cancelled as evenly at its end."""

    stream: EventStream
    center: tuple[float, float]
    """The place, as shares of the world's sides."""
    start_s: float
    come_s: float
    """All queries come within this time."""
    queries: int = 50_000
    users: int = 100
    stay_s: float = 3600.0
    side_share: float = 0.02
    prefix: str = "user"
    """The prefix of users' names; with that of `NormalUsers` these are the same users."""

    def standing(self) -> Changes:
        return nothing()

    def changes(self, since_s: float, until_s: float) -> Changes:
        pace = self.queries / self.come_s
        came, went = (
            in_time(since_s, until_s, first_s, pace, self.queries)
            for first_s in (self.start_s, self.start_s + self.stay_s)
        )
        tweets = tweets_of(self.stream)
        key = key_of(tweets.seed, "gather")
        middle = [low + (high - low) * c for c, (low, high) in zip(self.center, axes_of(tweets), strict=True)]
        x, y = (
            within(came, key, n, np.full(len(came), at), self.side_share, *axis)
            for n, at, axis in zip((1, 2), middle, axes_of(tweets), strict=True)
        )
        new = Changes(self.start_s + came / pace, np.ones(len(came), np.bool_), came, self._users_of(came), x, y)
        return merge_changes(new, cancellations(self.start_s + self.stay_s + went / pace, went, self._users_of(went)))

    def names(self, users: Ints) -> pa.StringArray:
        return names_by_number(self.prefix, users)

    def _users_of(self, ids: Ints) -> Ints:
        """The users of queries, in turn, so that every user has some; but in no order."""
        return (ids * coprime_of(self.users)) % self.users


@dataclass(frozen=True)
class Commuters:
    """A city at 6 pm: the queries of many users leave its centre for the suburbs, one cancelled for each that comes."""

    stream: EventStream
    center: tuple[float, float]
    start_s: float
    move_s: float = 3600.0
    queries: int = 50_000
    users: int = 100
    centre_side_share: float = 0.01
    suburbs_side_share: float = 0.06
    prefix: str = "user"

    def standing(self) -> Changes:
        ids = np.arange(self.queries)
        return self._register(ids, np.zeros(len(ids)), self.centre_side_share)

    def changes(self, since_s: float, until_s: float) -> Changes:
        pace = self.queries / self.move_s
        moved = in_time(since_s, until_s, self.start_s, pace, self.queries)
        at_s = self.start_s + moved / pace
        new = self._register(self.queries + moved, at_s, self.suburbs_side_share)
        return merge_changes(new, cancellations(at_s, moved, self._users_of(moved)))

    def names(self, users: Ints) -> pa.StringArray:
        return names_by_number(self.prefix, users)

    def _users_of(self, ids: Ints) -> Ints:
        return (ids % self.queries * coprime_of(self.users)) % self.users

    def _register(self, ids: Ints, at_s: Floats, side_share: float) -> Changes:
        tweets = tweets_of(self.stream)
        key = key_of(tweets.seed, "commute")
        middle = [low + (high - low) * c for c, (low, high) in zip(self.center, axes_of(tweets), strict=True)]
        x, y = (
            within(ids, key, n, np.full(len(ids), at), side_share, *axis)
            for n, at, axis in zip((1, 2), middle, axes_of(tweets), strict=True)
        )
        return Changes(at_s, np.ones(len(ids), np.bool_), ids, self._users_of(ids), x, y)


def skew_of(users: int, active: float = ACTIVE_USERS, share: float = ACTIVE_SHARE) -> float:
    """The exponent of Zipf's law by which the `active` part of the users has this share of the activity."""
    low, high = 0.0, 10.0
    first = max(1, round(users * active))
    for _ in range(60):
        skew = (low + high) / 2
        weights = np.arange(1, users + 1, dtype=np.float64) ** -skew
        low, high = (skew, high) if weights[:first].sum() < share * weights.sum() else (low, skew)
    return (low + high) / 2


@lru_cache(maxsize=8)
def activity_table(users: int, slots: int = 65_536) -> Ranks:
    """Users by equal slots, as `draw.picks` reads it."""
    cumulative = np.cumsum(np.arange(1, users + 1, dtype=np.float64) ** -skew_of(users))
    at = (np.arange(slots) + 0.5) / slots * cumulative[-1]
    table: Ranks = np.minimum(np.searchsorted(cumulative, at), users - 1).astype(np.int32)
    return table
