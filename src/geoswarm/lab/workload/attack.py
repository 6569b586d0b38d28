"""Users who register and cancel so that the cluster never comes to rest: the thesis' attack, and some it did not try.

They are parties of a `traffic.Traffic`, beside those of `crowds.py`. `guard/` finds them; `run/sim/attack_world.py` has
what they cost.

    queries of the attackers    target 0            target 1            target 2
    at the target before       ████▆▅▃▂▁ cancelled    ▃▂▁                ▃▂▁
    at the target              ▁▂▃▅▆████ registered   ▆██                ▆██        their sum never changes

Thesis §6.4: 10 users with 100 000 of the million queries, all equally active; they register at the target while they
cancel at the one before, and when all have moved they choose the next from a sample of the live stream. Half of the
changes register. Two things the thesis leaves open. Which place of the sample: here one of the most crowded, which
"strengthens" the attack (§5.1.1). How large a target is: a square of 0.3 % of the world's side, about twice that of a
query. In one of 1 %, a city, the attack hardly affects this engine. Before it, their queries lie where all users' do.

    Attackers            as in §6.4; `changes_per_s` below a normal user's is the slow drip; `rename_s` gives all of
                         them new names every so often; `target` lets the attack start where something is on anyhow
    flash_crowd          thousands of users, a few queries each, one place, once: what a news event looks like
    Poisoners            invented users with one operation each: they are after Guard's tables, not the cluster
    Extra                no attack: normal users' extra activity with as many queries, for comparison (Fig. 6.14 - 6.18)
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.errors import SettingsError
from geoswarm.lab.workload.crowds import Gathering, NormalUsers
from geoswarm.lab.workload.draw import key_of
from geoswarm.lab.workload.traffic import (
    Changes,
    EventStream,
    axes_of,
    cancellations,
    centres,
    in_time,
    merge_changes,
    names_by_number,
    nothing,
    tweets_of,
    uniforms,
    within,
)

TARGET_SIDE_SHARE = 0.003
SAMPLE_POSTS = 1000
STANDING_FIRST_ID = 1 << 44
"""The first id of the places of the attackers' queries before the attack, far from the normal users' draws."""
ATTACK_S = 300.0
"""The attack starts at minute 5."""


@dataclass(frozen=True)
class Attackers:
    stream: EventStream
    users: int = 10
    queries: int = 100_000
    changes_per_s: float = 600.0
    start_s: float = ATTACK_S
    stop_s: float = np.inf
    side_share: float = TARGET_SIDE_SHARE
    """The side of a target, as a share of the world's side."""
    places: int = 8
    """The number of crowded places of a sample that the attackers choose targets from."""
    target: tuple[float, float] | None = None
    """The first target, as shares of the world's sides; None: from a sample of the stream, as all others."""
    rename_s: float = np.inf
    """Seconds for which a name is used."""
    names_max: int = 1 << 40
    """The number of names, after which the first is used again."""
    prefix: str = "attacker"

    def __post_init__(self) -> None:
        if not (self.users >= 1 and self.queries >= 1 and self.changes_per_s > 0 and self.rename_s > 0):
            raise SettingsError(
                f"{self.users} attackers with {self.queries} queries and {self.changes_per_s:g} changes/s, names for "
                f"{self.rename_s:g} s, attack nothing: use 1 attacker and query or more, and more than 0 of the others"
            )
        if self.names_max < self.users:
            raise SettingsError(f"{self.names_max} names for {self.users} attackers: give each at least one")

    def standing(self) -> Changes:
        x, y = centres(tweets_of(self.stream), STANDING_FIRST_ID, self.queries)
        ids = np.arange(self.queries)
        return Changes(np.zeros(len(ids)), np.ones(len(ids), np.bool_), ids, self.users_of(ids), x, y)

    def changes(self, since_s: float, until_s: float) -> Changes:
        numbers = in_time(since_s, min(until_s, self.stop_s), self.start_s, self.changes_per_s)
        at_s, comes = self.start_s + numbers / self.changes_per_s, numbers % 2 == 0
        new, old = self.queries + numbers[comes] // 2, numbers[~comes] // 2
        x, y = self._places(new)
        registered = Changes(at_s[comes], np.ones(len(new), np.bool_), new, self.users_of(new), x, y)
        return merge_changes(registered, cancellations(at_s[~comes], old, self.users_of(old)))

    def names(self, users: Ints) -> pa.StringArray:
        return names_by_number(self.prefix, users)

    def users_of(self, ids: Ints) -> Ints:
        """The user of each query: queries are spread evenly, under the name in use when they were registered."""
        alike = (uniforms(ids, key_of(tweets_of(self.stream).seed, "attack"), 0) * self.users).astype(np.int64)
        if not np.isfinite(self.rename_s):
            return alike
        since_s = np.maximum(ids - self.queries, 0) * 2 / self.changes_per_s
        generation = np.floor(since_s / self.rename_s).astype(np.int64)
        return (alike + generation * self.users) % self.names_max

    def target_of(self, number: int) -> tuple[float, float]:
        """x and y of the target: one of the most crowded places of the stream when it is chosen."""
        tweets = tweets_of(self.stream)
        if number == 0 and self.target is not None:
            (x0, x1), (y0, y1) = axes_of(tweets)
            return x0 + (x1 - x0) * self.target[0], y0 + (y1 - y0) * self.target[1]
        at_s = self.start_s + number * self.queries * 2 / self.changes_per_s
        last = max(int(at_s * tweets.events_per_s), SAMPLE_POSTS)
        sample = self.stream.events(last - SAMPLE_POSTS, SAMPLE_POSTS)
        points = np.stack([sample.column("x").to_numpy(), sample.column("y").to_numpy()], axis=1)
        sides = np.array([(high - low) * self.side_share for low, high in axes_of(tweets)])
        places = most_crowded(points, sides, self.places)
        # A step through the places, from a start that is drawn. They are ranked anew, so it may stay where it is.
        start = int(uniforms(np.zeros(1, np.int64), key_of(tweets.seed, "targets"), 0)[0] * self.places)
        x, y = points[places[(start + number) % len(places)]]
        return float(x), float(y)

    def _places(self, ids: Ints) -> tuple[Floats, Floats]:
        tweets = tweets_of(self.stream)
        chosen, which = np.unique((ids - self.queries) // self.queries, return_inverse=True)
        targets = np.array([self.target_of(int(number)) for number in chosen]).reshape(-1, 2)
        key = key_of(tweets.seed, "malice")
        x, y = (
            within(ids, key, n, targets[which, n - 1], self.side_share, *axis)
            for n, axis in zip((1, 2), axes_of(tweets), strict=True)
        )
        return x, y


@dataclass(frozen=True)
class Extra:
    """Instead of an attack, the normal users change as many queries as the attackers would."""

    normal: NormalUsers
    queries: int = 100_000
    changes_per_s: float = 0.0
    """0 if these queries never change."""
    start_s: float = ATTACK_S

    def standing(self) -> Changes:
        """Queries where the attackers' would be, so that the worlds are the same until the attack starts."""
        alike = Attackers(self.normal.stream, queries=self.queries).standing()
        return alike._replace(users=self._more.users_of(alike.ids))

    def changes(self, since_s: float, until_s: float) -> Changes:
        if not self.changes_per_s or until_s <= self.start_s:
            return nothing()
        done = self._more.changes(max(since_s - self.start_s, 0.0), until_s - self.start_s)
        return done._replace(at_s=done.at_s + self.start_s)

    def names(self, users: Ints) -> pa.StringArray:
        return self.normal.names(users)

    @property
    def _more(self) -> NormalUsers:
        tweets = tweets_of(self.normal.stream)
        later = replace(tweets, start_s=tweets.start_s + self.start_s)
        return replace(self.normal, stream=later, queries=self.queries, changes_per_s=self.changes_per_s or 1.0)


@dataclass(frozen=True)
class Poisoners:
    """Invented users, each of whom registers once, at an even pace."""

    stream: EventStream
    users: int = 100_000
    start_s: float = 0.0
    span_s: float = 1200.0
    prefix: str = "nobody"

    def standing(self) -> Changes:
        return nothing()

    def changes(self, since_s: float, until_s: float) -> Changes:
        pace = self.users / self.span_s
        ids = in_time(since_s, until_s, self.start_s, pace, self.users)
        first = int(ids[0]) if len(ids) else 0
        x, y = centres(tweets_of(self.stream), 2 * STANDING_FIRST_ID + first, len(ids))
        return Changes(self.start_s + ids / pace, np.ones(len(ids), np.bool_), ids, ids, x, y)

    def names(self, users: Ints) -> pa.StringArray:
        return names_by_number(self.prefix, users)


def slow_drip(
    stream: EventStream, start_s: float = ATTACK_S, *, queries: int = 100_000, share: float = 0.5
) -> Attackers:
    """Attackers who each change `share` of what the median normal user does: 600/s × about 0.2 % in the thesis."""
    quiet_user_per_s = 1.2
    return Attackers(stream, queries=queries, changes_per_s=10 * quiet_user_per_s * share, start_s=start_s)


def flash_crowd(
    stream: EventStream,
    center: tuple[float, float],
    start_s: float = ATTACK_S,
    *,
    users: int = 5000,
    queries: int = 100_000,
) -> Gathering:
    """A crowd that gathers within two minutes and leaves after ten."""
    return Gathering(
        stream, center, start_s, 120.0, queries, users, 600.0, side_share=TARGET_SIDE_SHARE, prefix="mimic"
    )


def most_crowded(points: Floats, sides: Floats, count: int) -> Ints:
    """The points with most others in a box of these sides round them, the most crowded first, no two boxes' centres
    within one box."""
    near = (np.abs(points[:, None, :] - points[None, :, :]) <= sides / 2).all(axis=2)
    left = near.sum(axis=1)
    chosen: list[int] = []
    while len(chosen) < count and left.max() > 0:
        chosen.append(int(np.argmax(left)))
        left[(np.abs(points - points[chosen[-1]]) <= sides).all(axis=1)] = 0
    return np.array(chosen, np.int64)
