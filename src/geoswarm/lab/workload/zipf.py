"""Keys with Zipf frequencies that shift from interval to interval, and the state that a window keeps of them.

Planners see counts per key and interval, not tuples. `tuples_of` draws the tuples of an interval where they are
needed. Mixed §V, "Synthetic Data".

Fluctuation: frequencies are swapped between keys of two executors until one of these has lost so much that
|L_new - L_old| / L_new >= f. The paper does not say which keys: pairs drawn evenly from 10^6 keys would swap crumbs,
and no executor would ever halve (f = 1). Here the key that loses is drawn by its frequency, and the one that gains
by the inverse of it. The multiset of frequencies never changes.
"""

from dataclasses import dataclass

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.keys.hashing import KeyOwners
from geoswarm.errors import SettingsError

TUPLES_PER_KEY = 10
"""Tuples per key and interval, on average: enough for the rarest of 10^6 keys to occur at z = 0.85."""


@dataclass(frozen=True)
class Zipf:
    """Defaults are those in bold in Mixed Table II."""

    keys: int = 1_000_000
    skew: float = 0.85
    """z: the key of rank r comes in proportion to r^-z."""
    fluctuation: float = 1.0
    """f: the change of an executor's load from one interval to the next."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.keys < 1:
            raise SettingsError(f"a workload of {self.keys} keys is none: use 1 or more")
        if not (0.0 <= self.skew <= 10.0 and 0.0 <= self.fluctuation <= 100.0):
            given = f"skew {self.skew} and fluctuation {self.fluctuation}"
            raise SettingsError(f"{given} are out of range: use a skew of 0 to 10 and a fluctuation of 0 to 100")

    def first(self) -> Ints:
        """Tuples of each key 0..K-1 in the first interval: every key at least once, ranks in random order."""
        weights = np.arange(1, self.keys + 1, dtype=np.float64) ** -self.skew
        counts = np.maximum(1, np.rint(weights * (self.keys * TUPLES_PER_KEY / weights.sum()))).astype(np.int64)
        return self._rng(0).permutation(counts)

    def reshuffle(self, interval: int) -> Ints:
        """The same frequencies on other keys."""
        return self._rng(interval).permutation(self.first())

    def next(self, counts: Ints, owner: KeyOwners, interval: int) -> Ints:
        """The counts of the next interval, given the owner of each key (any numbers from 0)."""
        rng = self._rng(interval)
        owners = np.flatnonzero(np.bincount(owner))
        if self.fluctuation == 0.0 or len(owners) < 2:
            return counts.copy()
        loser, winner = rng.choice(owners, 2, replace=False)
        losing, winning = np.flatnonzero(owner == loser), np.flatnonzero(owner == winner)
        # Drawn without repeats: the order in which independent exponential clocks of these rates ring.
        order = losing[np.argsort(rng.exponential(size=len(losing)) / counts[losing])]
        partners = winning[np.argsort(rng.exponential(size=len(winning)) * counts[winning])]
        # Where keys are few and alike, an executor cannot be brought down so far; the interval then changes less.
        load = int(counts[losing].sum())
        return _swap(counts, order, partners, load / (1.0 + self.fluctuation))

    def tuples_of(self, counts: Ints, interval: int) -> Ints:
        """The keys of an interval's tuples, in random order."""
        keys: Ints = self._rng(interval, 1).permutation(np.repeat(np.arange(self.keys), counts))
        return keys

    def _rng(self, interval: int, purpose: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.seed, interval, purpose])


@kernel
def _swap(counts: Ints, losing: Ints, winning: Ints, load_goal: float) -> Ints:
    counts = counts.copy()
    load = 0
    for i in losing:
        load += counts[i]
    for n in range(min(len(losing), len(winning))):
        if load <= load_goal:
            break
        i, j = losing[n], winning[n]
        if counts[i] > counts[j]:
            load += counts[j] - counts[i]
            counts[i], counts[j] = counts[j], counts[i]
    return counts


class Window:
    """S(k, w): the state of each key from the last w intervals, in tuples."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._intervals: list[Ints] = []

    def add(self, counts: Ints) -> Floats:
        self._intervals = [*self._intervals[-self._window + 1 :], counts] if self._window > 1 else [counts]
        total: Floats = np.sum(self._intervals, axis=0).astype(np.float64)
        return total
