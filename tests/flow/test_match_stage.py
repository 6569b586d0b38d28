"""The task behind the exchange: it may serve several executors, and counts for each."""

from types import SimpleNamespace
from typing import Any

from geoswarm.config import EXECUTORS_MAX
from geoswarm.flow.observe import Load, TaskName
from geoswarm.flow.stages.match import _ExecutorClock

NAME = TaskName(3, 4)


class Clock:
    def __init__(self) -> None:
        self.now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def clock_of(clock: Clock) -> _ExecutorClock:
    task: Any = SimpleNamespace(cpu_s=clock, name_task=lambda: NAME)
    return _ExecutorClock(task)


def test_executors_are_charged_their_own_time_and_an_equal_part_of_the_beginning() -> None:
    clock = Clock()
    shared = clock_of(clock)
    clock.now_s += 0.2  # until the subscriptions are mapped
    for executor, spent_s in ((5, 1.0), (1, 0.5), (5, 0.25)):
        assert shared.turn_to(executor).task == NAME
        clock.now_s += spent_s
    reports = shared.reports(1)
    assert {executor: report.task_cpu_us for executor, report in reports.items()} == {5: 1_350_000, 1: 600_000}


def test_what_is_done_for_all_executors_at_the_end_is_divided_by_their_matches() -> None:
    clock = Clock()
    shared = clock_of(clock)
    for executor, matches in ((5, 30), (1, 10), (7, 0)):
        shared.turn_to(executor).add(0, executor, Load(50, matches, matches, 0))
        clock.now_s += 1.0
    shared.end_turns()
    clock.now_s += 0.4
    reports = shared.reports(1)
    assert {e: report.task_cpu_us for e, report in reports.items()} == {5: 1_300_000, 1: 1_100_000, 7: 1_000_000}


def test_a_task_without_parcels_reports_all_the_same() -> None:
    clock = Clock()
    shared = clock_of(clock)
    clock.now_s += 0.5
    (number,), (report,) = zip(*shared.reports(2).items(), strict=True)
    assert number >= EXECUTORS_MAX  # which no report of an executor has
    assert report.task_cpu_us == 500_000
