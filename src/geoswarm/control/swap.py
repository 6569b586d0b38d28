"""Lower the busiest executor by exchanging two items, or moving one, where greedy placing has come to its end.

Items are keys (`keyed/mixed.py`, after LLFD) or whole partitions (`balance/distributor.py`). Only the heaviest items of
each executor take part: where many light ones are, greedy placing does not get stuck. Readj does nothing else, and does
it to all tracked keys (`keyed/readj.py`).

A step takes, of the pairs of a busy executor and a cheap one, one of which is out of bounds, the exchange that leaves
the two closest:

    busy   ████████ █████ ██        a goes        busy   █████ █████ ██
    other  █████ ███                b comes       other  ████████ ███
"""

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints, kernel

CANDIDATES_MAX = 64
"""Items of each executor that take part, the heaviest: 4,096 pairs for two executors, found along two sorted lists."""
STEPS_MAX = 1_000
"""The most exchanges of one pass."""
PARTNERS_MAX = 16
"""Executors that may give, the busiest, and that may take, the cheapest, in one step: with all of thousands, a pass
would take minutes."""
GAIN_SHARE_MIN = 1e-9
"""The least gain of an exchange, as a share of the busiest: less is the rounding of sums."""


def exchange(load: Floats, owner: Ints, loads: Floats, load_max: float, load_min: float = 0.0) -> tuple[Ints, Floats]:
    """The owner of each item and the load of each executor after exchanges, first only with executors out of bounds.
    If that is not enough, all above the average give, which makes room elsewhere; this counts if the busiest gains."""
    owner, loads = owner.copy(), loads.copy()
    swap_items(load, owner, loads, load_max, load_min)
    if loads.max() > load_max:
        wide, wide_loads = owner.copy(), loads.copy()
        swap_items(load, wide, wide_loads, float(loads.mean()), load_min)
        if wide_loads.max() < loads.max() * (1.0 - GAIN_SHARE_MIN):
            return wide, wide_loads
    return owner, loads


@kernel
def best_swap(load: Floats, gives: Ints, takes: Ints, gap: float) -> tuple[float, int, int]:
    """The exchange that leaves the smallest gap of two loads: its gain, the item that goes, the item that comes or -1.
    Both lists are by descending load: a lighter item that goes has a lighter best partner."""
    best, went, came, n = 0.0, -1, -1, 0
    for a in gives:
        while n < len(takes) and load[a] - load[takes[n]] < gap / 2.0:
            n += 1
        for near in (n - 1, n):  # one that leaves more than half of the gap, one that leaves less
            if near >= 0:
                b = takes[near] if near < len(takes) else -1
                gain = gap - abs(gap - 2.0 * (load[a] - (load[b] if b >= 0 else 0.0)))
                if gain > best:
                    best, went, came = gain, a, b
    return best, went, came


@kernel
def swap_items(load: Floats, owner: Ints, loads: Floats, load_max: float, load_min: float) -> int:
    """The number of exchanges; `owner` and `loads` are updated in place. Ends when each executor is within its bounds,
    or when no exchange brings one that is not closer to another."""
    executors = len(loads)
    pool = _heaviest(load, owner, executors)
    weight, at = load[pool], owner[pool]
    lists = [_of_executor(weight, at, d) for d in range(executors)]
    steps = 0
    while steps < STEPS_MAX:
        best, went, came, giver, taker = GAIN_SHARE_MIN * loads.max(), -1, -1, -1, -1
        by_load = np.argsort(loads, kind="mergesort")
        for i in by_load[-PARTNERS_MAX:]:
            for j in by_load[:PARTNERS_MAX]:
                if loads[j] < loads[i] and (loads[i] > load_max or loads[j] < load_min):
                    gain, a, b = best_swap(weight, lists[i], lists[j], loads[i] - loads[j])
                    if gain > best:
                        best, went, came, giver, taker = gain, a, b, i, j
        if went < 0:
            break
        shift = weight[went]
        at[went] = taker
        if came >= 0:
            shift -= weight[came]
            at[came] = giver
        loads[giver] -= shift
        loads[taker] += shift
        lists[giver], lists[taker] = _of_executor(weight, at, giver), _of_executor(weight, at, taker)
        steps += 1
    owner[pool] = at
    return steps


@kernel
def _heaviest(load: Floats, owner: Ints, executors: int) -> Ints:
    """The items that take part, executor by executor; of equal ones the first."""
    found, filled = np.empty(min(len(load), executors * CANDIDATES_MAX), np.int64), 0
    for d in range(executors):
        here = np.flatnonzero((owner == d) & (load > 0.0))
        if len(here) > CANDIDATES_MAX:
            least = np.partition(load[here], len(here) - CANDIDATES_MAX)[len(here) - CANDIDATES_MAX]
            here = here[load[here] >= least]
            here = here[np.argsort(-load[here], kind="mergesort")][:CANDIDATES_MAX]
        found[filled : filled + len(here)] = here
        filled += len(here)
    return found[:filled]


@kernel
def _of_executor(load: Floats, owner: Ints, executor: int) -> Ints:
    """The items of an executor by descending load; of equal ones the first comes first."""
    here = np.flatnonzero(owner == executor)
    return here[np.argsort(-load[here], kind="mergesort")]
