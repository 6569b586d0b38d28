"""The link to the control plane: the counts of each batch go to the loop, and the loop may answer with a plan.

`pipeline.py` runs the data plane. The journey of a plan begins and ends here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from geoswarm.config import Tuning
from geoswarm.control.balance.static import OverPartitioned
from geoswarm.control.coordinator import RoundOutcome
from geoswarm.control.layout.dealt import is_dealt
from geoswarm.control.loop import ControlLoop
from geoswarm.control.strategy import Strategy, WatchedRound
from geoswarm.control.task_costs import CostRates, TaskCosts, divide_among_executors
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.plan import Plan
from geoswarm.errors import SettingsError
from geoswarm.flow.observe import LoadReport, TaskName
from geoswarm.guard.sensing import triggers
from geoswarm.model import TEXT
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.manifest import Manifest


class Steering:
    def __init__(self, checkpoint: Checkpoint, tuning: Tuning, strategy: Strategy) -> None:
        self._checkpoint = checkpoint
        checkpoint.take_churn()  # the loop counts live subscriptions by itself
        _check_pipeline(tuning, strategy, checkpoint.plan)
        self._loop = ControlLoop(strategy, checkpoint.plan, tuning.round_s, checkpoint)
        self._costs = TaskCosts()
        self._work_us: dict[int, float] = {}  # by partition, since the round began

    @property
    def needs_stats(self) -> bool:
        return self._loop.needs_stats

    @property
    def needs_cells(self) -> bool:
        return self._loop.needs_cells

    @property
    def plans_batches(self) -> bool:
        return self._loop.plans_batches

    def scale(self, executors: int) -> None:
        """Between two batches, put a number of executors in force."""
        self._adopt(self._loop.scale(executors))

    def plan_batch(self, batch_id: int, events_of_cell: Ints) -> Plan:
        outcome = self._loop.plan_batch(batch_id, events_of_cell)
        self._checkpoint.journal.append(outcome.entry)
        return self._loop.plan

    @property
    def draws_from_batch(self) -> bool:
        return self._loop.draws_from_batch

    def plan_from_batch(self, batch_id: int, sampled: pa.Table) -> Plan:
        points = np.stack([sampled[side].to_numpy() for side in ("x", "y")], axis=1)
        outcome = self._loop.plan_from_batch(batch_id, points, sampled[TEXT.name].combine_chunks())
        self._checkpoint.journal.append(outcome.entry)
        return self._loop.plan

    @property
    def rates(self) -> CostRates:
        """What tasks spend beyond matching, as fitted last."""
        return self._costs.rates

    def charge(
        self,
        stages: Mapping[str, Sequence[LoadReport]],
        runner_cpu_us: Callable[[Collection[TaskName]], Mapping[TaskName, int]],
    ) -> LoadReport:
        """The sum of all reports, with what match tasks spent as a whole in the loads of their partitions."""
        tasks = stages.get("match", ())
        spent = runner_cpu_us({task.task for task in tasks if task.task is not None})
        charged = self._costs.charge(tasks, divide_among_executors(tasks, spent))
        others = (task for stage, reports in stages.items() if stage != "match" for task in reports)
        return sum(chain(charged, others), LoadReport())

    def steer(self, report: LoadReport, manifest: Manifest) -> None:
        churn = self._checkpoint.take_churn()
        if manifest.plan_epoch != self._loop.plan.epoch:
            report = LoadReport()  # a replay of a batch from before the plan: its partitions are gone
        before = self._loop.plan
        for partition, load in report.partitions.items():
            self._work_us[partition] = self._work_us.get(partition, 0.0) + load.cpu_us
        outcome = self._loop.add_batch(churn.came, churn.went, report, manifest.now_us / 1e6)
        if outcome is not None:
            self._adopt(outcome)
            if self._checkpoint.guarding is not None:
                self._sense(before, outcome)
            self._work_us = {}

    def _sense(self, before: Plan, outcome: RoundOutcome) -> None:
        """Shows Guard the places that made the plan change, or would have, if events were not dealt out."""
        watched = outcome.watched
        if watched is None and outcome.plan is not None and not is_dealt(before) and not is_dealt(outcome.plan):
            watched = WatchedRound(before, outcome.entry.changes, self._work_us)
        if watched is not None:
            hot = set(triggers(*watched))
            self._checkpoint.sense(p for p in watched.plan.partitions if p.id in hot)

    def _adopt(self, outcome: RoundOutcome) -> None:
        if outcome.plan is not None:
            self._checkpoint.adopt_plan(outcome.plan)
        self._checkpoint.journal.append(outcome.entry)


def _check_pipeline(tuning: Tuning, strategy: Strategy, plan: Plan) -> None:
    """Refuse settings that cannot work together, before the stream starts."""
    if tuning.executors is not None and isinstance(strategy, OverPartitioned):
        raise SettingsError(
            f"strategy {strategy.name} makes several tasks for each executor, so their number cannot follow the load: "
            "leave the range of executors out, or use another strategy, such as auto"
        )
    if tuning.keeps_index:
        return
    named = f"pipeline {tuning.pipeline} with join_at {tuning.join_at}"
    divides = bool(plan.siblings) and plan.drawn_by == strategy.name  # another strategy draws another plan
    if divides or strategy.needs_sample:
        raise SettingsError(
            f"strategy {strategy.name} divides the words of a place among executors, which {named} cannot do: "
            "use pipeline spis with join_at static, or a strategy that divides the map only, such as distributor"
        )
    if tuning.pipeline in ("rihps", "risps") and strategy.needs_stats:
        raise SettingsError(
            f"strategy {strategy.name} balances by where events fall, but with pipeline {tuning.pipeline} they go to "
            "where subscriptions are: use one that balances by what was measured, such as distributor"
        )
