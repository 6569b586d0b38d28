"""Simple: deals all keys from scratch, heaviest first, each to the executor with the least load so far.

It balances as well as any planner here and moves almost everything: the reference of the paper's bounds, not a planner
to run. Mixed Appendix, Algorithm 5 (its inner loop would assign a key to every executor: the first is meant).
"""

from dataclasses import dataclass, field

import numpy as np

from geoswarm.control.keyed.problem import Case, KeyStats, Limits, Rebalance, answer
from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.keys.hashing import KeyOwners
from geoswarm.core.keys.plan import KeyPlan


@kernel
def _deal(load: Floats, order: Ints, loads: Floats) -> KeyOwners:
    owner = np.empty(len(load), np.int32)
    for i in order:
        owner[i] = np.argmin(loads)
        loads[owner[i]] += load[i]
    return owner


def deal_keys(load: Floats, executors: int, fixed: Floats | None = None) -> KeyOwners:
    """The executor of each key, beside loads that are fixed. Without these, at most (4/3 - 1/(3 N_D)) of the best
    possible maximum (Theorem 1, Lemma 3)."""
    loads = np.zeros(executors) if fixed is None else fixed.copy()
    return _deal(load, np.argsort(-load, kind="stable"), loads)


@dataclass(frozen=True)
class Simple:
    """Deals all keys out from scratch, the heaviest first, each to the executor with the least load so far."""

    limits: Limits = field(default_factory=Limits)
    name: str = "simple"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        owner = deal_keys(case.load, case.executors, case.fixed) if case.mean else case.owner
        return answer(plan, stats, case, self.limits, owner)
