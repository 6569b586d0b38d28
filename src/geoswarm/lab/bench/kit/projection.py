"""What a batch would take on a machine per executor, from the CPU time that its tasks report.

This machine has two cores, the papers' clusters have many, so throughput is projected: every event is routed, exchanged
and matched by Spark as always, and a batch would end when the last machine is done. Tasks are handed to machines in
order, each to the first that is free, as Spark does; with as many executors as machines that is the costliest executor.
The network, and what Spark takes to start a task, is left out.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from geoswarm.lab.bench.kit.batch_log import executors_cpu_us
from geoswarm.store.journal.entries import BatchEntry


@dataclass(frozen=True)
class ProjectedBatch:
    """One batch, and what it would take on many machines."""

    entry: BatchEntry
    makespan_s: float
    """Until the last machine is done, routing included where it is shared out."""
    match_mean_s: float
    """Of all machines: what perfect balance would take for matching."""
    match_max_s: float
    route_s: float
    """Of one machine, which routes its share; 0 where routing is left out."""

    @property
    def events(self) -> int:
        return self.entry.events_in

    @property
    def mean_s(self) -> float:
        """What the batch would take with perfect balance."""
        return self.route_s + self.match_mean_s


def project(entry: BatchEntry, machines: int, *, routed: bool = True) -> ProjectedBatch:
    """`routed`: routing is shared out among all machines, and comes before matching."""
    tasks_us = executors_cpu_us(entry, machines)
    route_s = entry.route_cpu_us / machines * 1e-6 if routed else 0.0
    match_s = makespan_us(tasks_us, machines) * 1e-6
    return ProjectedBatch(entry, route_s + match_s, sum(tasks_us) / machines * 1e-6, match_s, route_s)


def makespan_us(tasks_us: Sequence[float], machines: int) -> float:
    """When the last machine is done, if each task goes to the first that is free."""
    free_at = [0.0] * machines
    for task_us in tasks_us:
        heapq.heapreplace(free_at, free_at[0] + task_us)
    return max(free_at)
