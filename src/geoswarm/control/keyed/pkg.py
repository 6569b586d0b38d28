"""Partial key grouping, a rival that splits keys: each tuple goes to the less loaded of the two executors of its key.

Nothing is planned and nothing migrates; every key's state lies on up to two executors, so results must be merged, and
operators whose results cannot be merged (a join) cannot run. It is also the remedy for keys that no plan can balance
(`Rebalance.overweight`). Mixed §V-"Baseline Approaches"; Nasir et al., ICDE 2015.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from geoswarm.control.keyed.problem import Case, KeyStats, Limits, Rebalance, keep_plan
from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.keys.hashing import KeyOwners
from geoswarm.core.keys.plan import KeyPlan

DEALS_PER_KEY = 16
"""Parts that a key's load is dealt in, all keys in turn, as in a stream of tuples: fine enough for the sums."""


@kernel
def deal_tuples(first: KeyOwners, second: KeyOwners, loads: Floats) -> KeyOwners:
    """The executor of each tuple, in order; `loads`, the tuples so far per executor, is updated in place."""
    chosen = np.empty(len(first), np.int32)
    for i in range(len(first)):
        chosen[i] = first[i] if loads[first[i]] <= loads[second[i]] else second[i]
        loads[chosen[i]] += 1.0
    return chosen


@kernel
def _deal(load: Floats, first: KeyOwners, second: KeyOwners, loads: Floats) -> int:
    """The number of keys that went to both executors; `loads` is updated in place."""
    ways = np.zeros(len(load), np.int8)
    for _ in range(DEALS_PER_KEY):
        for i in range(len(load)):
            to_first = loads[first[i]] <= loads[second[i]]
            loads[first[i] if to_first else second[i]] += load[i] / DEALS_PER_KEY
            ways[i] |= 1 if to_first else 2
    both = 0
    for i in range(len(load)):
        both += ways[i] == 3 and first[i] != second[i] and load[i] > 0.0
    return both


def choices(plan: KeyPlan, keys: Ints) -> tuple[KeyOwners, KeyOwners]:
    """The two executors of each key, by two hashes."""
    return plan.homes(keys), plan.homes(~keys)


@dataclass(frozen=True)
class PKG:
    """Sends each tuple to the less loaded of the two executors of its key (partial key grouping)."""

    only_compares: ClassVar[bool] = True
    limits: Limits = field(default_factory=Limits)
    name: str = "pkg"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        positions = np.searchsorted(plan.executors, np.stack(choices(plan, stats.keys))).astype(np.int32)
        loads = np.zeros(case.executors) if case.fixed is None else case.fixed.copy()
        split = _deal(case.load, positions[0], positions[1], loads)
        return keep_plan(plan, stats, case, self.limits, loads, split_keys=int(split))
