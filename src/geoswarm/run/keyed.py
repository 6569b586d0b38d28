"""A keyed operator in a running stream: route by key, exchange, work on each executor, merge where keys were split.

    rows -> feed -> route -> exchange -> work -> (exchange -> merge) -> sink
            └─────────── bodies in flow/stages/keyed.py ──────────┘

`KeyedRun` is the data plane and the control plane of one operator. State is committed after the sink has the batch; a
batch that is run again sees the same state, and gives the same rows.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from geoswarm.config import EXECUTORS_MAX, EXECUTORS_MIN, KeyTuning
from geoswarm.control.keyed.costs import CostFit
from geoswarm.control.keyed.loop import KeyedLoop
from geoswarm.control.keyed.registry import resolve_planner
from geoswarm.control.outcome import KeyRoundEntry
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.errors import SettingsError, StateError, StreamError
from geoswarm.flow.exchange import PACKED
from geoswarm.flow.keyed.charge import FIRST_COSTS, add_runner_time
from geoswarm.flow.keyed.key_report import KeyedReport, KeyLoads, add_counts
from geoswarm.flow.keyed.operator import Moment, Operator
from geoswarm.flow.keyed.route import feed_schema
from geoswarm.flow.keyed.state import Commit, FileChanges
from geoswarm.flow.keyed.work import KeyedTask
from geoswarm.flow.observe import TaskName
from geoswarm.flow.stages.keyed import merge_keys, route_keys, work_in_parts, work_on_keys
from geoswarm.run.rows import Rows, for_each_executor
from geoswarm.store.journal import Journal
from geoswarm.store.journal.entries import KeyedBatchEntry, KeyedLoad
from geoswarm.store.keyed_state import KeyedState
from geoswarm.store.storage import Storage

PLANS_PER_INTERVAL_MAX = 8
"""Files of different plans are not merged, so a long interval under many plans would be slow to read."""


def apply_operator(rows: Rows, task: KeyedTask) -> Rows:
    """The output of the operator for these rows. Its state is not committed yet."""
    executors = task.plan.executors[-1] + 1
    tasks = rows.tasks_for(executors)
    routed = rows.map(route_keys(task), PACKED).exchange(tasks)
    given: pa.Schema = task.operator.given(task.fed)
    work = work_in_parts(task) if task.merges else work_on_keys(task)
    served = for_each_executor(work, executors, tasks, task.cpu_s, task.moment.batch)
    if not task.merges:
        return routed.map(served, given)
    return routed.map(served, PACKED).exchange(tasks).map(merge_keys(task), given)


def serve_parcels(rows: Rows, task: KeyedTask, parcels_of: Callable[[int, int], Iterator[pa.RecordBatch]]) -> Rows:
    """The same for parcels that no exchange brings: tasks fetch their own. The operator merges nothing."""
    executors = task.plan.executors[-1] + 1
    tasks = rows.tasks_for(executors)
    served = for_each_executor(work_on_keys(task), executors, tasks, task.cpu_s, task.moment.batch)

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for mine in (mine for batch in batches for mine in batch.column(0).to_pylist()):
            yield from served(mine, parcels_of(mine, tasks))

    given: pa.Schema = task.operator.given(task.fed)
    return rows.numbers(tasks).map(run, given)


class KeyedRun:
    """One operator in a running stream: `apply` to each batch, then `finish` once its sink has it."""

    def __init__(
        self,
        storage: Storage,
        journal: Journal,
        operator: Operator,
        tuning: KeyTuning,
        check: Callable[[], None],
        executors: int = EXECUTORS_MIN,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`check` raises if this engine may no longer write to the checkpoint. `executors` share the keys at first, if
        the tuning does not say how many. `cpu_s` is the CPU time of the calling thread, in any worker."""
        if not operator.name.replace("-", "").isalnum():
            raise SettingsError(f"operator {operator.name!r} cannot name a folder: use letters, digits and dashes")
        if operator.window < 1:
            raise SettingsError(f"operator {operator.name} has a window of {operator.window} intervals: use 1 or more")
        self.operator, self._tuning, self._journal, self._check = operator, tuning, journal, check
        self._cpu_s = cpu_s
        self._state = KeyedState(storage, operator.name)
        planner = resolve_planner(tuning, operator.window)
        newest = self._state.newest_plan()
        if newest is None:
            plan = KeyPlan.first(range(tuning.executors or executors))
            newest = plan, self._state.write_plan(plan)
        plan, self._seal = newest
        self._loop = KeyedLoop(planner, plan, operator.can_split)
        self._heavy_keys: int | None = getattr(planner, "heavy_keys", None)
        self._fit, self._costs = CostFit(), FIRST_COSTS
        self._round: int | None = None
        self._batches, self._is_warm = 0, False
        self._state.sweep()
        self._may_hold = True
        self._task: KeyedTask | None = None
        self._given: Rows | None = None
        self._executors = tuning.executors or len(plan.executors)

    def scale(self, executors: int) -> None:
        """Change the number of executors that share the keys, from the next batch on. Any thread may call it."""
        if not 1 <= executors <= EXECUTORS_MAX:
            raise SettingsError(f"{executors} executors cannot share keys: use 1 or more, {EXECUTORS_MAX} at most")
        self._executors = executors

    @property
    def plan(self) -> KeyPlan:
        return self._loop.plan

    def apply(self, rows: Rows, batch_id: int, now_us: int, operator: Operator | None = None) -> Rows:
        """The output of the operator for the rows. `operator` replaces it for this batch: the same operator, with what
        it needs to know about the batch."""
        task = self.begin(rows.schema, batch_id, now_us, rows.name_task, operator)
        self._given = apply_operator(rows, task)
        return self._given

    def serve(self, routed: Rows, parcels_of: Callable[[int, int], Iterator[pa.RecordBatch]]) -> Rows:
        """The output of the operator for rows that tasks have routed by what `begin` returned. `routed` are on the same
        runner; `parcels_of(number, tasks)` returns what was sent to a task of so many."""
        assert self._task is not None, "begin comes first"
        self._given = serve_parcels(routed, self._task, parcels_of)
        return self._given

    def begin(
        self,
        columns: pa.Schema,
        batch_id: int,
        now_us: int,
        name_task: Callable[[], TaskName],
        operator: Operator | None = None,
    ) -> KeyedTask:
        """What the tasks of a batch must know, whose rows have these columns."""
        operator = operator or self.operator
        self._check()
        before = self._state.before(batch_id)
        self._clock = before.clock_at(now_us, round(self._tuning.interval_s * 1e6))
        moment = Moment(batch_id, max(self._clock.interval(now_us), before.interval), now_us)
        is_first_of_round = self._steer(moment, before)
        task = KeyedTask(
            self._state,
            operator,
            moment,
            before,
            self.plan.epoch,
            self._seal,
            feed_schema(operator, columns),
            cpu_s=self._cpu_s,
            fresh_name=fresh_name,
            attempt=fresh_name(),  # tasks of a killed driver may still be reporting
            costs=self._costs if self._tuning.load_by == "time" else None,
            heavy_keys=self._heavy_keys,
            name_task=name_task,
            weighs_table=is_first_of_round,
        )
        if before.files and before.columns not in map(str, task.columns):
            raise StateError(
                f"operator {operator.name} has kept rows of other columns than it would now: give it another name, "
                f"or remove {self._state.folder} from the checkpoint"
            )
        self._state.forget_reports()  # those of crashed attempts
        self._task = task
        return task

    def before(self, batch_id: int) -> Commit:
        """The state that a batch may see."""
        return self._state.before(batch_id)

    def forget(self, batch_id: int, watermark_us: int | None = None) -> None:
        """Drop all state in this batch: a later batch begins with none, and with this watermark."""
        if self._may_hold or watermark_us is not None:
            before = self._state.before(batch_id)
            if before.files or before.watermark_us != watermark_us:
                self._check()
                self._state.commit(replace(before, batch=batch_id, files=(), seals={}, watermark_us=watermark_us))
            self._may_hold = False

    def _steer(self, moment: Moment, before: Commit) -> bool:
        """Between two batches, apply a change of executors, or redraw the plan if a round has ended. Returns whether a
        round begins."""
        if len(self.plan.executors) != self._executors:
            executors = len(self.plan.executors)
            self._adopt(self._loop.scale(range(self._executors)))
            self._journal.append(
                KeyRoundEntry(
                    self.operator.name, "scaled", self._executors, self.plan.epoch, executors_before=executors
                )
            )
        number = moment.now_us // round((self._tuning.round_s or self._tuning.interval_s) * 1e6)
        plans = {file.epoch for file in before.files if file.interval == moment.interval}
        if self._round is not None and self._round != number and len(plans) < PLANS_PER_INTERVAL_MAX:
            noise = self._fit.noise(self._batches) if self._tuning.load_by == "time" else 0.0
            outcome = self._loop.close_round(before.bytes, noise)
            self._costs, self._batches = self._fit.read(), 0
            if outcome is not None:
                if outcome.plan is not None:
                    self._adopt(outcome.plan)
                entry = replace(outcome.entry, operator=self.operator.name, round=self._round, batch=moment.batch)
                self._journal.append(entry)
        begins, self._round = self._round != number, number
        return begins

    def _adopt(self, plan: KeyPlan) -> None:
        self._seal = self._state.write_plan(plan)

    def finish(self, watermark_us: int | None = None) -> KeyedBatchEntry:
        """Commit the state of a batch that the sink has received, with the watermark of the next one, if there is one.
        Returns the entry for the journal."""
        task, given = self._task, self._given
        assert task is not None, "apply comes first"
        assert given is not None
        routed, worked = self._whole_reports(task, given)
        self._check()
        commit = replace(self._commit(task, worked), watermark_us=watermark_us)
        self._state.commit(commit)
        self._may_hold = True
        spent_us = given.runner_cpu_us({r.task for r in worked.values() if r.task is not None})
        whole = add_runner_time(worked, spent_us)
        self._count(task, worked, whole)
        self._state.forget_reports(task.reports)
        entry = KeyedBatchEntry(
            operator=self.operator.name,
            batch=task.moment.batch,
            interval=task.moment.interval,
            plan_epoch=task.plan_epoch,
            rows=sum(r.rows for r in routed.values()),
            dead=sum(r.dead for r in routed.values()),
            given=sum(r.given for r in worked.values()),
            state_rows=sum(file.rows for file in commit.files),
            state_bytes=commit.bytes,
            files=len(commit.files),
            executors={e: KeyedLoad(r.rows, r.cpu_us) for e, r in sorted(whole.items())},
            counts=add_counts(r.counts for r in worked.values()),
        )
        self._journal.append(entry)
        return entry

    def _count(self, task: KeyedTask, worked: dict[int, KeyedReport], whole: dict[int, KeyedReport]) -> None:
        """Tells the control plane what keys took: the worker's time, which is divided among them already, and in the
        same proportions the runner's, which is in `whole`. By time, the first batch after a start says nothing: in it,
        workers load their kernels."""
        by_time = self._tuning.load_by == "time"
        if self._is_warm or not by_time:
            self._batches += 1
            for executor, report in sorted(whole.items()):
                loads = KeyLoads.unpack(self._state.loads(task.reports, executor))
                self._loop.take(loads.scale(report.cpu_us / max(1, worked[executor].cpu_us)) if by_time else loads)
                self._fit.add(report.keys, report.work, report.given, report.cpu_us, report.measured_us)
        self._is_warm = True

    def _whole_reports(self, task: KeyedTask, given: Rows) -> tuple[dict[int, KeyedReport], dict[int, KeyedReport]]:
        """The reports of both stages, by task. If the sink read only part of the rows, the other tasks are run here."""
        for attempt in range(2):
            stages = self._state.reports(task.reports)
            routed, worked = stages["route"], stages["work"]
            sent = sum(r.sent for r in routed.values())
            if set(worked) == set(task.plan.executors) and sent == sum(r.rows for r in worked.values()):
                return routed, worked
            if attempt == 0:
                given.run()
        if not routed and not worked:
            return routed, worked  # the batch had no partition of rows at all
        raise StreamError(
            f"batch {task.moment.batch} of operator {self.operator.name}: {sent} rows were sent to their keys, "
            f"{sum(r.rows for r in worked.values())} arrived at {len(worked)} executors of {len(task.plan.executors)}, "
            "which does not add up: the batch is not committed; start again from the checkpoint"
        )

    def _commit(self, task: KeyedTask, worked: dict[int, KeyedReport]) -> Commit:
        before, moment = task.before, task.moment
        if not worked:  # nor has any executor ended its intervals
            return replace(before, batch=moment.batch)
        added = [file for report in worked.values() for file in report.added]
        gone = {name for report in worked.values() for name in report.gone}
        plan = task.plan_epoch, task.plan_seal
        after = before.after(
            moment, self.operator.window, FileChanges(added, gone), plan, str(task.columns[-1]), self._clock
        )
        return replace(after, closed_us=before.watermark_us)


def fresh_name() -> str:
    return uuid.uuid4().hex[:12]
