"""What a key, a unit of work and a given row cost an operator, fitted to the CPU times of its last tasks.

    CPU = per task + per key · keys + per unit · work + per row · given          (least squares, none negative)

One task is off by a tenth or a fifth on a shared machine; over hundreds of them it comes to nothing. Executors divide
what they really took by these costs (`flow/keyed/charge.py`). How far tasks are off is the noise of measuring: an
imbalance that it explains is no reason for a new plan (`loop.py`). Nothing here reads a clock: the same times give the
same costs.
"""

import math
from collections import deque

import numpy as np

from geoswarm.core.arrays.jit import Floats
from geoswarm.core.arrays.least_squares import fit_trimmed
from geoswarm.flow.keyed.charge import FIRST_COSTS, KeyCosts

TASKS_MAX = 512
"""The last tasks that are remembered, six numbers each."""
TASKS_MIN = 16
"""Tasks before the first fit: four costs need more than four."""
NOISE_WIDTH = 2.0
"""Median errors within which the busiest of a few equal executors usually is."""


class CostFit:
    def __init__(self) -> None:
        self._tasks: deque[tuple[float, ...]] = deque(maxlen=TASKS_MAX)

    def add(self, keys: int, work: float, given: int, cpu_us: float, measured_us: float = 0.0) -> None:
        """Adds a task. The operator measured `measured_us` of `cpu_us` key by key: that needs no fit."""
        if keys:
            self._tasks.append((1.0, keys, work, given, cpu_us - measured_us, cpu_us))

    def read(self) -> KeyCosts:
        if len(self._tasks) < TASKS_MIN:
            return FIRST_COSTS
        found = KeyCosts(*self._fit()[1:].tolist())
        return found if any(found) else FIRST_COSTS  # times that do not grow with anything

    def noise(self, batches: int) -> float:
        """How much more than the average an executor may seem to take in so many batches, as a share, by chance."""
        if len(self._tasks) < TASKS_MIN:
            return 0.0
        tasks = np.array(self._tasks)
        off_us = np.abs(tasks[:, :4] @ self._fit() - tasks[:, 4])
        return NOISE_WIDTH * float(np.median(off_us / np.maximum(tasks[:, 5], 1.0))) / math.sqrt(max(1, batches))

    def _fit(self) -> Floats:
        tasks = np.array(self._tasks)
        return fit_trimmed(tasks[:, :4], tasks[:, 4])
