"""The two ends of the scale: plain hash, which never plans, and Ideal, which deals tuples evenly and forgets keys.

Ideal cannot keep state by key; it is the line that nothing can beat. Mixed §V, Figures 7 and 13.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from geoswarm.control.keyed.problem import Case, KeyStats, Limits, Rebalance, steady
from geoswarm.core.keys.plan import KeyPlan


@dataclass(frozen=True)
class Hash:
    """Leaves every key where its hash says."""

    limits: Limits = field(default_factory=Limits)
    name: str = "hash"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        return steady(plan, stats, case, self.limits, case.loads_now)


@dataclass(frozen=True)
class Ideal:
    """Deals tuples evenly and forgets their keys: the line that no planner can beat."""

    only_compares: ClassVar[bool] = True
    limits: Limits = field(default_factory=Limits)
    name: str = "ideal"

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance:
        case = Case.of(plan, stats)
        return steady(plan, stats, case, self.limits, np.full(case.executors, case.mean))
