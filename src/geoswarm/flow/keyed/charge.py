"""c(k): what each key is charged of the CPU time that its executor took in a batch.

An operator that measures its keys one by one (`own.py`) charges each what its call took. All other time, which is that
of grouping, looking up, compiled loops and files, is divided by what a key, a unit of work and a given row are known to
cost. The sum over the keys of an executor is the time that it took. `control/keyed/costs.py` fits the costs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.flow.keyed.key_report import KeyedReport
from geoswarm.flow.keyed.operator import Answer
from geoswarm.flow.observe import TaskName


class KeyCosts(NamedTuple):
    """Microseconds. Only their ratios count where a measured time is divided."""

    key_us: float
    """Per key with rows in the batch."""
    work_us: float
    """Per unit of the operator's work."""
    given_us: float
    """Per row that the operator gives."""


FIRST_COSTS = KeyCosts(1.0, 0.3, 0.3)
"""Until there are tasks enough to fit others: a count of words has about these."""


class WorkedKeys(NamedTuple):
    """The keys of an executor in a batch, and what was done for each."""

    ids: Ints
    work: Floats
    """In the operator's own unit."""
    given: Floats
    """Rows that went out."""
    took_us: Floats
    """What the operator measured."""
    state: Floats
    """S(k, w): bytes of state that the key holds in the window."""

    @classmethod
    def of(cls, ids: Ints, answer: Answer, state: Floats) -> "WorkedKeys":
        given = np.zeros(len(ids)) if answer.given_counts is None else answer.given_counts.astype(np.float64)
        took_us = np.zeros(len(ids)) if answer.took_us is None else answer.took_us
        return cls(ids, np.asarray(answer.work, np.float64), given, took_us, state)

    @classmethod
    def join(cls, parts: Sequence["WorkedKeys"]) -> "WorkedKeys":
        if not parts:
            return cls(np.empty(0, np.int64), *(np.empty(0) for _ in range(4)))
        return cls(*(np.concatenate([part[i] for part in parts]) for i in range(5)))


def charge_keys(worked: WorkedKeys, cpu_us: float, costs: KeyCosts) -> Floats:
    """The share of each key in `cpu_us`. It is all charged, if there is any key."""
    measured_us = float(worked.took_us.sum())
    if measured_us >= cpu_us:
        return worked.took_us * (cpu_us / measured_us) if measured_us else worked.took_us
    weights = costs.key_us + costs.work_us * worked.work + costs.given_us * worked.given
    total = float(weights.sum())
    shares = weights / total if total else np.full(len(weights), 1.0 / max(1, len(weights)))
    return worked.took_us + (cpu_us - measured_us) * shares


def add_runner_time(worked: Mapping[int, KeyedReport], spent_us: Mapping[TaskName, int]) -> dict[int, KeyedReport]:
    """The reports of executors with what the runner spent on them. Its time is known for a task, and divided by the
    rows of the executors that the task served: it reads and hands on rows. If that of any task is not known, the
    worker's time counts alone, so that all executors of a batch are measured alike."""
    if not all(report.task in spent_us for report in worked.values()):
        return dict(worked)
    rows, served = Counter[TaskName | None](), Counter[TaskName | None]()
    for report in worked.values():
        rows[report.task] += report.rows
        served[report.task] += 1
    whole = dict[int, KeyedReport]()
    for executor, report in worked.items():
        task = report.task
        assert task is not None, "it is in `spent_us`"
        share = report.rows / rows[task] if rows[task] else 1 / served[task]
        whole[executor] = replace(report, cpu_us=report.cpu_us + round(share * spent_us[task]))
    return whole
