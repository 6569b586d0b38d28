"""A small world for Guard's tests: users, cities, queries as counts, and hotspots where a city grows.

Has neither a plan nor a stream; `run/sim/attack_world.py` is the real thing. A party is a function of the time that
says how many queries each of its users registers in each city within a step of 15 s; queries go as they come, the
oldest first, unless the party only comes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.guard.guard import ClosedRound, Guard
from geoswarm.guard.sensor import AGES, HotspotSummary

STEP_S = 15.0
CITIES = 40
GROWTH = 1.15
"""A city that has grown so much since it was last balanced is a hotspot."""
NATURAL = 0.4
"""How likely a step has a hotspot anyhow, somewhere."""


@dataclass
class Party:
    names: list[str]
    comes: Callable[[np.random.Generator, float], Ints]
    """(users, cities) registered in the step that begins at this time."""
    goes: bool = True
    live: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.live = np.zeros((len(self.names), CITIES, 0), np.int64)


def normal(rng: np.random.Generator, users: int = 100, per_s: float = 300.0, home_share: float = 0.5) -> Party:
    """By Zipf's law about 80 % of the queries are of 20 % of the users; each has three homes."""
    activity = np.arange(1, users + 1) ** -1.0
    places = _city_weights()
    homes = np.zeros((users, CITIES))
    for user in range(users):
        np.add.at(homes[user], rng.choice(CITIES, 3, p=places), 1 / 3)
    rates = (activity / activity.sum())[:, None] * (home_share * homes + (1 - home_share) * places) * per_s * STEP_S
    return Party([f"user{i}" for i in range(users)], lambda rng, _: rng.poisson(rates))


def attack(
    users: int = 10,
    per_s: float = 300.0,
    start_s: float = 300.0,
    stay_s: float = 330.0,
    seed: int = 0,
    goes: bool = True,
) -> Party:
    """All at one city; after a while all at another."""
    targets = np.random.default_rng(seed).permutation(CITIES)

    def comes(rng: np.random.Generator, now_s: float) -> Ints:
        rates = np.zeros((users, CITIES))
        if now_s < 0:
            rates[:] = per_s * STEP_S / users / CITIES  # what they have before: everywhere
        if now_s >= start_s:
            rates[:, targets[int((now_s - start_s) / stay_s) % CITIES]] = per_s * STEP_S / users
        return rng.poisson(rates)

    return Party([f"attacker{i}" for i in range(users)], comes, goes)


def festival(
    names: Sequence[str], per_s: float = 300.0, start_s: float = 300.0, stop_s: float = 900.0, city: int = 7
) -> Party:
    """These users come to one city, and cancel nothing for it."""

    def comes(rng: np.random.Generator, now_s: float) -> Ints:
        rates = np.zeros((len(names), CITIES))
        rates[:, city] = per_s * STEP_S / len(names) if start_s <= now_s < stop_s else 0.0
        return rng.poisson(rates)

    return Party(list(names), comes, goes=False)


class World:
    def __init__(self, parties: Sequence[Party], guard: Guard, seed: int = 0) -> None:
        self.parties, self.guard = parties, guard
        self._rng = np.random.default_rng(seed)
        self._level = np.zeros(CITIES)
        self.rounds: list[ClosedRound] = []
        self.blocked: dict[str, int] = {}
        """In which round."""
        self.hot: list[tuple[int, int]] = []
        """Round and city of the hotspots."""
        for party in parties:  # what stands before the start: ten minutes' worth, and long ago
            party.live = np.repeat(party.comes(self._rng, -1e9)[:, :, None] * 40, AGES + 1, axis=2)
            party.live[:, :, :AGES] = 0

    def run(self, until_s: float) -> "World":
        for step in range(int(until_s / STEP_S)):
            now_s = step * STEP_S
            for party in self.parties:
                self._operate(party, now_s)
            self._sense()
            if self.guard.is_due(now_s + STEP_S):
                self._close(now_s + STEP_S)
        return self

    def _operate(self, party: Party, now_s: float) -> None:
        names = pa.array(party.names)
        came = party.comes(self._rng, now_s) * self.guard.admits(names)[:, None]
        gone = self._go(party, came.sum(axis=1)) if party.goes else np.zeros(len(names), np.int64)
        party.live[:, :, 0] += came
        for counts, kind in ((came.sum(axis=1), True), (gone, False)):
            users = names.take(pa.array(np.repeat(np.arange(len(names)), counts)))
            registered = np.full(len(users), kind)
            self.guard.count_operations(users, registered, ~registered, now_s)

    def _go(self, party: Party, counts: Ints) -> Ints:
        gone = np.zeros(len(counts), np.int64)
        for user in np.flatnonzero(counts):
            flat = party.live[user].T[::-1].ravel()  # the oldest first
            left = np.maximum(np.cumsum(flat) - counts[user], 0)
            kept = np.minimum(flat, left)
            gone[user] = flat.sum() - kept.sum()
            party.live[user] = kept.reshape(AGES + 1, CITIES)[::-1].T
        return gone

    def _sense(self) -> None:
        load = sum(party.live.sum(axis=(0, 2)) for party in self.parties)
        hot = {int(city) for city in np.flatnonzero(load > GROWTH * np.maximum(self._level, 100))}
        if self._rng.random() < NATURAL:
            hot.add(int(self._rng.choice(CITIES, p=_city_weights())))
        for city in sorted(hot):
            self._level[city] = load[city]
            self.hot.append((self.guard.round, city))
            self.guard.add_hotspot(self._hotspot(city))

    def _hotspot(self, city: int) -> HotspotSummary:
        codes = self.guard.codes(pa.array([name for party in self.parties for name in party.names]))
        counts = np.concatenate([party.live[:, city] for party in self.parties])
        users, which = np.unique(codes, return_inverse=True)  # a user may be of two parties
        summed = np.zeros((len(users), AGES + 1), np.int64)
        np.add.at(summed, which, counts)
        there = summed.any(axis=1) & (users >= 0)
        return HotspotSummary(users[there], summed[there], place_of_city(city))

    def _close(self, now_s: float) -> None:
        closed = self.guard.round
        found = self.guard.close_round(now_s)
        self.rounds.append(found)
        self.blocked |= dict.fromkeys(found.blocked, closed)
        for party in self.parties:
            party.live[:, :, AGES] += party.live[:, :, AGES - 1]
            party.live[:, :, 1:AGES] = party.live[:, :, : AGES - 1].copy()
            party.live[:, :, 0] = 0


def place_of_city(city: int) -> tuple[float, float]:
    return (city % 8 + 0.5) / 8, (city // 8 + 0.5) / 5


def _city_weights() -> Floats:
    weights = np.arange(1, CITIES + 1, dtype=np.float64) ** -0.8
    shares: Floats = weights / weights.sum()
    return shares
