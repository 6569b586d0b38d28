"""What a task spends, divided among the partitions that it served: the one signal for all that balances or projects.

The clock around the matcher sees a small part of it. Receiving, unpacking, shaping and writing are known for a task as
a whole: the CPU time of its worker, and of the runner beside it. What a task takes beyond matching is fitted,

    rest = per task + per event · events + per match · matches        (least squares, none negative)

over the last tasks, and then the rest of each task is divided among its partitions in these proportions. What every
task takes belongs to no partition: no plan can move it. And a task that takes a little more or less than others of its
size may do so by chance, so only what is beyond the usual difference is charged to its partitions.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.least_squares import fit_trimmed
from geoswarm.flow.observe import NO_LOAD, Load, LoadReport, TaskName

TASKS_MAX = 2048
"""Tasks that a fit is over, the newest ones. A sink, or the stream, may become another."""
TASKS_MIN = 8
"""With fewer tasks, nothing is fitted."""
DISLIKE = (0.01, 0.0, 0.0)
"""Once executors are level, all tasks are alike, and it is open whether they take so long or what they do. The latter
is assumed: it is what can be moved."""
USUAL = 0.75
"""The share of all tasks that differ from the fit by no more than what is usual."""


class CostRates(NamedTuple):
    """What was fitted, in µs of CPU beyond matching."""

    task_us: float
    event_us: float
    match_us: float


UNKNOWN = CostRates(0.0, 1.0, 0.0)
"""Until enough is known: about what an event takes on its way through Spark."""


class TaskCosts:
    """Charges the tasks of one batch after the other."""

    def __init__(self) -> None:
        self._tasks: deque[tuple[float, float, float, float]] = deque(maxlen=TASKS_MAX)
        self._batches = 0
        self._runner_answers = False
        """Whether the runner has ever said what it spent."""
        self.rates = UNKNOWN
        self._usual = 0.0
        """By what share the time of a task differs from its fit by chance."""

    def charge(self, tasks: Sequence[LoadReport], runner_us: Sequence[int | None]) -> list[LoadReport]:
        """The reports of match tasks, with all that each spent in its loads. `runner_us` is the runner's part. A task
        of which it is not known is charged as its counts cost others. If it never is, the worker's time counts."""
        if not any(task.partitions for task in tasks):
            return list(tasks)
        answers = self._runner_answers or any(beside is not None for beside in runner_us)
        if self._batches == 1 or answers != self._runner_answers:
            self._tasks.clear()  # workers started in the first batch; and times with and without do not compare
        self._batches, self._runner_answers = self._batches + 1, answers
        runner_us = runner_us if answers else [0] * len(tasks)
        rests = [_rest_us(task, beside) for task, beside in zip(tasks, runner_us, strict=True)]
        for task, rest_us in zip(tasks, rests, strict=True):
            whole = _sum(task)
            if whole.events and rest_us is not None:
                self._tasks.append((1.0, whole.events, whole.matches, rest_us))
        self._fit()
        return [self._charge(task, rest_us) for task, rest_us in zip(tasks, rests, strict=True)]

    def _fit(self) -> None:
        if len(self._tasks) < TASKS_MIN:
            return
        seen = np.array(self._tasks)
        terms, rests = seen[:, :3], seen[:, 3]
        rates = CostRates(*fit_trimmed(terms, rests, dislike=DISLIKE).tolist())
        self.rates = rates if rates.event_us + rates.match_us > 0 else UNKNOWN._replace(task_us=rates.task_us)
        fitted = terms @ np.array(self.rates)
        self._usual = float(np.quantile(np.abs(rests - fitted) / np.maximum(fitted, 1.0), USUAL))

    def _charge(self, task: LoadReport, rest_us: float | None) -> LoadReport:
        weights = {i: self._weight(load) for i, load in task.partitions.items()}
        fitted_us = self.rates.task_us + sum(weights.values())
        rest_us = fitted_us if rest_us is None else rest_us
        off = rest_us / max(fitted_us, 1.0) - 1.0
        own = 1.0 + math.copysign(max(0.0, abs(off) - self._usual), off)
        partitions = {
            i: load._replace(cpu_us=round(load.cpu_us + own * weights[i])) for i, load in task.partitions.items()
        }
        executors = {i: load._replace(cpu_us=round(load.cpu_us + rest_us)) for i, load in task.executors.items()}
        return replace(task, partitions=partitions, executors=executors)

    def _weight(self, load: Load) -> float:
        return self.rates.event_us * load.events + self.rates.match_us * load.matches


def _rest_us(task: LoadReport, runner_us: int | None) -> float | None:
    """What the task spent beyond matching, if that is known."""
    return None if runner_us is None else max(0.0, float(task.task_cpu_us + runner_us - _sum(task).cpu_us))


def _sum(task: LoadReport) -> Load:
    return sum(task.partitions.values(), NO_LOAD)


def divide_among_executors(reports: Sequence[LoadReport], spent_us: Mapping[TaskName, int]) -> list[int | None]:
    """What the runner spent for each report. A task that served several executors has one report for each, and its
    time is divided by their events."""
    events = Counter[TaskName | None]()
    for report in reports:
        events[report.task] += _sum(report).events
    return [
        round(spent_us[report.task] * _sum(report).events / max(1, events[report.task]))
        if report.task is not None and report.task in spent_us
        else None
        for report in reports
    ]
