"""SWARM: in each round in which it pays, the costliest executor hands work to the cheapest.

This file decides when to act and for which executors; `subset.py` and `split.py` find the work, `merge.py` tidies up.
SWARM §4.3.1 (Figures 9 and 10), thesis §4.3.

The decision machine has five stages. More arrivals than in the round before move the pointer right, else left. At the
left end the decision, to rebalance or to wait, flips, and the pointer starts again in the middle:

    flip  <-  left  <-  start  ->  right  ->  far right
     -2        -1         0          1           2

It also flips when the same decision was taken β times. Micro-batches change nothing else: a round's arrivals R(S) are
still what the system was able to take in.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from geoswarm.control.balance.merge import find_merges
from geoswarm.control.balance.split import find_split
from geoswarm.control.balance.subset import find_subset
from geoswarm.control.estimate import by_cost, executor_costs
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.strategy import Decision, RoundReport, Sample, Why
from geoswarm.core.space.change import Change, Move, Split
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.parameters import check_arguments

FLIP, START, FAR_RIGHT = -2, 0, 2


@dataclass
class DecisionMachine:
    beta: int = 20
    """β: how often the same decision is taken before the other is tried."""
    stage: int = START
    rebalances: bool = False
    same_rounds: int = 0
    arrivals_before: float = 0.0

    def step(self, arrivals: float) -> bool:
        """Whether to rebalance this round, in which so many points and queries arrived."""
        self.stage = min(self.stage + 1, FAR_RIGHT) if arrivals > self.arrivals_before else self.stage - 1
        self.arrivals_before = arrivals
        if self.same_rounds >= self.beta:
            self.stage = FLIP
        if self.stage == FLIP:
            self.rebalances, self.stage, self.same_rounds = not self.rebalances, START, 0
        self.same_rounds += 1
        return self.rebalances


class Swarm:
    """Hands work from the costliest executor to the cheapest, by N·Q·R, in rounds in which throughput asks for it."""

    name = "swarm"
    needs_stats = True
    needs_sample = False
    estimate = staticmethod(by_cost)

    @check_arguments
    def __init__(
        self,
        *,
        beta: Annotated[int, Field(ge=1, description="β: rounds of the same decision before the other is tried")] = 20,
        merge_every_rounds: Annotated[
            int, Field(ge=1, description="rounds between two merges; 1200 of 15 s are the paper's five hours")
        ] = 1200,
        subset_share_min: Annotated[
            float,
            Field(ge=0, le=1, description="of what could move, the share that a subset must; else a cut is tried"),
        ] = 0.0,
    ) -> None:
        """The defaults are the paper's, which takes any subset."""
        self.machine = DecisionMachine(beta)
        self.merge_every_rounds = merge_every_rounds
        self.subset_share_min = subset_share_min
        self.rounds = 0

    def keeps(self, plan: Plan) -> bool:
        return not plan.siblings and not plan.is_spread

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        """Equal shares of the map (§4.1.1): no knowledge of the stream is needed."""
        return uniform(grid, executors)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        self.rounds += 1
        arrivals = sum(report.stats[p.id].trio.r for p in plan.partitions)
        acts = self.machine.step(arrivals)
        why: Why = {"arrivals": arrivals, "stage": self.machine.stage, "same_rounds": self.machine.same_rounds}
        if self.rounds % self.merge_every_rounds == 0:
            merges = find_merges(plan, report.stats)
            why |= {"merges": len(merges.changes), "merges_left_out": merges.left_out}
            if merges.changes:
                return Decision(merges.changes, why | {"decision": "merge"})
        if not acts:
            return Decision((), why | {"decision": "wait"})
        return self._relieve_costliest(plan, report, why)

    def _relieve_costliest(self, plan: Plan, report: RoundReport, why: Why) -> Decision:
        """Moves work from the costliest executor that can give some to the cheapest."""
        costs = executor_costs(plan, report.stats).tolist()
        low = min(range(len(costs)), key=costs.__getitem__)
        for tried, high in enumerate(sorted(range(len(costs)), key=lambda m: -costs[m])):
            if costs[high] <= costs[low]:
                break
            held = {p.id: report.stats[p.id] for p in plan.partitions if p.executor == high}
            changes, numbers = self._hand_over(held, (high, low), costs[high], costs[low])
            if changes:
                both: Why = {"from": high, "to": low, "cost_high": costs[high], "cost_low": costs[low]}
                return Decision(changes, why | both | numbers | {"executors_without": tried})
        nothing: Why = {"decision": "nothing to hand over", "cost_high": max(costs), "cost_low": costs[low]}
        return Decision((), why | nothing)

    def _hand_over(
        self, held: dict[int, TrioStat], executors: tuple[int, int], cost_high: float, cost_low: float
    ) -> tuple[list[Change], Why]:
        """Changes that relieve the first executor, which holds these partitions, and the numbers behind them."""
        high, low = executors
        subset = find_subset({i: s.cost for i, s in held.items()}, cost_high, cost_low)
        if subset.partitions and subset.cost >= self.subset_share_min * subset.cost_max:
            moves: list[Change] = [Move(i, low) for i in subset.partitions]
            return moves, {"decision": "move", "cost_moved": subset.cost, "cost_moved_max": subset.cost_max}
        cut = find_split(held, cost_high, cost_low)
        if cut is None:
            return [], {}
        numbers: Why = {
            "decision": "split",
            "partition": cut.partition,
            "cost_partition": held[cut.partition].cost,
            "cost_moved": cut.cost_moved,
            "cost_kept": cut.cost_kept,
            "cost_diff": cut.cost_diff,
            "cost_moved_max": subset.cost_max,
        }
        owners = (low, high) if cut.moves_first else (high, low)
        return [Split(cut.partition, cut.axis, cut.after, owners)], numbers
