"""The data plane without Spark: operations, guard, route, exchange, match and merge of one batch after another.

Two tasks before the exchange and one per executor behind it, as on Spark, but in turn and in this process. Who draws
the plans is the caller's business.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import pack, unpack
from geoswarm.flow.match.match import TermShare, match
from geoswarm.flow.merge import as_arrays, as_pairs, joined
from geoswarm.flow.observe import Load, LoadReport, count_points, some_said
from geoswarm.flow.route import Parcel, executors_of, route
from geoswarm.flow.route_terms import numbered, route_terms
from geoswarm.flow.validate import validate_events
from geoswarm.guard.rules import GuardRules
from geoswarm.run.oracle.oracle import Pair, pairs_of
from geoswarm.run.spark.tasks import BatchTask
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.manifest import Manifest

ROUTE_TASKS = 2


class Through(NamedTuple):
    """What became of one batch."""

    pairs: list[Pair]
    report: LoadReport
    plan: Plan
    """The one it was routed by."""
    manifest: Manifest


class PureEngine:
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
    ) -> Through:
        """Everything up to the sink; then `finish`, as the pipeline does. `replan` draws a plan for this batch."""
        manifest = self.checkpoint.prepare(number, lambda: [operations], now_us, "", replan)
        task = BatchTask(self.checkpoint.storage, self._contract, self.tuning, number, manifest, events.schema)
        plan, segments = task.plan(), task.subscriptions()
        report, out = LoadReport(events_in=len(events)), []
        for executor, parcel in self._exchanged(events, task, report):
            if "text" in parcel.events.schema.names:
                report.said += some_said(parcel.events)
            report.add_stat(parcel.partition, count_points(parcel.events, plan, parcel.partition))
            limits = {"rows_max": self.tuning.match_rows_max, "pairs_max": self.tuning.match_pairs_max}
            terms = TermShare.of(plan, parcel.partition)
            for met in match(parcel.events, segments, plan.grid, manifest.now_us, terms=terms, **limits):
                shape = as_arrays if self.tuning.matches == "arrays" or plan.siblings else as_pairs
                out += shape(met)
                work = len(met.events) + len(met.subs)
                load = Load(len(met.events), int(np.count_nonzero(np.diff(met.offsets))), len(met.subs), work)
                report.add(parcel.partition, executor, load)
        if plan.siblings and out:
            whole = joined(out)
            report.repeated, out = sum(map(len, out)) - len(whole), [whole]
        assert report.events + report.dead == report.events_in
        self.checkpoint.finish(number)
        return Through(pairs_of([pa.table(rows) for rows in out]), report, plan, manifest)

    def close(self) -> None:
        self.checkpoint.close()

    def _exchanged(self, events: pa.Table, task: BatchTask, report: LoadReport) -> Iterator[tuple[int, Parcel]]:
        """Parcels by the executor whose task gets them."""
        plan, first_event = task.plan(), 0
        arrived: dict[int, list[Any]] = {}
        share = -(-len(events) // ROUTE_TASKS) or 1
        for batch in events.combine_chunks().to_batches(max_chunksize=share):
            dead = DeadLetters("event", 0)
            good = validate_events(batch, plan.grid, dead)
            report.dead += len(dead)
            if plan.siblings:
                sent = route_terms(good, plan, task.subscriptions(), first_event)
                first_event += len(good)
                report.copies += sent.copies
                report.dropped += sent.dropped
                rows = pack(sent.parcels)
            else:
                rows = pack(route(good, plan)) if task.packs else good
            ids = rows.column("executor") if task.packs else pa.array(executors_of(good, plan))
            for i, executor in enumerate(ids.to_pylist()):
                assert 0 <= executor < plan.executors, "repartitionById would take it modulo"
                arrived.setdefault(executor, []).append(rows.slice(i, 1))
        for executor, slices in sorted(arrived.items()):
            whole = pa.concat_batches(slices)
            schema = numbered(events.schema) if plan.siblings else events.schema
            parcels = unpack(whole, schema) if task.packs else route(whole, plan)
            yield from ((executor, parcel) for parcel in parcels)
