"""A keyed operator on Spark: route by key, exchange, work on each executor, and merge where keys were split.

    rows -> feed -> route -> exchange -> work -> (exchange -> merge) -> sink
            └──────────────┘ flow/keyed/  store/keyed_share.py

Beside it stands its control plane: `KeyedRun` is both roads of one operator. State is committed after the sink has the
batch; a batch that is run again sees what it saw before, and gives the same.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from geoswarm.config import EXECUTORS_MAX, KeyTuning
from geoswarm.control.keyed.loop import KeyedLoop
from geoswarm.control.keyed.problem import Limits
from geoswarm.control.keyed.registry import planner
from geoswarm.control.outcome import KeyRoundEntry
from geoswarm.core.arrays.batches import gather
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.errors import SettingsError, StateError, StreamError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import pack, unpack
from geoswarm.flow.keyed.operator import Moment, Operator
from geoswarm.flow.keyed.route import fed_schema, route_given, route_rows
from geoswarm.flow.route import Parcel
from geoswarm.run.spark.route import PACKED_DDL, Stage
from geoswarm.run.spark.schemas import arrow_schema
from geoswarm.store import dead_files
from geoswarm.store.journal import Journal
from geoswarm.store.journal.entries import KeyedBatchEntry, KeyedLoad
from geoswarm.store.keyed_share import KeyedTask, Loads, Report, Share, merged
from geoswarm.store.keyed_state import Commit, Files, KeyedState
from geoswarm.store.storage import Storage

ASIDE = 1
"""Of a parcel, in place of a partition: its rows go out as they are."""
ROUTED_ROWS_MAX = 1_000_000
"""Rows routed at once by a task."""


def keyed(rows: DataFrame, task: KeyedTask) -> DataFrame:
    """What the operator gives for these rows. Its state is not committed by this."""
    tasks = task.plan.executors[-1] + 1
    routed = rows.mapInArrow(_route(task), PACKED_DDL).repartitionById(tasks, "executor")
    given = from_arrow_schema(task.operator.given(task.fed))
    if not task.merges:
        return routed.mapInArrow(_work(task, lambda batch: batch), given)
    by, executors = task.operator.merge_by or "", np.array(task.plan.executors)
    partial = routed.mapInArrow(_work(task, lambda batch: pack(route_given(batch, by, executors))), PACKED_DDL)
    return partial.repartitionById(tasks, "executor").mapInArrow(_merge(task), given)


def _route(task: KeyedTask) -> Stage:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, counted = _partition(), Report()
        for chunk, batch in enumerate(gather(batches, ROUTED_ROWS_MAX)):
            fed = task.operator.feed(batch)
            if fed.schema != task.fed:
                fed = fed.cast(task.fed)
            counted.rows += len(fed)
            fed, aside = task.operator.aside(fed)
            if aside is not None and len(aside):
                yield pack(iter([Parcel(ASIDE, task.plan.executors[number % len(task.plan.executors)], aside)]))
            dead = DeadLetters("row", task.moment.batch)
            yield pack(route_rows(fed, task.plan, dead))
            if len(dead):
                folder = dead_files.folder_of(dead_files.EVENTS, task.moment.batch)
                part = f"{task.operator.name}-{number:05d}-{chunk:04d}"
                dead_files.write(task.state.storage, folder, part, dead.table())
            counted.sent += len(fed) - len(dead)
            counted.dead += len(dead)
        _report(task, "route", number, counted)

    return run


def _work(task: KeyedTask, shape: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Stage:
    given = task.operator.given(task.fed)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        executor = _partition()
        rows = list[pa.RecordBatch]()
        for batch in batches:
            passing = pc.equal(batch.column("partition"), ASIDE)
            yield from (shape(parcel.events) for parcel in unpack(batch.filter(passing), given))
            rows += (parcel.events for parcel in unpack(batch.filter(pc.invert(passing)), task.fed))
        if executor not in task.plan.executors:
            return  # it has left; Spark numbers its tasks without gaps
        share = Share(task, executor, uuid.uuid4().hex[:12])
        yield from (shape(batch) for batch in share.run(rows))
        task.state.storage.write(f"{task.report_folder}/loads-{executor:05d}", share.loads, durable=False)
        _report(task, "work", executor, share.report)

    return run


def _merge(task: KeyedTask) -> Stage:
    given = task.operator.given(task.fed)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [parcel.events for batch in batches for parcel in unpack(batch, given)]
        yield from merged(rows, task.operator)

    return run


def _partition() -> int:
    return TaskContext.get().partitionId()  # type: ignore[union-attr]


def _report(task: KeyedTask, stage: str, number: int, counted: Report) -> None:
    """The last attempt of a task wins."""
    name = f"{task.report_folder}/{stage}-{number:05d}.json"
    task.state.storage.write(name, json.dumps(counted.to_json()).encode(), durable=False)


ROUNDS_MAX = 8
"""Whose state per key the control plane remembers, for the cost of moving a key: 24 bytes a key and round."""
PLANS_PER_INTERVAL_MAX = 8
"""Files of different plans are not merged, so a long interval under many plans would be slow to look into."""


class KeyedRun:
    """One operator in a running stream: `apply` to each batch, then `finish` once its sink has it."""

    def __init__(
        self,
        storage: Storage,
        journal: Journal,
        operator: Operator,
        tuning: KeyTuning,
        check: Callable[[], None],
    ) -> None:
        """`check` raises if this engine may no longer write to the checkpoint."""
        if not operator.name.replace("-", "").isalnum():
            raise SettingsError(f"operator {operator.name!r} cannot name a folder: use letters, digits and dashes")
        if operator.window < 1:
            raise SettingsError(f"operator {operator.name} has a window of {operator.window} intervals: use 1 or more")
        self.operator, self._tuning, self._journal, self._check = operator, tuning, journal, check
        self._state = KeyedState(storage, operator.name)
        limits = Limits(tuning.theta_max, tuning.table_max, tuning.beta, operator.window)
        held = self._state.newest_plan()
        if held is None:
            plan = KeyPlan.first(range(tuning.executors))
            held = plan, self._state.write_plan(plan)
        plan, self._seal = held
        rounds = max(1, round(operator.window * tuning.interval_s / (tuning.round_s or tuning.interval_s)))
        self._loop = KeyedLoop(planner(tuning.planner, limits), plan, min(rounds, ROUNDS_MAX), operator.can_split)
        self._round: int | None = None
        self._state.sweep()
        self._may_hold = True
        self._task: KeyedTask | None = None
        self._given: DataFrame | None = None
        self._executors = tuning.executors

    def scale(self, executors: int) -> None:
        """From the next batch on so many executors share the keys. Any thread may call it."""
        if not 1 <= executors <= EXECUTORS_MAX:
            raise SettingsError(f"{executors} executors cannot share keys: use 1 or more, {EXECUTORS_MAX} at most")
        self._executors = executors

    @property
    def plan(self) -> KeyPlan:
        return self._loop.plan

    def apply(self, rows: DataFrame, batch_id: int, now_us: int, operator: Operator | None = None) -> DataFrame:
        """What the operator gives for the rows. `operator` takes its place for this batch: the same, but for what it
        has to know of the batch."""
        operator = operator or self.operator
        self._check()
        before = self._state.before(batch_id)
        self._clock = before.clock_at(now_us, round(self._tuning.interval_s * 1e6))
        moment = Moment(batch_id, max(self._clock.interval(now_us), before.interval), now_us)
        self._steer(moment, before)
        fed = fed_schema(operator, arrow_schema(rows))
        attempt = uuid.uuid4().hex[:12]  # tasks of a driver that is gone may still be reporting
        task = KeyedTask(self._state, operator, moment, before, self.plan.epoch, self._seal, fed, attempt)
        if before.files and before.columns != str(task.columns):
            raise StateError(
                f"operator {operator.name} has kept rows of other columns than it would now: give it another name, "
                f"or remove {self._state.folder} from the checkpoint"
            )
        self._state.storage.remove_folder(f"{self._state.folder}/reports")  # of attempts that crashed
        self._task, self._given = task, keyed(rows, task)
        return self._given

    def forget(self, batch_id: int) -> None:
        """Nobody needs what is remembered in this batch: a batch that does, later, begins with nothing."""
        if self._may_hold:
            before = self._state.before(batch_id)
            if before.files:
                self._check()
                self._state.commit(replace(before, batch=batch_id, files=(), seals={}))
            self._may_hold = False

    def _steer(self, moment: Moment, before: Commit) -> None:
        """Between two batches: others at work, or an interval that has ended and a plan that answers it."""
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
            outcome = self._loop.close_round()
            if outcome is not None:
                if outcome.plan is not None:
                    self._adopt(outcome.plan)
                entry = replace(outcome.entry, operator=self.operator.name, round=self._round, batch=moment.batch)
                self._journal.append(entry)
        self._round = number

    def _adopt(self, plan: KeyPlan) -> None:
        self._seal = self._state.write_plan(plan)

    def finish(self) -> KeyedBatchEntry:
        """The sink has the batch: what its executors keep is kept. Returns what goes to the journal."""
        task, given = self._task, self._given
        assert task is not None, "apply comes first"
        assert given is not None
        routed, worked = self._reports(task, given)
        self._check()
        commit = self._committed(task, worked)
        self._state.commit(commit)
        self._may_hold = True
        for executor in worked:
            self._loop.take(*Loads.unpack(self._state.storage.read(f"{task.report_folder}/loads-{executor:05d}")))
        self._state.storage.remove_folder(task.report_folder)
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
            executors={e: KeyedLoad(r.rows, r.cpu_us) for e, r in sorted(worked.items())},
        )
        self._journal.append(entry)
        return entry

    def _reports(self, task: KeyedTask, given: DataFrame) -> tuple[dict[int, Report], dict[int, Report]]:
        """By stage and task. A sink that looked at part of the rows only has run part of the tasks: the rest is run."""
        for attempt in range(2):
            stages: dict[str, dict[int, Report]] = {"route": {}, "work": {}}
            for name in self._state.storage.names(task.report_folder):
                stage, _, number = name.removesuffix(".json").partition("-")
                if stage in stages:
                    body = json.loads(self._state.storage.read(f"{task.report_folder}/{name}"))
                    stages[stage][int(number)] = Report.from_json(body)
            routed, worked = stages["route"], stages["work"]
            sent = sum(r.sent for r in routed.values())
            if set(worked) == set(task.plan.executors) and sent == sum(r.rows for r in worked.values()):
                return routed, worked
            if attempt == 0:
                given.write.format("noop").mode("overwrite").save()
        if not routed and not worked:
            return routed, worked  # the batch held no partition of rows at all
        raise StreamError(
            f"batch {task.moment.batch} of operator {self.operator.name}: {sent} rows were sent to their keys, "
            f"{sum(r.rows for r in worked.values())} arrived at {len(worked)} executors of {len(task.plan.executors)}, "
            "which does not add up: the batch is not committed; start again from the checkpoint"
        )

    def _committed(self, task: KeyedTask, worked: dict[int, Report]) -> Commit:
        before, moment = task.before, task.moment
        if not worked:  # nobody was asked about ends of intervals either
            return replace(before, batch=moment.batch)
        added = [file for report in worked.values() for file in report.added]
        gone = {name for report in worked.values() for name in report.gone}
        plan = task.plan_epoch, task.plan_seal
        return before.after(moment, self.operator.window, Files(added, gone), plan, str(task.columns), self._clock)
