"""What each executor costs by its partitions' statistics, under this plan or under one that is only proposed.

It measures nothing: CPU time is in the `LoadReport`. SWARM §3, Eqn. 7: costs are the numerators N·Q·R, since R(S)
divides them all alike.
"""

from collections.abc import Mapping

import numpy as np

from geoswarm.control.strategy import RoundReport
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.partition import ALL_EXECUTORS
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.redraw import redraw_stats
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.errors import InputError

ROUNDING = 1e-9
"""Relative; costs that differ by less are the same cost, summed in another order."""


def executor_costs(plan: Plan, stats: Mapping[int, TrioStat]) -> Floats:
    """Entry m is C(m); executors that own nothing cost nothing, and what is everybody's costs all the same."""
    missing = [p.id for p in plan.partitions if p.id not in stats]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(plan.partitions)} partitions of plan {plan.epoch} have no statistics, such as "
            f"{missing[0]}: give each an empty one, or `redraw.redraw_stats` ones"
        )
    costs = np.array([stats[p.id].cost for p in plan.partitions])
    shared = plan.executor_of_slot == ALL_EXECUTORS
    owned = np.bincount(plan.executor_of_slot[~shared], weights=costs[~shared], minlength=plan.executors)
    every: Floats = owned + costs[shared].sum() / plan.executors
    return every


def cost_max(plan: Plan, stats: Mapping[int, TrioStat]) -> float:
    """Of the costliest executor under `plan`, which may be another than the one the statistics were taken under."""
    return float(executor_costs(plan, redraw_stats(stats, plan)).max())


def by_cost(plan: Plan, report: RoundReport) -> float:
    """What the costliest executor would cost under a plan, by N·Q·R."""
    return cost_max(plan, report.stats)


def is_worse(after: float, before: float) -> bool:
    return after > before * (1 + ROUNDING)
