"""The Dynamic Distributor: many fixed partitions, moved whole by their measured load; and a variant that tunes itself.

No partition is ever cut: each executor has several from the start. The load of a partition is the CPU time of all that
follows the exchange (load-based), or its number of events (data-based). Distributor §3, Algorithm 1, Table 1.

    LDC of an executor = (its load - mean) / mean        MLDC = the largest of them

The paper's four conditions have parameters that "need to be manually fine-tuned for each use case" (§3.2).
`DistributorAuto` has none of these: it plans from earlier rounds, and tests that plan on the round that has just ended,
which was not used for it. The plan must improve that round by more than the error of its own prediction.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from geoswarm.control.balance.static import Static
from geoswarm.control.layout.level import level
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.strategy import Decision, RoundReport, Sample
from geoswarm.control.swap import GAIN_SHARE_MIN, exchange
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.change import Change, Move
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.flow.observe import Load
from geoswarm.parameters import check_arguments

PARTITIONS_PER_EXECUTOR = 16
PartitionsPerExecutor = Annotated[int, Field(ge=1, description="partitions of each executor at the start")]
FADED = 0.5
"""The weight of a round's load in the next: a redistribution should follow the present load."""
MOVES_MAX = 10_000
"""The most greedy moves of one redistribution; each moves a whole partition and lowers the maximum."""


class Distributor:
    """Moves whole partitions by the CPU time that they took, if the paper's four conditions hold."""

    name = "distributor"
    needs_stats = False
    needs_sample = False

    @check_arguments
    def __init__(
        self,
        *,
        threshold: Annotated[float, Field(ge=0, description="MLDC above which a redistribution is considered")] = 0.5,
        events_min: Annotated[int, Field(ge=0, description="M: events before the first redistribution")] = 1000,
        periods_min: Annotated[int, Field(ge=0, description="N: rounds between two redistributions")] = 3,
        gain_min: Annotated[float, Field(ge=0, description="miMLDC: what MLDC must fall by")] = 0.3,
        partitions_per_executor: PartitionsPerExecutor = PARTITIONS_PER_EXECUTOR,
    ) -> None:
        """D is the engine's round (`round_s`, 10 s in the paper)."""
        self.threshold, self.events_min, self.periods_min, self.gain_min = threshold, events_min, periods_min, gain_min
        self.partitions_per_executor = partitions_per_executor
        self._events, self._last_round = 0, -periods_min
        self._loads: dict[int, float] = {}

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        """Partitions with equally many points of the sample, or equal shares of the map; neighbours share an
        executor."""
        if sample is not None and len(sample.points):
            return level(grid, executors, sample.points, partitions_per_executor=self.partitions_per_executor)
        drawn = uniform(grid, min(executors * self.partitions_per_executor, grid.cells))
        share = max(1, -(-len(drawn.partitions) // executors))
        owned = tuple(replace(p, executor=i // share) for i, p in enumerate(drawn.partitions))
        return replace(drawn, executors=executors, partitions=owned)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        self._events += sum(load.events for load in report.load.partitions.values())
        now = self._of_round(report)
        self._loads = {p.id: FADED * self._loads.get(p.id, 0.0) + now.get(p.id, 0.0) for p in plan.partitions}
        loads = _in_order(plan, self._loads)
        current = _owners(plan)
        owners, moves = redistribute(current, loads, plan.executors)
        before, after = mldc(current, loads, plan.executors), mldc(owners, loads, plan.executors)
        why = {"mldc": before, "mldc_new": after, "moves": moves, "events": self._events}
        waits = {
            f"MLDC is at most {self.threshold}": before <= self.threshold,
            f"fewer than {self.events_min} events so far": self._events < self.events_min,
            f"redistributed less than {self.periods_min} rounds ago": report.round - self._last_round
            < self.periods_min,
            f"it would improve by {self.gain_min} or less": before - after <= self.gain_min,
        }
        for reason, holds in waits.items():
            if holds:
                return Decision((), {"decision": f"wait: {reason}", **why})
        self._last_round = report.round
        return Decision(_moves(plan, owners), {"decision": "redistribute", **why})

    def estimate(self, plan: Plan, report: RoundReport) -> float:
        """The load of the costliest executor under `plan`."""
        return float(_by_executor(_owners(plan), _in_order(plan, self._loads), plan.executors).max())

    def _of_round(self, report: RoundReport) -> dict[int, float]:
        return {i: self.measure(load) for i, load in report.load.partitions.items()}

    @staticmethod
    def measure(load: Load) -> float:
        return float(load.cpu_us)


class DistributorData(Distributor):
    """Moves whole partitions by the number of their events, as SP-Partitioner does."""

    name = "distributor-data"

    @staticmethod
    def measure(load: Load) -> float:
        return float(load.events)


class DistributorStatic(Static):
    """Begins with the partitions of `distributor`, and never moves one."""

    name = "distributor-static"

    @check_arguments
    def __init__(self, *, partitions_per_executor: PartitionsPerExecutor = PARTITIONS_PER_EXECUTOR) -> None:
        self.partitions_per_executor = partitions_per_executor

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        return Distributor(partitions_per_executor=self.partitions_per_executor).first_plan(grid, executors, sample)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        loads = _in_order(plan, {i: float(load.cpu_us) for i, load in report.load.partitions.items()})
        return Decision((), {"decision": "never changes", "mldc": mldc(_owners(plan), loads, plan.executors)})


class DistributorAuto(Distributor):
    """Finds by itself when to redistribute: when it would have helped in a round that it has not seen."""

    name = "distributor-auto"

    @check_arguments
    def __init__(self, *, partitions_per_executor: PartitionsPerExecutor = PARTITIONS_PER_EXECUTOR) -> None:
        super().__init__(partitions_per_executor=partitions_per_executor)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        now = self._of_round(report)
        earlier, seen = _in_order(plan, self._loads), _in_order(plan, now)
        owners, moves = redistribute(_owners(plan), earlier, plan.executors)
        before, after = mldc(_owners(plan), seen, plan.executors), mldc(owners, seen, plan.executors)
        self._loads = {p.id: FADED * self._loads.get(p.id, 0.0) + now.get(p.id, 0.0) for p in plan.partitions}
        why = {"mldc": before, "mldc_new": after, "moves": moves}
        mistaken = max(0.0, after - mldc(owners, earlier, plan.executors))
        if not moves or before - after <= mistaken:
            return Decision((), {"decision": "wait: it would not have helped in this round", **why})
        return Decision(_moves(plan, owners), {"decision": "redistribute", **why})


class DistributorAtOnce(Distributor):
    """Moves whole partitions as soon as that helps; what auto is where workers keep no index."""

    name = "distributor-at-once"
    draws_from_sample = True

    @check_arguments
    def __init__(self, *, partitions_per_executor: PartitionsPerExecutor = PARTITIONS_PER_EXECUTOR) -> None:
        super().__init__(
            threshold=0.08,
            events_min=0,
            periods_min=0,
            gain_min=0.02,
            partitions_per_executor=partitions_per_executor,
        )

    def keeps(self, plan: Plan) -> bool:
        """What has as many partitions as it would have, each with one executor."""
        enough = min(plan.executors * self.partitions_per_executor, plan.grid.cells)
        return not plan.siblings and not plan.is_spread and len(plan.partitions) >= enough


def mldc(owners: Ints, loads: Floats, executors: int) -> float:
    """The maximum load distance coefficient; 0 without any load."""
    by_executor = _by_executor(owners, loads, executors)
    mean = float(by_executor.mean())
    return float(by_executor.max()) / mean - 1.0 if mean else 0.0


def redistribute(owners: Ints, loads: Floats, executors: int) -> tuple[Ints, int]:
    """The owner of each partition, and how many partitions change owner. Greedy, with few migrations; then partitions
    are exchanged for as long as the maximum falls, which the paper does not do."""
    before, owners = owners, move_greedily(owners, loads, executors)
    by_executor, highest = _by_executor(owners, loads, executors), np.inf
    while by_executor.max() < highest * (1.0 - GAIN_SHARE_MIN):
        highest = float(by_executor.max())
        owners, by_executor = exchange(loads, owners, by_executor, load_max=highest * (1.0 - GAIN_SHARE_MIN))
    return owners, int((owners != before).sum())


def move_greedily(owners: Ints, loads: Floats, executors: int) -> Ints:
    """The owner of each partition: as long as the maximum falls, the costliest executor gives the cheapest the
    partition that leaves the two closest."""
    owners = np.array(owners, np.int64)
    by_executor = _by_executor(owners, loads, executors)
    for _ in range(MOVES_MAX):
        high, low = int(np.argmax(by_executor)), int(np.argmin(by_executor))
        gap = float(by_executor[high] - by_executor[low])
        held = np.flatnonzero((owners == high) & (loads > 0.0) & (loads < gap))
        if not len(held):
            break
        chosen = held[np.argmin(np.abs(loads[held] - gap / 2))]
        owners[chosen] = low
        by_executor[high] -= loads[chosen]
        by_executor[low] += loads[chosen]
    return owners


def _moves(plan: Plan, owners: Ints) -> list[Change]:
    pairs = zip(plan.partitions, owners.tolist(), strict=True)
    return [Move(p.id, owner) for p, owner in pairs if p.executor != owner]


def _owners(plan: Plan) -> Ints:
    return plan.executor_of_slot.astype(np.int64)


def _in_order(plan: Plan, loads: Mapping[int, float]) -> Floats:
    return np.array([loads.get(p.id, 0.0) for p in plan.partitions])


def _by_executor(owners: Ints, loads: Floats, executors: int) -> Floats:
    return np.bincount(owners, weights=loads, minlength=executors).astype(np.float64)
