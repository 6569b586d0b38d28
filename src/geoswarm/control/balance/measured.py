"""SWARM's protocol by measured time: the costliest executor hands over to the cheapest, until they are about level.

`swarm.py` is the paper's version (SWARM §4.3): N·Q·R decides, for one pair of executors a round, and only if
throughput asks for it. Three things differ here, because the engine differs. Cost is the CPU time that a partition
took, since our matcher's time depends on the queries at an event's own cell, not on all of its partition. Several pairs
are levelled in a round, without waiting for throughput to fall, since a move copies nothing. And nothing changes while
the costliest is near the mean. TrioStat still finds where to cut: a partition's time is divided like N·Q of its halves.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field

from geoswarm.control.balance.subset import find_subset, largest_first
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.strategy import Decision, RoundReport, Sample
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.change import Change, Move, Split
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Axis
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.redraw import redraw_stats
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.parameters import check_arguments

AXES: tuple[Axis, Axis] = ("row", "column")


class SwarmMeasured:
    """Hands work from the costliest executors to the cheapest, by measured time, until they are about level."""

    name = "swarm-measured"
    needs_stats = True
    needs_sample = False

    @check_arguments
    def __init__(
        self,
        *,
        pairs_max: Annotated[int, Field(ge=1, description="executors that hand over in one round")] = 4,
        tolerated: Annotated[
            float, Field(ge=1, description="of the mean, what the costliest executor may take before anything is done")
        ] = 1.15,
        subset_share_min: Annotated[
            float,
            Field(ge=0, le=1, description="of what should move, the share that whole partitions must; else a cut"),
        ] = 0.3,
    ) -> None:
        self.pairs_max, self.tolerated, self.subset_share_min = pairs_max, tolerated, subset_share_min

    def keeps(self, plan: Plan) -> bool:
        return not plan.siblings and not plan.is_spread

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        return uniform(grid, executors)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        times = _times_us(plan, report)
        by_executor = _by_executor(plan, times)
        order = np.argsort(by_executor, kind="stable").tolist()
        mean = float(by_executor.mean())
        changes: list[Change] = []
        for low, high in zip(order[: self.pairs_max], order[::-1][: self.pairs_max], strict=True):
            if by_executor[high] <= self.tolerated * mean or by_executor[high] <= by_executor[low]:
                break
            held = {p.id: times[p.id] for p in plan.partitions if p.executor == high}
            changes += self._hand_over(held, report, (high, low), (float(by_executor[high]), float(by_executor[low])))
        why = {"time_us_max": float(by_executor.max()), "time_us_mean": mean}
        return Decision(changes, why | {"decision": "hand over" if changes else "wait"})

    def estimate(self, plan: Plan, report: RoundReport) -> float:
        """Microseconds that the costliest executor would have taken under `plan`."""
        return float(_by_executor(plan, _times_us(plan, report)).max())

    def _hand_over(
        self, held: Mapping[int, float], report: RoundReport, executors: tuple[int, int], times: tuple[float, float]
    ) -> list[Change]:
        (high, low), (time_high, time_low) = executors, times
        subset = find_subset(held, time_high, time_low)
        if subset.partitions and subset.cost >= self.subset_share_min * subset.cost_max:
            return [Move(i, low) for i in subset.partitions]
        for partition, time_us in largest_first(held):
            cut = _best_split(report.stats[partition], time_us, time_high - time_low)
            if cut is not None:
                axis, after, moves_first = cut
                return [Split(partition, axis, after, (low, high) if moves_first else (high, low))]
        return []


def _best_split(stat: TrioStat, time_us: float, gap: float) -> tuple[Axis, int, bool] | None:
    """The cut whose one side, when moved, leaves the two executors closest; None if no cut brings them closer."""
    best, found = gap, None
    for axis in AXES:
        first, second = stat.halves(axis)
        weight, other = first.n * first.q, second.n * second.q
        share = np.divide(weight, weight + other, out=np.zeros_like(weight), where=weight + other > 0)
        for moves_first, moved in ((True, share * time_us), (False, (1 - share) * time_us)):
            if not len(moved):
                continue
            left = np.abs(gap - 2 * moved)
            at = int(np.argmin(left))
            if left[at] < best:
                begins = stat.box.row0 if axis == "row" else stat.box.col0
                best, found = float(left[at]), (axis, begins + at, moves_first)
    return found


def _times_us(plan: Plan, report: RoundReport) -> dict[int, float]:
    """The time of each partition. A proposed one has its share of the partitions that it was cut or joined from."""
    known = {i: float(load.cpu_us) for i, load in report.load.partitions.items()}
    times = {p.id: known.get(p.id, 0.0) for p in plan.partitions if p.id in report.stats}
    if len(times) == len(plan.partitions):
        return times
    drawn = redraw_stats(report.stats, plan)
    fresh = [p for p in plan.partitions if p.id not in times]
    weights = {p.id: drawn[p.id].trio.n * drawn[p.id].trio.q for p in fresh}
    for p in fresh:
        for parent in p.parent:
            family = sum(weights[s.id] for s in fresh if parent in s.parent)
            share = weights[p.id] / family if family else 1.0 / sum(parent in s.parent for s in fresh)
            times[p.id] = times.get(p.id, 0.0) + known.get(parent, 0.0) * (share if len(p.parent) == 1 else 1.0)
    return times


def _by_executor(plan: Plan, times: Mapping[int, float]) -> Floats:
    return plan.by_executor([times[p.id] for p in plan.partitions])
