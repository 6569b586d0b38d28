"""A keyed operator's tasks: route rows by key, work on each executor, and merge where keys were split.

    rows -> feed -> route -> exchange -> work -> (exchange -> merge) -> out

`flow/keyed/` has the operators and the work of an executor; `run/keyed.py` has the order of the steps.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import gather
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import EVENT_PARCEL, NARROW_PARCEL, PASSING_PARCEL, pack_parcels, unpack_parcels
from geoswarm.flow.keyed.key_report import KeyedReport
from geoswarm.flow.keyed.route import route_by_key, route_given
from geoswarm.flow.keyed.work import ExecutorWork, KeyedTask, merge_given
from geoswarm.flow.route import Parcel
from geoswarm.flow.stages.task import Body, ExecutorBody

ROUTED_ROWS_MAX = 1_000_000
"""Rows routed at once by a task."""


def route_keys(task: KeyedTask) -> Body:
    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted = KeyedReport()
        for chunk, batch in enumerate(gather(batches, ROUTED_ROWS_MAX)):
            fed = task.operator.feed(batch)
            if fed.schema != task.fed:
                fed = fed.cast(task.fed)
            counted.rows += len(fed)
            fed, aside = task.operator.aside(fed)
            if aside is not None and len(aside):
                executor = task.plan.executors[number % len(task.plan.executors)]
                yield pack_parcels(iter([Parcel(0, executor, aside, PASSING_PARCEL)]))
            dead = DeadLetters("row", task.moment.batch)
            yield pack_parcels(route_by_key(fed, task.operator, task.plan, dead))
            if len(dead):
                part = f"{task.operator.name}-{number:05d}-{chunk:04d}"
                task.state.file_dead_letters(task.moment.batch, part, dead.table())
            counted.sent += len(fed) - len(dead)
            counted.dead += len(dead)
        task.state.report(task.reports, "route", number, counted)

    return run


def work_on_keys(task: KeyedTask) -> ExecutorBody:
    """The rows that the operator gives, as they go out."""
    return _work_and(lambda given: given, task)


def work_in_parts(task: KeyedTask) -> ExecutorBody:
    """The rows that the operator gives, packed for the executor that merges them."""
    by, executors = task.operator.merge_by or "", np.array(task.plan.executors)
    return _work_and(lambda given: pack_parcels(route_given(given, by, executors)), task)


def _work_and(shape: Callable[[pa.RecordBatch], pa.RecordBatch], task: KeyedTask) -> ExecutorBody:
    given = task.operator.given(task.fed)
    columns_of = {PASSING_PARCEL: given, EVENT_PARCEL: task.fed, NARROW_PARCEL: task.operator.narrow}

    def run(executor: int, batches: Iterator[pa.RecordBatch], received_s: float) -> Iterator[pa.RecordBatch]:
        began_s = task.cpu_s() - received_s
        rows = list[pa.RecordBatch]()
        for batch in batches:
            kinds = batch.column("kind").to_numpy()
            for kind, columns in columns_of.items():
                found = batch if (kinds == kind).all() else batch.filter(pa.array(kinds == kind))  # which would copy
                parcels = unpack_parcels(found, columns) if len(found) else ()
                if kind == PASSING_PARCEL:
                    yield from (shape(parcel.events) for parcel in parcels)
                else:
                    rows += (parcel.events for parcel in parcels)
        if executor not in task.plan.executors:
            return  # it has left; tasks are numbered without gaps
        work = (task.operator.work() or ExecutorWork)(task, executor)
        yield from (shape(batch) for batch in work.run(rows))
        work.report.cpu_us = int((task.cpu_s() - began_s) * 1e6)  # with what becomes of the rows that went out
        work.report.task = None if task.name_task is None else task.name_task()
        task.state.report_loads(task.reports, executor, work.loads.pack())
        task.state.report(task.reports, "work", executor, work.report)

    return run


def merge_keys(task: KeyedTask) -> Body:
    given = task.operator.given(task.fed)

    def run(executor: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [parcel.events for batch in batches for parcel in unpack_parcels(batch, given)]
        yield from merge_given(rows, task.operator)

    return run
