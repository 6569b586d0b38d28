"""The two extremes: plain hash, which never plans, and Ideal, which deals tuples evenly whatever their keys are.

Ideal cannot keep state by key; it is the bound that no planner can beat. Mixed §V, Figures 7 and 13.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from geoswarm.control.keyed.problem import Case, KeyStats, Limits, Rebalance, keep_plan
from geoswarm.core.keys.plan import KeyPlan


@dataclass(frozen=True)
class Hash:
    """Leaves every key at the executor of its hash."""

    limits: Limits = field(default_factory=Limits)
    name: str = "hash"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        return keep_plan(plan, stats, case, self.limits, case.loads_now)


@dataclass(frozen=True)
class Ideal:
    """Deals tuples evenly whatever their keys are: the bound that no planner can beat."""

    only_compares: ClassVar[bool] = True
    limits: Limits = field(default_factory=Limits)
    name: str = "ideal"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        return keep_plan(plan, stats, case, self.limits, np.full(case.executors, case.mean))
