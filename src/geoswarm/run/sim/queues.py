"""The queues of a virtual cluster, event by event: who waits how long, and when sources must stop.

Loops over arrays alone; what is behind them, and why, is explained in `cluster.py`.
"""

from typing import NamedTuple

from geoswarm.core.arrays.jit import Floats, Ints, kernel


class QueueTimes(NamedTuple):
    """What the machines and the sources are at, as the kernel changes it."""

    free_at_s: Floats
    """When each machine has done all that it has."""
    credit_at_s: Floats
    """A heap: when each credit comes back, the first at the root."""
    source_at_s: Floats
    """One number: when the sources can send again."""


@kernel
def serve(
    clock: QueueTimes, machines: Ints, work_s: Floats, start_s: float, step_s: float, pace_s: float
) -> tuple[int, float]:
    """Send as many of a step's events as its time and the credits allow: (how many, the sum of their latencies)."""
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
    """The same for a batch, without credits: (how many, the sum of their latencies, what each machine has to do)."""
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
    """The least leaves, `value` comes in."""
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
