"""The number of executors while a stream runs: requests from any process, and the rule that follows the load.

`control/elastic.py` is the rule, `store/scale_requests.py` the files of requests. `steering.py` draws the plan with the
number, `pipeline.py` asks for it between two batches.
"""

from collections.abc import Callable

from geoswarm.config import Contract, ExecutorRange, Tuning
from geoswarm.control.elastic import ClusterState, Elastic, TimedBatch
from geoswarm.control.outcome import ScaleEntry
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.scale_requests import clear_requests, waiting_requests

INTERVAL_S = 2.0
"""Seconds that a batch may take where neither a trigger nor the range says it: ten times what an empty one takes."""

PutInForce = Callable[[int], None]
"""Draws the plan with a number of executors, and writes it to disk."""


class Scaling:
    def __init__(
        self,
        checkpoint: Checkpoint,
        contract: Contract,
        tuning: Tuning,
        every_s: float,
        slots: Callable[[], int | None],
        put_in_force: PutInForce,
    ) -> None:
        self._checkpoint, self._slots, self._put_in_force = checkpoint, slots, put_in_force
        span, most = tuning.executors, contract.executors_max
        self._span = ExecutorRange(min=1, max=most)
        self._elastic: Elastic | None = None
        if span is not None:
            self._span = span.model_copy(update={"max": min(span.max, most)})
            self._elastic = Elastic(self._span, span.batch_s or every_s or INTERVAL_S, tuning.round_s)

    def take_requests(self) -> None:
        """Before a batch, put the newest request in force, and the range if the number is outside it."""
        storage, executors = self._checkpoint.storage, self._checkpoint.plan.executors
        names, newest = waiting_requests(storage)
        if newest is not None:
            allowed = self._span.clamp(newest.executors)
            reason = f"someone asked for {newest.executors} executors"
            if allowed != newest.executors:
                reason += f", and {allowed} are within the range"
            self._apply(ScaleEntry(executors, allowed, "command", reason, now_s=newest.at_us / 1e6))
        elif names:
            self._apply(ScaleEntry(executors, executors, "command", "a file in scale/ is damaged: scale again"))
        elif self._elastic is not None and self._span.clamp(executors) != executors:
            allowed = self._span.clamp(executors)
            self._apply(ScaleEntry(executors, allowed, "range", "the number is outside the range"))
        if names:
            clear_requests(storage, names)  # the plan is durable

    def add_batch(self, batch: BatchEntry) -> None:
        """After a batch, let the rule decide, if a round has ended."""
        if self._elastic is None:
            return
        plan = self._checkpoint.plan
        at_work = {owner for partition in plan.partitions for owner in partition.owners}
        state = ClusterState(plan.executors, plan.executors - len(at_work), self._slots())
        entry = self._elastic.add_batch(TimedBatch(batch.now_s, batch.batch_s, batch.events_in), state)
        if entry is not None:
            self._apply(entry)

    def _apply(self, entry: ScaleEntry) -> None:
        self._checkpoint.fence.check()  # an engine that was replaced takes no request
        self._checkpoint.journal.append(entry)
        if entry.executors_next != entry.executors:
            self._put_in_force(entry.executors_next)
