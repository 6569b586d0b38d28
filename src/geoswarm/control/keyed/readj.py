"""Readj, a rival: among the heaviest keys, try every move and every swap between executors, and do the best one.

Only keys with at least σ of the average load take part; all others return to their hash. Mixed §V-"Baseline
Approaches" and Figure 12, after B. Gedik, "Partitioning functions for stateful data parallelism in stream processing",
VLDBJ 23(4).

Each step compares all pairs of tracked keys, as both papers describe it. Everything else is in its favour: only
overloaded executors give (another pair cannot lower the maximum), the loops are compiled, ties go to the smaller state,
and `ReadjSearched` finds the largest σ that balances by bisection, as in the paper. `ReadjSorted` is an improvement: it
finds the same best swap along two sorted lists (`control/swap.py`), without comparing all pairs.
"""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field

from geoswarm.control.keyed.llfd import SLACK
from geoswarm.control.keyed.problem import Case, KeyStats, Limits, Rebalance, answer, is_settled
from geoswarm.control.swap import best_swap
from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.keys.hashing import KeyOwners
from geoswarm.core.keys.plan import KeyPlan

STEPS_MAX = 20_000
"""The most swaps of one run."""
SIGMA_HALVINGS = 14
"""σ is searched among 1, 1/2, 1/4, ... of the average load."""


@kernel
def _best_swap(load: Floats, state: Floats, gives: Ints, takes: Ints, gap: float) -> tuple[float, int, int]:
    """The change that leaves the smallest gap of two loads: its gain, the key that goes, the key that comes or -1."""
    best, best_state, went, came = 0.0, np.inf, -1, -1
    for a in gives:
        for n in range(-1, len(takes)):
            shift, cost = load[a], state[a]
            if n >= 0:
                shift, cost = shift - load[takes[n]], cost + state[takes[n]]
            gain = gap - abs(gap - 2.0 * shift)
            if gain > best or (gain == best and gain > 0.0 and cost < best_state):
                best, best_state, went, came = gain, cost, a, (takes[n] if n >= 0 else -1)
    return best, went, came


@kernel
def _readjust(
    load: Floats, state: Floats, tracked: Ints, owner: KeyOwners, loads: Floats, bound: float, is_sorted: bool
) -> int:
    """The number of steps; `owner` and `loads` are updated in place. `tracked` is by descending load."""
    executors = len(loads)
    for step in range(STEPS_MAX):
        best, went, came, giver, taker = 0.0, -1, -1, -1, -1
        here = owner[tracked]
        for i in range(executors):
            if loads[i] <= bound:
                continue
            gives = tracked[here == i]
            for j in range(executors):
                if loads[j] < loads[i]:
                    takes, gap = tracked[here == j], loads[i] - loads[j]
                    if is_sorted:
                        gain, a, b = best_swap(load, gives, takes, gap)
                    else:
                        gain, a, b = _best_swap(load, state, gives, takes, gap)
                    if gain > best:
                        best, went, came, giver, taker = gain, a, b, i, j
        if best <= 1e-9 * bound:
            return step
        shift = load[went]
        owner[went] = taker
        if came >= 0:
            shift -= load[came]
            owner[came] = giver
        loads[giver] -= shift
        loads[taker] += shift
    return STEPS_MAX


def readjust_keys(case: Case, limits: Limits, sigma: float, is_sorted: bool = False) -> tuple[KeyOwners, bool, int]:
    """The owner of each key, whether that is balanced, and the number of keys that took part."""
    tracked = np.flatnonzero((case.load >= sigma * case.mean) & (case.load > 0.0))
    tracked = tracked[np.argsort(-case.load[tracked], kind="stable")]
    owner = case.home.copy()
    owner[tracked] = case.owner[tracked]
    loads, bound = case.loads(owner), case.load_max(limits) * (1.0 + SLACK)
    _readjust(case.load, case.state, tracked, owner, loads, bound, is_sorted)
    return owner, bool(loads.max() <= bound), len(tracked)


@dataclass(frozen=True)
class Readj:
    """Moves or swaps the heaviest keys, those of at least σ of the average load."""

    limits: Limits = field(default_factory=Limits)
    sigma: Annotated[float, Field(gt=0)] = 0.01
    """σ: the least load of a key that takes part, as a share of the average."""
    name: str = "readj"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        if is_settled(case, self.limits):
            return answer(plan, stats, case, self.limits, case.owner, trials=0)
        owner, _, tracked = readjust_keys(case, self.limits, self.sigma)
        return answer(plan, stats, case, self.limits, owner, trials=1, sigma=self.sigma, tracked=tracked)


@dataclass(frozen=True)
class ReadjSearched:
    """Moves or swaps the heaviest keys, with the largest σ that balances."""

    limits: Limits = field(default_factory=Limits)
    name: str = "readj-searched"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        return _search_sigma(plan, stats, self.limits, is_sorted=False)


@dataclass(frozen=True)
class ReadjSorted:
    """Finds what `readj-searched` finds, along two sorted lists, without comparing all pairs."""

    limits: Limits = field(default_factory=Limits)
    name: str = "readj-sorted"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        return _search_sigma(plan, stats, self.limits, is_sorted=True)


def _search_sigma(plan: KeyPlan, stats: KeyStats, limits: Limits, is_sorted: bool) -> Rebalance:
    """An answer with the largest σ that balances; with the smallest tried if none does."""
    case = Case.of(plan, stats)
    if is_settled(case, limits):
        return answer(plan, stats, case, limits, case.owner, trials=0)
    low, high, trials, balanced_once = 0, SIGMA_HALVINGS, 0, False
    owner, tracked, halvings = case.owner, 0, 0
    while low <= high:
        middle = (low + high) // 2
        tried, balanced, took_part = readjust_keys(case, limits, 0.5**middle, is_sorted)
        trials += 1
        if balanced or not balanced_once:
            owner, tracked, halvings = tried, took_part, middle
        balanced_once |= balanced
        low, high = (low, middle - 1) if balanced else (middle + 1, high)
    return answer(plan, stats, case, limits, owner, trials=trials, sigma=0.5**halvings, tracked=tracked)
