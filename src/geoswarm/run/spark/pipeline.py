"""One batch from source to sink. This file reads as the table of contents of the data plane.

    source -> guard -> route -> exchange -> match -> merge -> (transitions) -> sink
              └── route.py ──────────────┘ match.py merge.py   stages.py      sinks.py

The loop is Spark's: `foreachBatch` calls `run` with each micro-batch in turn, and with the same one after a crash.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from geoswarm.config import Contract, Tuning
from geoswarm.control.coordinator import Outcome
from geoswarm.control.loop import ControlLoop
from geoswarm.control.registry import strategy
from geoswarm.control.strategy import Strategy
from geoswarm.core.space.plan import Plan
from geoswarm.errors import SettingsError, StreamError
from geoswarm.flow.observe import LoadReport
from geoswarm.guard.sensing import triggers
from geoswarm.run.spark import match, route
from geoswarm.run.spark.count import events_of_cell
from geoswarm.run.spark.keyed import KeyedRun
from geoswarm.run.spark.offsets import OffsetLog
from geoswarm.run.spark.schemas import ORDER, arrow_schema, past_guard
from geoswarm.run.spark.sinks import Sink, as_sink
from geoswarm.run.spark.stages import Following, Stage, owned_pairs, sound_events
from geoswarm.run.spark.tasks import BatchTask
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.manifest import Manifest

ARROW = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # With any lower limit Spark measures the batch after every row, a quarter of what the whole hop costs.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
"""How Spark cuts what it sends to workers: 128 MB at 2 kB per event."""
EVENT, OPERATION = "event", "operation"


def combine(events: DataFrame, operations: DataFrame | None) -> DataFrame:
    """One stream of both, so that one micro-batch holds the operations and the events that they precede."""
    if operations is None:
        return events.select(F.struct("*").alias(EVENT))
    no_event = F.lit(None).cast(events.schema).alias(EVENT)
    no_operation = F.lit(None).cast(operations.schema).alias(OPERATION)
    return events.select(F.struct("*").alias(EVENT), no_operation).unionAll(
        operations.select(no_event, F.struct("*").alias(OPERATION))
    )


class Pipeline:
    def __init__(
        self,
        checkpoint: Checkpoint,
        contract: Contract,
        tuning: Tuning,
        sink: Sink,
        offsets: OffsetLog,
        clock: Callable[[], float],
        stages: Sequence[Stage] = (),
    ) -> None:
        self._offsets = offsets
        self._checkpoint, self._contract, self._tuning = checkpoint, contract, tuning
        self._sink, self._clock = sink, clock
        checkpoint.take_churn()  # the loop counts what is live now by itself
        steers = strategy(tuning.strategy)
        _check_pipeline(tuning, steers, checkpoint.plan)
        self._control = ControlLoop(steers, checkpoint.plan, tuning.round_s, checkpoint)
        self._last = JournalReader(checkpoint.storage).last(BatchEntry)
        self._work_us: dict[int, float] = {}  # by partition, since the round began
        self._executors: int | None = None
        self._scaling = threading.Lock()
        self._following = Following(checkpoint, tuning)
        self._stages = [
            (
                stage,
                as_sink(stage.sink),
                KeyedRun(checkpoint.storage, checkpoint.journal, stage.operator, stage.tuning, checkpoint.fence.check),
            )
            for stage in stages
        ]

    def scale(self, executors: int) -> None:
        """So many executors from the next batch on. Any thread may call it."""
        with self._scaling:
            self._executors = executors

    def run(self, batch: DataFrame, batch_id: int) -> None:
        began_s = time.perf_counter()
        with self._scaling:
            wanted, self._executors = self._executors, None
        if wanted is not None:
            self._scale(wanted)
        for key, value in ARROW.items():  # the query has a session of its own: this does not touch the user's
            batch.sparkSession.conf.set(key, value)
        now_us = int(self._clock() * 1e6)
        content = self._offsets.digest(batch_id)
        events = _events(batch)
        replan = partial(self._plan_batch, events, batch_id) if self._control.plans_batches else None
        operations = partial(self._operations, batch, batch_id)
        manifest = self._checkpoint.prepare(batch_id, operations, now_us, content, replan)
        prepared_s = time.perf_counter()
        task = self._task(events, manifest, batch_id)
        matches = self._matches(events, task).withColumn("version", F.lit(manifest.version))
        with self._kept(matches):
            self._sink.write(matches, batch_id)
            report = _whole_report(matches, task)
            self._following.finish(batch_id)
            self._run_stages(events, matches, task)
        self._checkpoint.finish(batch_id, [said.text for said in report.said])
        task.storage.remove_folder(task.report_folder)
        seconds = {"prepare_s": prepared_s - began_s, "batch_s": time.perf_counter() - began_s}
        self._journal(task, report, seconds)
        self._steer(report, manifest.plan_epoch, manifest.now_us)

    def _scale(self, executors: int) -> None:
        self._adopt(self._control.scale(executors))
        self._following.scale(executors)

    def _adopt(self, outcome: Outcome) -> None:
        if outcome.plan is not None:
            self._checkpoint.adopt_plan(outcome.plan)
        self._checkpoint.journal.append(outcome.entry)

    def _plan_batch(self, events: DataFrame, batch_id: int) -> Plan:
        outcome = self._control.plan_batch(batch_id, events_of_cell(events, self._checkpoint.grid))
        self._checkpoint.journal.append(outcome.entry)
        return self._control.plan

    def _steer(self, report: LoadReport, plan_epoch: int, now_us: int) -> None:
        """The journey of a plan: what was counted goes to the control plane, which may answer with a plan."""
        churn = self._checkpoint.take_churn()
        if plan_epoch != self._control.plan.epoch:
            report = LoadReport()  # a replay of a batch from before the plan: its partitions are gone
        before = self._control.plan
        for partition, load in report.partitions.items():
            self._work_us[partition] = self._work_us.get(partition, 0.0) + load.cpu_us
        outcome = self._control.batch(churn.came, churn.went, report, now_us / 1e6)
        if outcome is not None:
            self._adopt(outcome)
            if outcome.plan is not None and self._checkpoint.guarding is not None:
                hot = set(triggers(before, outcome.entry.changes, self._work_us))
                self._checkpoint.sense(p for p in before.partitions if p.id in hot)
            self._work_us = {}

    def _operations(self, batch: DataFrame, batch_id: int) -> Iterator[pa.Table]:
        """Spark reads the whole batch for it, events too: the batch it hands over is opaque to its optimizer."""
        if OPERATION not in batch.columns or not self._offsets.has_new(batch_id, source=1):
            return
        table = batch.where(F.col(OPERATION).isNotNull()).select(f"{OPERATION}.*").toArrow()
        if ORDER in table.schema.names:  # the sort is stable: rows of one file stay in order
            table = table.take(pc.sort_indices(table[ORDER])).drop_columns([ORDER])
        if len(table):
            yield table

    def _matches(self, events: DataFrame, task: BatchTask) -> DataFrame:
        exchange = route.packed if task.packs else route.rows
        matches = match.matched(exchange(events, task), past_guard(events.schema), task)
        return self._following.apply(matches, task) if task.asks_for_transitions else matches

    @contextmanager
    def _kept(self, matches: DataFrame) -> Iterator[None]:
        """Computed once where the sink and stages both ask for them."""
        is_shared = any(stage.on == "matches" for stage, _, _ in self._stages)
        if is_shared:
            matches.persist()
        try:
            yield
        finally:
            if is_shared:
                matches.unpersist()

    def _run_stages(self, events: DataFrame, matches: DataFrame, task: BatchTask) -> None:
        for stage, sink, keyed in self._stages:
            rows = owned_pairs(matches, task) if stage.on == "matches" else sound_events(events, task)
            sink.write(keyed.apply(rows, task.batch_id, task.manifest.now_us), task.batch_id)
            keyed.finish()

    def _task(self, events: DataFrame, manifest: Manifest, batch_id: int) -> BatchTask:
        storage = self._checkpoint.storage
        task = BatchTask(
            storage, self._contract, self._tuning, batch_id, manifest, arrow_schema(events), self._control.needs_stats
        )
        storage.remove_folder(task.report_folder)  # of an attempt that crashed
        storage.remove_folder(task.dead_folder)
        return task

    def _journal(self, task: BatchTask, report: LoadReport, seconds: dict[str, float]) -> None:
        # A batch that was run again after a crash is in the journal twice, and counts once.
        self._last = BatchEntry.of(task.batch_id, task.manifest, report, seconds, self._last)
        self._checkpoint.journal.append(self._last)


def _check_pipeline(tuning: Tuning, steers: Strategy, plan: Plan) -> None:
    """What cannot work together is said before the stream starts."""
    if tuning.pipeline == "spis" and tuning.join_at == "static":
        return
    chosen = f"pipeline {tuning.pipeline} with join_at {tuning.join_at}"
    if plan.siblings or steers.needs_sample:
        raise SettingsError(
            f"strategy {steers.name} divides the words of a place among executors, which {chosen} cannot do: "
            "use pipeline spis with join_at static, or a strategy that divides the map only, such as distributor"
        )
    if tuning.pipeline in ("rihps", "risps") and steers.needs_stats:
        raise SettingsError(
            f"strategy {steers.name} balances by where events fall, but with pipeline {tuning.pipeline} they go to "
            "where subscriptions are: use one that balances by what was measured, such as distributor"
        )


def _events(batch: DataFrame) -> DataFrame:
    if OPERATION in batch.columns:
        batch = batch.where(F.col(OPERATION).isNull())
    return batch.select(f"{EVENT}.*")


def _whole_report(matches: DataFrame, task: BatchTask) -> LoadReport:
    """What all tasks of the batch counted. A sink that looked at part of the matches only has run part of the tasks;
    the rest is run here, so that every dead letter is filed and every event counted."""
    for attempt in range(2):
        stages = task.reports()
        total = sum(stages.values(), LoadReport())
        if "route" in stages and total.events_in == total.events + total.dead and total.in_transit == 0:
            return total
        if attempt == 0:
            matches.write.format("noop").mode("overwrite").save()
    if not stages:
        return total  # the batch held no partition of events at all
    raise StreamError(
        f"batch {task.batch_id}: {total.events_in} events came in, {total.events} reached an executor and {total.dead} "
        "became dead letters, which does not add up: the batch is not committed; start again from the checkpoint"
    )
