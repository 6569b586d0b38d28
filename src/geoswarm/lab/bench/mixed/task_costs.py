"""What a row, a key and a unit of work cost, fitted to the CPU times of many tasks.

Measures nothing by itself; `keyed_race.py` has the tasks. One of them takes a few milliseconds, and on a shared machine
a tenth or a fifth more or less the next time (`error` says how much it was). That is more than the imbalance that is to
be seen, and the largest of 15 is the unluckiest. Over hundreds of tasks it comes to nothing:

    CPU = per task + per row · rows + per key · keys + per unit · other work            (least squares, none negative)
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.arrays.least_squares import fit_trimmed

ROW_US_MIN = 0.001
"""The least cost of a row: one that is too small to measure in small batches is not zero."""


class StageTasks(NamedTuple):
    """The tasks of one stage in one round, by executor."""

    rows: Ints
    keys: Ints
    other: Floats
    """Work beyond the rows, in the operator's own unit."""
    cpu_us: Floats


class TaskCosts(NamedTuple):
    """Microseconds per task, row, key and unit of other work."""

    first: Floats
    second: Floats | None
    """The costs of PKG's second operator."""
    error: float
    """The median difference between a task's time and its fitted costs, as a share."""

    def to_json(self) -> dict[str, Any]:
        names = ("task_us", "row_us", "key_us", "other_us")
        stages = {"": self.first} | ({} if self.second is None else {"pkg_": self.second})
        figures = {f"{p}{n}": float(c) for p, costs in stages.items() for n, c in zip(names, costs, strict=True)}
        return figures | {"error": self.error}


def fit_costs(stages: Sequence[StageTasks]) -> tuple[Floats, float]:
    """The costs, and how far off a task is."""
    seen = np.concatenate([task_features(tasks) for tasks in stages])
    cpu_us = np.concatenate([tasks.cpu_us for tasks in stages])
    costs = fit_trimmed(seen, cpu_us)
    costs[1] = max(costs[1], ROW_US_MIN)
    return costs, float(np.median(np.abs(seen @ costs - cpu_us) / np.maximum(cpu_us, 1.0)))


def task_features(tasks: StageTasks) -> Floats:
    return np.stack([np.ones(len(tasks.rows)), tasks.rows, tasks.keys, tasks.other], axis=1).astype(np.float64)
