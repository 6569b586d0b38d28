"""The queues of a virtual cluster, event by event: how long each event waits, and when sources must stop.

These are loops over arrays; `cluster.py` explains the model.
"""

from typing import NamedTuple

from geoswarm.core.arrays.jit import Floats, Ints, kernel


class QueueTimes(NamedTuple):
    """The times at which machines and sources are free, which the kernel updates."""

    free_at_s: Floats
    """When each machine will have done all its work."""
    credit_at_s: Floats
    """When each credit comes back, as a heap with the first at the root."""
    source_at_s: Floats
    """When the sources can send again, (1,)."""


@kernel
def serve(
    clock: QueueTimes, machines: Ints, work_s: Floats, start_s: float, step_s: float, pace_s: float
) -> tuple[int, float]:
    """Sends as many of a step's events as its time and the credits allow. Returns their number and sum of latencies."""
    now_s, end_s = max(clock.source_at_s[0], start_s), start_s + step_s
    sent, latency_s = 0, 0.0
    for i in range(len(machines)):
        now_s = max(now_s, clock.credit_at_s[0])
        if now_s >= end_s:
            break
        done_s = max(now_s, clock.free_at_s[machines[i]]) + work_s[i]
        clock.free_at_s[machines[i]] = done_s
        _replace_root(clock.credit_at_s, done_s)
        latency_s += done_s - now_s
        sent += 1
        now_s += pace_s
    clock.source_at_s[0] = now_s
    return sent, latency_s


@kernel
def serve_batch(
    backlog_s: Floats, machines: Ints, work_s: Floats, step_s: float, pace_s: float
) -> tuple[int, float, Floats]:
    """The same for a batch, without credits. Returns also the work of each machine."""
    load_s = backlog_s.copy()
    sent, latency_s = 0, 0.0
    for i in range(len(machines)):
        done_s = load_s[machines[i]] + work_s[i]
        if done_s > step_s or i * pace_s >= step_s:
            break
        load_s[machines[i]] = done_s
        latency_s += done_s
        sent += 1
    return sent, latency_s, load_s


@kernel
def _replace_root(heap: Floats, value: float) -> None:
    """Replaces the least value by `value`."""
    size, at = len(heap), 0
    while True:
        child = 2 * at + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if child >= size or heap[child] >= value:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value
