"""The paper's planners: plain LLFD, MinTable, MinMig, Mixed between the two, and Mixed-BF, which tries everything.

All run the three phases of Mixed §III: clean the table, empty the overloaded executors, assign (`llfd.py` does the
last two). Where LLFD ends out of balance, heavy keys are exchanged (`control/swap.py`), which the paper does not do.
The planners differ in how many entries they move back, and in what they move first (ψ):

                    moves back             ψ
    LLFD            nothing                largest load
    MinTable (2)    all entries            largest load
    MinMig   (3)    nothing                largest γ = load^β / state
    Mixed    (4)    n of least state       largest γ; n grows until the table fits

Where the paper is wrong: line 10 of Algorithm 4 sets n to the overrun of the last trial alone, which can alternate
between two values for ever. Here overruns add up. When the table is too small for what γ picks, the paper's Mixed
turns into MinTable (§V, Figure 8): all entries move back. Here MinTable's ψ is first tried with few moved back.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from geoswarm.control.keyed.llfd import SLACK, llfd
from geoswarm.control.keyed.problem import Case, KeyStats, Limits, Rebalance, answer, is_settled
from geoswarm.control.swap import exchange
from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.keys.hashing import KeyOwners
from geoswarm.core.keys.plan import KeyPlan


@dataclass(frozen=True)
class Trial:
    """One run of the three phases."""

    at: KeyOwners
    """The owner of each item after Phase I."""
    items: Ints
    """The items of units that were moved, in the order of placing."""
    targets: KeyOwners
    """The executor that each of these units was placed at."""
    loads: Floats
    table: int
    migration: float
    trials: int = 1
    """The number of runs that it took to find this one."""

    def owner(self) -> KeyOwners:
        """The owner of each item, if each is one key."""
        owner = self.at.copy()
        owner[self.items] = self.targets
        return owner


class Search:
    """Trials on one case; what does not change between them is computed once."""

    def __init__(self, case: Case, limits: Limits) -> None:
        self.case, self.limits = case, limits
        self.load_max, self.load_min = case.load_max(limits), case.load_min(limits)
        self._loads = case.loads_now
        listed = np.flatnonzero(case.owner != case.home)
        self._listed = listed[np.argsort(case.state[listed], kind="stable")]  # η
        self._entries = np.cumsum(case.count[self._listed])
        self._gamma: Floats | None = None

    @property
    def entries(self) -> int:
        """N_A: the number of keys in the table."""
        return int(self._entries[-1]) if len(self._entries) else 0

    @property
    def gamma(self) -> Floats:
        if self._gamma is None:
            self._gamma = gamma(self.case.load, self.case.state, self.limits.beta)
        return self._gamma

    def trial(self, back: int, rank: Floats) -> Trial:
        """Runs the three phases, with at least `back` keys moved back, those of least state first."""
        case = self.case
        cut = int(np.searchsorted(self._entries, back)) + 1 if back > 0 else 0
        cleaned, kept = self._listed[:cut], self._listed[cut:]
        at, loads, weights = case.owner.copy(), self._loads.copy(), case.load[cleaned] * case.count[cleaned]
        at[cleaned] = case.home[cleaned]
        np.subtract.at(loads, case.owner[cleaned], weights)
        np.add.at(loads, case.home[cleaned], weights)
        items, targets, loads = self._place(at, loads, rank)
        table = case.count[kept].sum() - (at[items] != case.home[items]).sum() + (targets != case.home[items]).sum()
        migration = (case.state[cleaned] * case.count[cleaned]).sum()
        owners = case.owner[items]
        migration += (case.state[items] * ((targets != owners) * 1 - (at[items] != owners))).sum()
        return Trial(at, items, targets, loads, int(table), float(migration))

    def _place(self, at: KeyOwners, loads: Floats, rank: Floats) -> tuple[Ints, KeyOwners, Floats]:
        """The units that leave `at`, the executors where they go, and the loads after that."""
        case = self.case
        items, targets = llfd(case.load, rank, case.count, at, loads, fill_level(loads, self.load_max, self.load_min))
        if case.is_balanced(loads, self.limits) or case.count.max(initial=1) > 1:  # a vector's keys are not known here
            return items, targets, loads
        placed = at.copy()
        placed[items] = targets
        owner, loads = swap_keys(case, placed, self.limits)
        items = np.flatnonzero(owner != at)
        return items, owner[items], loads

    def is_balanced(self, trial: Trial) -> bool:
        return self.case.is_balanced(trial.loads, self.limits)

    def fits(self, trial: Trial) -> bool:
        return trial.table <= self.limits.table_max

    def merit(self, trial: Trial) -> tuple[bool, bool, float]:
        """A rank for trials: by fit of the table, then balance, then little migration; without balance, by reach."""
        balanced = self.is_balanced(trial)
        return self.fits(trial), balanced, -(trial.migration if balanced else self.case.reach(trial.loads, self.limits))


def fill_level(loads: Floats, load_max: float, load_min: float) -> float:
    """The bound for LLFD: L_max, or the lower level above which there is just the load that lifts all executors to
    `load_min`. What LLFD takes goes to the least loaded first."""
    lacking = float(np.maximum(0.0, load_min - loads).sum())
    if lacking == 0.0:
        return load_max
    falling = np.sort(loads)[::-1]
    levels = (np.cumsum(falling) - lacking) / np.arange(1, len(loads) + 1)  # if the first n executors give
    return min(load_max, float(levels.max()))


def swap_keys(case: Case, owner: KeyOwners, limits: Limits) -> tuple[KeyOwners, Floats]:
    """The owners after exchanges of heavy keys, if these are not in balance, and the loads."""
    loads = case.loads(owner)
    if case.is_balanced(loads, limits):
        return owner, loads
    load_max, load_min = case.load_max(limits) * (1.0 + SLACK), case.load_min(limits) * (1.0 - SLACK)
    swapped, loads = exchange(case.load, owner.astype(np.int64), loads, load_max, load_min)
    return swapped.astype(np.int32), loads


@kernel
def gamma(load: Floats, state: Floats, beta: float) -> Floats:
    """γ, the migration priority: infinite for load without state, which costs nothing to move."""
    ranks = np.zeros(len(load))
    for i in range(len(load)):
        if load[i] > 0.0:
            power = load[i] * np.sqrt(load[i]) if beta == 1.5 else load[i] ** beta
            ranks[i] = power / state[i] if state[i] > 0.0 else np.inf
    return ranks


def min_table_trial(search: Search) -> Trial:
    return search.trial(search.entries, search.case.load)


def mixed_trial(search: Search) -> Trial:
    """Algorithm 4; if its first trial does not fit, also with MinTable's ψ, and the better of the two."""
    best, trials = _until_it_fits(search, search.gamma)
    if trials > 1 or not search.is_balanced(best):
        other, more = _until_it_fits(search, search.case.load)
        trials += more
        best = max(best, other, key=search.merit)
    return replace(best, trials=trials)


def mixed_bf_trial(search: Search) -> Trial:
    """The best trial over all n."""
    best, trials = mixed_trial(search), search.entries + 1
    for back in range(trials):
        best = max(best, search.trial(back, search.gamma), key=search.merit)
    return replace(best, trials=trials)


def _until_it_fits(search: Search, rank: Floats) -> tuple[Trial, int]:
    """Moves more and more entries back until the table fits. With all of them, and ψ the load, this is MinTable."""
    back, trials = 0, 1
    trial = search.trial(back, rank)
    while not search.fits(trial) and back < search.entries:
        # Doubled from trial to trial: entries moved back make room, but new entries take some of it.
        back = min(search.entries, back + ((trial.table - search.limits.table_max) << (trials - 1)))
        trial, trials = search.trial(back, rank), trials + 1
    return trial, trials


def trim_table(case: Case, owner: KeyOwners, limits: Limits) -> KeyOwners:
    """The owners with at most A_max entries in the table, the heaviest: other keys return to their hash."""
    listed = np.flatnonzero(owner != case.home)
    if limits.table_is_soft or len(listed) <= limits.table_max:
        return owner
    light = listed[np.argsort(-case.load[listed], kind="stable")][limits.table_max :]
    owner = owner.copy()
    owner[light] = case.home[light]
    return owner


@dataclass(frozen=True)
class LLFD:
    """Empties the overloaded executors, largest key first into the least loaded executor that takes it."""

    heeds: ClassVar[tuple[str, ...]] = ("theta_is_two_sided",)
    limits: Limits = field(default_factory=Limits)
    name: str = "llfd"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        if is_settled(case, self.limits):
            return answer(plan, stats, case, self.limits, case.owner, trials=0)
        owner = Search(case, self.limits).trial(0, case.load).owner()
        return answer(plan, stats, case, self.limits, owner, trials=1)


@dataclass(frozen=True)
class MinTable:
    """Moves all keys of the table back to their hash, and then as few as possible elsewhere."""

    heeds: ClassVar[tuple[str, ...]] = ("theta_is_two_sided",)
    limits: Limits = field(default_factory=Limits)
    name: str = "min-table"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        if is_settled(case, self.limits):
            return answer(plan, stats, case, self.limits, case.owner, trials=0)
        return answer(plan, stats, case, self.limits, min_table_trial(Search(case, self.limits)).owner(), trials=1)


@dataclass(frozen=True)
class MinMig:
    """Moves what has most load for its state, whatever the table grows to: nearly all keys (Appendix, Figure 18)."""

    heeds: ClassVar[tuple[str, ...]] = ("theta_is_two_sided",)
    limits: Limits = field(default_factory=Limits)
    name: str = "min-mig"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        if is_settled(case, self.limits):
            return answer(plan, stats, case, self.limits, case.owner, trials=0)
        search = Search(case, self.limits)
        return answer(plan, stats, case, self.limits, search.trial(0, search.gamma).owner(), trials=1)


@dataclass(frozen=True)
class Mixed:
    """Moves as little state as fits the table: back to their hash go only as many keys as must."""

    heeds: ClassVar[tuple[str, ...]] = ("table_is_soft", "theta_is_two_sided")
    limits: Limits = field(default_factory=Limits)
    name: str = "mixed"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        search = Search(case, self.limits)
        if is_settled(case, self.limits) and search.entries <= self.limits.table_max:
            return answer(plan, stats, case, self.limits, case.owner, trials=0)
        best = mixed_trial(search)
        owner = trim_table(case, best.owner(), self.limits)
        return answer(plan, stats, case, self.limits, owner, trials=best.trials)


@dataclass(frozen=True)
class MixedBF:
    """Tries every number of keys to move back to their hash, and takes the best."""

    heeds: ClassVar[tuple[str, ...]] = ("table_is_soft", "theta_is_two_sided")
    limits: Limits = field(default_factory=Limits)
    name: str = "mixed-bf"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        search = Search(case, self.limits)
        if is_settled(case, self.limits) and search.entries <= self.limits.table_max:
            return answer(plan, stats, case, self.limits, case.owner, trials=0)
        best = mixed_bf_trial(search)
        owner = trim_table(case, best.owner(), self.limits)
        return answer(plan, stats, case, self.limits, owner, trials=best.trials)
