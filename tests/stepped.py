"""An engine batch by batch, in the hands of a test: the local engine's stages and checkpoint, without its loop.

The test decides what each batch holds, when it runs, by which plan, and where it dies. Loads are counted in events and
matches instead of CPU time, so a world runs the same each time.
"""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.flow.observe import Load, LoadReport
from geoswarm.flow.stages.task import BatchTask
from geoswarm.guard.rules import GuardRules
from geoswarm.run.oracle.outputs import Pair, pairs_of
from geoswarm.run.process_rows import ONLY_TASK, LocalRows
from geoswarm.run.to_matches import exchange, match
from geoswarm.store.batch_state import StoredBatch
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.manifest import Manifest

ROUTE_TASKS = 2


class BatchResult(NamedTuple):
    """The matches of one batch, and what it counted."""

    pairs: list[Pair]
    report: LoadReport
    plan: Plan
    """The one it was routed by."""
    manifest: Manifest


class SteppedEngine:
    def __init__(
        self,
        folder: Path,
        contract: Contract,
        tuning: Tuning | None = None,
        first_plan: Callable[[Grid, int], Plan] = uniform,
        guard: GuardRules | None = None,
    ) -> None:
        self.tuning, self._contract = tuning or Tuning(deltas_max=3), contract
        self.checkpoint = Checkpoint(str(folder), contract, self.tuning, first_plan, guard=guard)

    def batch(
        self,
        number: int,
        events: pa.Table,
        operations: pa.Table,
        now_us: int,
        replan: Callable[[], Plan] | None = None,
    ) -> BatchResult:
        """Everything up to the sink; then `finish`, as the pipeline does. `replan` draws a plan for this batch."""
        manifest = self.checkpoint.prepare(number, lambda: [operations], now_us, "", replan)
        state = StoredBatch(self.checkpoint.storage, number, manifest)
        state.forget_attempt()
        task = task_of(state, self._contract, self.tuning, events.schema, counts_points=True)
        matches = match(exchange(rows_of(events), task), task).to_arrow()
        report = sum(chain.from_iterable(state.reports().values()), LoadReport())
        assert report.events + report.dead == report.events_in == len(events)
        assert report.in_transit == 0
        for loads in (report.partitions, report.executors):
            loads.update({key: work_by_count(load) for key, load in loads.items()})
        state.forget_reports()
        self.checkpoint.finish(number)
        return BatchResult(pairs_of([matches]), report, state.plan(), manifest)

    def close(self) -> None:
        self.checkpoint.close()


def task_of(
    state: StoredBatch, contract: Contract, tuning: Tuning, events: pa.Schema, *, counts_points: bool = False
) -> BatchTask:
    now_us = state.manifest.now_us
    return BatchTask(
        state,
        contract,
        tuning,
        state.batch_id,
        now_us,
        events,
        lambda: 0.0,
        lambda: ONLY_TASK,
        counts_points=counts_points,
    )


def rows_of(table: pa.Table, tasks: int = ROUTE_TASKS) -> LocalRows:
    """A table as the rows of some tasks, each with a part of it."""
    share = -(-len(table) // tasks) or 1
    batches = table.combine_chunks().to_batches(max_chunksize=share)
    return LocalRows(table.schema, lambda: [iter([batch]) for batch in batches] or [iter(())])


def work_by_count(load: Load) -> Load:
    return load._replace(cpu_us=load.events + load.matches)
