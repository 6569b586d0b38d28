"""One batch from source to sink, on any runner. This file reads as the table of contents of the data plane.

    source -> validate -> route -> exchange -> match -> (exchange -> merge) -> (transitions) -> (alerts) -> sink
              └────────────────── bodies in flow/stages/ ─────────────────┘     stages.py      sinks.py

A runner (`spark/engine.py`, `local/engine.py`) calls `run` with each micro-batch in turn, and with the same one after a
crash. `to_matches.py` leads events to matches, `steering.py` passes the counts of a batch to the control plane,
`scaling.py` has the number of executors, `silence_watch.py` says why nothing matches.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.control.strategy import Strategy
from geoswarm.control.task_shares import share_tasks
from geoswarm.core.space.plan import Plan
from geoswarm.errors import SettingsError, StreamError
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.stages.alerts import make_alerts
from geoswarm.flow.stages.beside import as_they_are, pairs_with_users, select_valid
from geoswarm.flow.stages.count import (
    CELL_COUNTS,
    PLACED_BY,
    SAMPLED_EVENTS,
    count_cells,
    sample_events,
    sum_cells,
    thin_out,
)
from geoswarm.flow.stages.ends import tell_ends
from geoswarm.flow.stages.past import give_past, nullable_columns
from geoswarm.flow.stages.show_ids import show_ids
from geoswarm.flow.stages.task import BatchTask
from geoswarm.model import PAST, TEXT, VERSION
from geoswarm.run.answers import Answers
from geoswarm.run.keyed import KeyedRun, fresh_name
from geoswarm.run.max_events import MaxEventsRun
from geoswarm.run.rows import Rows
from geoswarm.run.scaling import Scaling
from geoswarm.run.side_stages import Stage, TransitionRun
from geoswarm.run.silence_watch import SilenceWatch
from geoswarm.run.sinks import Sink, as_sink
from geoswarm.run.steering import Steering
from geoswarm.run.to_matches import exchange, match, match_tasks
from geoswarm.store.batch_state import HeldBatch, StoredBatch
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.kept.keeper import Keeper
from geoswarm.store.manifest import Manifest


@dataclass(frozen=True)
class Batch:
    """A micro-batch from its runner."""

    number: int
    events: Rows
    """The events with columns of the right types, not validated yet."""
    columns: pa.Schema
    """The columns of its events once they are validated."""
    operations: Callable[[], Iterator[pa.Table]]
    content: str
    """A digest of what the source put into the batch; empty if it is not known."""


class Pipeline:
    def __init__(
        self,
        checkpoint: Checkpoint,
        contract: Contract,
        tuning: Tuning,
        strategy: Strategy,
        sink: Sink,
        clock: Callable[[], float],
        stages: Sequence[Stage] = (),
        aggregates: Sink | None = None,
        every_s: float = 0.0,
        slots: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`aggregates` is the sink for the answers of subscriptions that have an aggregate. `every_s` is the least
        time between two batches; `slots` returns the number of tasks that run at once, if it is known."""
        self._checkpoint, self._contract, self._tuning = checkpoint, contract, tuning
        self._sink, self._clock, self._every_s = sink, clock, every_s
        self._steering = Steering(checkpoint, tuning, strategy)
        self._scaling = Scaling(checkpoint, contract, tuning, every_s, slots, self._scale)
        self._last = JournalReader(checkpoint.storage).last(BatchEntry)
        self._watch = SilenceWatch(checkpoint, contract, self._last)
        self._check_pasts()
        self._following, self._limits = TransitionRun(checkpoint, tuning), MaxEventsRun(checkpoint)
        self._keeper = Keeper(checkpoint.storage, checkpoint.grid, tuning.window) if tuning.window is not None else None
        self._answers = Answers(checkpoint, tuning, aggregates)
        self._stages = [(stage, as_sink(stage.sink), self._keyed_run(stage)) for stage in stages]

    def _check_pasts(self) -> None:
        """Refuse to begin without a past that was promised."""
        manifest, window = self._checkpoint.manifest, self._tuning.window
        is_due = manifest.batch is None or self._last is None or self._last.batch < manifest.batch
        if manifest.pasts is not None and is_due and (window is None or not window.marks_past):
            raise SettingsError(
                "some subscriptions wait for the kept events that they asked for (since): set [window] keep and "
                "marks_past = true, at least for one batch"
            )

    def _keyed_run(self, stage: Stage) -> KeyedRun:
        checkpoint, tuning = self._checkpoint, stage.tuning
        if tuning.executors is None:
            tuning = tuning.model_copy(update={"executors": checkpoint.plan.executors})
        return KeyedRun(checkpoint.storage, checkpoint.journal, stage.operator, tuning, checkpoint.fence.check)

    def _scale(self, executors: int) -> None:
        """Between two batches, put a number of executors in force for the matching, and for what follows it."""
        self._steering.scale(executors)
        self._following.scale(executors)
        self._answers.scale(executors)
        for stage, _, keyed in self._stages:
            if stage.tuning.executors is None:
                keyed.scale(executors)

    def run(self, batch: Batch) -> None:
        began_s = time.perf_counter()
        self._scaling.take_requests()
        manifest = self._prepare(batch)
        self._checkpoint.share_view(manifest)
        prepared_s = time.perf_counter()
        kind = HeldBatch if batch.events.is_in_process else StoredBatch
        state = kind(self._checkpoint.storage, batch.number, manifest, fresh_name())
        state.forget_attempt()  # files of an attempt that crashed
        task = self._task(batch, state)
        is_shared = any(stage.on == "matches" for stage, _, _ in self._stages)
        with ExitStack() as kept:
            matches, ends = kept.enter_context(self._limits.apply(self._matches(batch.events, task, manifest), task))
            matches = matches.add_constant(VERSION, manifest.version)
            if is_shared:
                kept.enter_context(matches.keep())
            given = self._with_pasts(self._with_ends(matches, ends, task, manifest), task, manifest)
            given = self._shown(given, task)
            self._sink.write(given, batch.number)
            reports = _whole_reports(given, state)
            self._keep(batch.number, manifest, reports.get("route", []))
            times_us = [each.newest_us for each in reports.get("route", []) if each.newest_us is not None]
            newest_us = max(times_us, default=None)
            followed = self._following.finish(batch.number, newest_us)
            self._limits.finish()
            self._run_stages(batch.events, matches, task)
            answers = self._answers.give(batch.events, task, state, newest_us)
        said = chain.from_iterable(report.said for report in chain.from_iterable(reports.values()))
        self._checkpoint.finish(batch.number, [quote.text for quote in said])
        state.forget_reports()
        seconds = {"prepare_s": prepared_s - began_s, "batch_s": time.perf_counter() - began_s}
        # Last: by now the runner has noted what its tasks took.
        report = self._steering.charge(reports, matches.runner_cpu_us)
        silence = self._watch.add(report, manifest, answers.answers)
        # A batch that was run again after a crash is in the journal twice, and counts once.
        self._last = BatchEntry.of(
            batch.number, manifest, report, self._steering.rates, seconds, answers, followed, self._last, silence
        )
        self._checkpoint.journal.append(self._last)
        self._steering.steer(report, manifest)
        self._scaling.add_batch(self._last)

    def end(self, is_well: bool) -> None:
        """Called when the stream has ended, for any reason: `is_well` unless an error has ended it."""
        for sink in (self._sink, *(sink for _, sink, _ in self._stages), self._answers.sink):
            if sink is not None:
                sink.end()
        if self._keeper is not None:
            self._keeper.close()
        if is_well:
            self._watch.end()

    def _keep(self, batch: int, manifest: Manifest, routed: Sequence[LoadReport]) -> None:
        """Seal the events that the tasks have kept; the batch is not committed before."""
        if self._keeper is not None:
            parts = [part for report in routed for part in report.kept]
            rows = sum(report.events_in - report.dead for report in routed)
            self._keeper.seal(manifest, batch, parts, rows, has_time=self._has_time)

    @property
    def _has_time(self) -> bool:
        """Whether the last batch took less than half of the time from one to the next."""
        return self._last is not None and 2 * self._last.batch_s < self._every_s

    def _prepare(self, batch: Batch) -> Manifest:
        """The version that the batch runs with. Its plan is drawn here if the strategy draws one for every batch, or
        its first one from a sample."""
        grid, steering = self._checkpoint.grid, self._steering

        def columns(*names: str) -> Rows:
            return batch.events.select([name for name in names if name in batch.events.schema.names])

        def replan() -> Plan:
            counted = columns(*PLACED_BY).map(count_cells(grid), CELL_COUNTS).to_arrow()
            return steering.plan_batch(batch.number, sum_cells(counted, grid))

        def draw_first() -> Plan:
            sampled = columns(*PLACED_BY, TEXT.name).map(sample_events(grid), SAMPLED_EVENTS).to_arrow()
            return steering.plan_from_batch(batch.number, thin_out(sampled))

        draws = draw_first if steering.draws_from_batch else replan if steering.plans_batches else None
        now_us = int(self._clock() * 1e6)
        return self._checkpoint.prepare(batch.number, batch.operations, now_us, batch.content, draws)

    def _task(self, batch: Batch, state: StoredBatch) -> BatchTask:
        counts_events = any(entry.aggregates for entry in state.manifest.segments)
        name_task = batch.events.name_task
        return BatchTask(
            state,
            self._contract,
            self._tuning,
            batch.number,
            state.manifest.now_us,
            batch.columns,
            time.thread_time,
            name_task,
            any(entry.transitions for entry in state.manifest.segments),
            self._tuning.matches == "alerts" and any(entry.limited for entry in state.manifest.segments),
            counts_events,
            self._answers.watermark_us(batch.number),
            self._answers.begin(batch.number, state, name_task) if counts_events else None,
            self._steering.needs_stats,
            self._steering.needs_cells,
            self._level_tasks(batch.events, state.plan()),
            self._watch.wants_places,
        )

    def _level_tasks(self, events: Rows, plan: Plan) -> tuple[int, ...]:
        """The task of each executor, where a task serves several: so that by what they cost last, tasks end together.
        It decides nothing but that, so a batch that is run again may have others."""
        tasks = match_tasks(events, plan)
        if self._last is None or not 1 < tasks < plan.executors:
            return ()
        loads = self._last.executors
        return share_tasks([loads[i].cpu_us if i in loads else 0.0 for i in range(plan.executors)], tasks)

    def _matches(self, events: Rows, task: BatchTask, manifest: Manifest) -> Rows:
        matches = match(exchange(events, task), task)
        if task.asks_for_transitions or task.follows:
            matches = self._following.apply(matches, task, manifest.reorder)
        return matches.map(*make_alerts(task, matches.schema)) if task.tuning.matches == "alerts" else matches

    def _with_ends(self, matches: Rows, reached: pa.RecordBatch, task: BatchTask, manifest: Manifest) -> Rows:
        """Alerts, then the last rows of subscriptions that have ended; `reached` are those that end with this batch."""
        if task.tuning.matches != "alerts" or not (len(task.state.ends()) or len(reached)):
            return matches
        alerts = pa.schema([field for field in matches.schema if field.name != VERSION])
        ends = matches.numbers(1).map(tell_ends(task, alerts, reached), alerts)
        return matches.union(ends.add_constant(VERSION, manifest.version))

    def _with_pasts(self, matches: Rows, task: BatchTask, manifest: Manifest) -> Rows:
        """What the sink gets: the past of new subscriptions, then the matches, if the settings mark which is which."""
        if self._tuning.window is None or not self._tuning.window.marks_past:
            return matches
        marked = matches.add_constant(PAST.name, False)
        columns = nullable_columns(marked.schema)
        if manifest.pasts is not None:
            pasts = matches.numbers(1).map(*give_past(task))
            if task.tuning.matches == "alerts":
                pasts = pasts.map(*make_alerts(task, pasts.schema))
            pasts = pasts.add_constant(VERSION, manifest.version)
            marked = pasts.add_constant(PAST.name, True).union(marked)
        return marked.map(as_they_are, columns)

    def _shown(self, rows: Rows, task: BatchTask) -> Rows:
        """Rows with ids of subscriptions as they were given."""
        return rows if self._contract.subscription_ids == "integer" else rows.map(*show_ids(task, rows.schema))

    def _run_stages(self, events: Rows, matches: Rows, task: BatchTask) -> None:
        for stage, sink, keyed in self._stages:
            if stage.on == "matches":
                rows = self._shown(matches.map(*pairs_with_users(task, matches.schema)), task)
            else:
                rows = events.map(select_valid(task), task.events)
            sink.write(keyed.apply(rows, task.batch_id, task.now_us), task.batch_id)
            keyed.finish()


def _whole_reports(matches: Rows, state: StoredBatch) -> dict[str, list[LoadReport]]:
    """The counts of all tasks of the batch, by stage. If the sink read only part of the matches, the other tasks are
    run here, so that every dead letter is written and every event counted."""
    for attempt in range(2):
        stages = state.reports()
        total = sum(chain.from_iterable(stages.values()), LoadReport())
        if "route" in stages and total.events_in == total.events + total.dead and total.in_transit == 0:
            return stages
        if attempt == 0:
            matches.run()
    if "route" not in stages and not total.partitions:
        return stages  # the batch had no partition of events at all, as of a topic that is empty
    raise StreamError(
        f"batch {state.batch_id}: {total.events_in} events came in, {total.events} reached an executor and "
        f"{total.dead} became dead letters, which does not add up: the batch is not committed; start again from the "
        "checkpoint"
    )
