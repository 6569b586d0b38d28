"""A keyed operator batch by batch, in the hands of a test: the stages and files of the local engine, without its loop.

Who draws the plans, and who crashes, is the test's business.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.core.keys.plan import KeyPlan, parts_of
from geoswarm.flow.keyed.key_report import KeyedReport, KeyLoads
from geoswarm.flow.keyed.operator import Moment, Operator, no_clock
from geoswarm.flow.keyed.route import feed_schema
from geoswarm.flow.keyed.state import FileChanges, IntervalClock
from geoswarm.flow.keyed.work import KeyedTask
from geoswarm.run.keyed import apply_operator
from geoswarm.store.keyed_state import KeyedState
from geoswarm.store.storage import Storage
from stepped import rows_of


class SteppedKeyed:
    def __init__(
        self,
        folder: Path,
        operator: Operator,
        executors: int = 3,
        cpu_s: Callable[[], float] = no_clock,
        **reporting: Any,
    ) -> None:
        """`reporting`: fields of `KeyedTask` that decide how keys are reported."""
        self.cpu_s, self.reporting = cpu_s, reporting
        self.loads: dict[int, KeyLoads] = {}
        """What each executor reported of its keys in the last batch."""
        self.worked: dict[int, KeyedReport] = {}
        self.operator, self.state = operator, KeyedState(Storage(str(folder)), operator.name)
        newest = self.state.newest_plan()
        self.plan = newest[0] if newest else KeyPlan.first(range(executors))
        self._seal = newest[1] if newest else self.state.write_plan(self.plan)

    def replan(self, plan: KeyPlan) -> None:
        self.plan, self._seal = plan, self.state.write_plan(plan)

    def batch(self, number: int, interval: int, rows: pa.RecordBatch, *, commit: bool = True) -> pa.Table:
        """What goes out, in no promised order. Without `commit` it is as if the engine died before it."""
        operator, state = self.operator, self.state
        before = state.before(number)
        moment = Moment(number, interval, interval * 1_000_000)
        fed, name = feed_schema(operator, rows.schema), uuid.uuid4().hex[:12]
        task = KeyedTask(
            state, operator, moment, before, self.plan.epoch, self._seal, fed, self.cpu_s, _fresh_name, name
        )
        task = replace(task, **self.reporting)
        given = apply_operator(rows_of(pa.table(rows)), task).to_arrow()
        worked = state.reports(task.reports)["work"]
        assert set(worked) == set(self.plan.executors)
        self.worked = worked
        self.loads = {e: KeyLoads.unpack(state.loads(task.reports, e)) for e in worked}
        state.forget_reports(task.reports)
        if commit:
            files = FileChanges(
                [file for report in worked.values() for file in report.added],
                {gone for report in worked.values() for gone in report.gone},
            )
            plan = (self.plan.epoch, self._seal)
            state.commit(
                before.after(moment, operator.window, files, plan, str(task.columns[-1]), IntervalClock(1_000_000))
            )
        return given


def _fresh_name() -> str:
    return uuid.uuid4().hex[:12]


def random_key_plan(plan: KeyPlan, keys: np.ndarray, rng: np.random.Generator, can_split: bool) -> KeyPlan:
    """The next epoch: some keys anywhere, others at work now and then, some keys in parts if that is allowed."""
    executors = plan.executors
    if rng.random() < 0.3:
        executors = tuple(sorted(int(e) for e in rng.choice(6, int(rng.integers(1, 5)), replace=False)))
    fresh = replace(plan.with_executors(executors), epoch=plan.epoch)
    chosen = rng.choice(keys, min(len(keys), int(rng.integers(0, 12))), replace=False)
    if can_split and rng.random() < 0.6:
        split = np.unique(rng.choice(keys, 2))
        ways = rng.integers(2, 5, len(split))
        fresh = replace(fresh, split_keys=split, split_ways=ways)
        chosen = np.union1d(
            chosen, np.concatenate([parts_of(int(k), int(w)) for k, w in zip(split, ways, strict=True)])
        )
    else:
        fresh = replace(fresh, split_keys=fresh.split_keys[:0], split_ways=fresh.split_ways[:0])
    chosen = np.unique(chosen)
    return fresh.with_table(chosen, rng.choice(executors, len(chosen)).astype(np.int32))
