"""The cost of each executor by its partitions' statistics, under the plan in force or a proposed one.

Nothing is measured here: CPU time is in the `LoadReport`. SWARM §3, Eqn. 7: costs are the numerators N·Q·R, since R(S)
divides them all alike.
"""

from collections.abc import Mapping

from geoswarm.control.strategy import RoundReport
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.redraw import redraw_stats
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.errors import InputError

COST_ROUNDING = 1e-9
"""Costs that differ by a smaller share than this are equal: they were summed in another order."""


def executor_costs(plan: Plan, stats: Mapping[int, TrioStat]) -> Floats:
    """C(m) of each executor m: 0 if it owns nothing."""
    missing = [p.id for p in plan.partitions if p.id not in stats]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(plan.partitions)} partitions of plan {plan.epoch} have no statistics, such as "
            f"{missing[0]}: give each an empty one, or `redraw.redraw_stats` ones"
        )
    return plan.by_executor([stats[p.id].cost for p in plan.partitions])


def cost_max(plan: Plan, stats: Mapping[int, TrioStat]) -> float:
    """The cost of the costliest executor under `plan`, which may differ from the plan of the statistics."""
    return float(executor_costs(plan, redraw_stats(stats, plan)).max())


def by_cost(plan: Plan, report: RoundReport) -> float:
    """The cost of the costliest executor under a plan, by N·Q·R: an estimate that strategies share."""
    return cost_max(plan, report.stats)


def is_worse(after: float, before: float) -> bool:
    return after > before * (1 + COST_ROUNDING)
