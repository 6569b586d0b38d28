"""Which task serves which executors, where tasks are fewer: so that all end together.

An executor's work is decided by the plan (`balance/`); this only chooses the task in which it is done.
"""

import heapq
from collections.abc import Sequence


def share_tasks(costs: Sequence[float], tasks: int) -> tuple[int, ...]:
    """The task of each executor: the costliest first, each to the task that has least so far. No task is without an
    executor if there are as many."""
    held = [(0.0, 0, task) for task in range(tasks)]
    task_of = [0] * len(costs)
    for executor in sorted(range(len(costs)), key=lambda i: -costs[i]):
        cost, count, task = held[0]
        task_of[executor] = task
        heapq.heapreplace(held, (cost + costs[executor], count + 1, task))
    return tuple(task_of)
