"""What a task spends is divided among its partitions: nothing is lost, nothing is charged twice."""

from dataclasses import replace

import numpy as np
import pytest

from geoswarm.control.task_costs import TASKS_MIN, UNKNOWN, CostRates, TaskCosts, divide_among_executors
from geoswarm.flow.observe import Load, LoadReport, TaskName

TRUE = CostRates(task_us=9000.0, event_us=1.2, match_us=0.4)


def task(executor: int, parts: dict[int, tuple[int, int, int]], rates: CostRates = TRUE) -> LoadReport:
    """A task that serves partitions with (events, matches, µs of matching) each, and spends the rest by `rates`."""
    report = LoadReport()
    for partition, (events, matches, match_us) in parts.items():
        report.add(partition, executor, Load(events, events, matches, match_us))
    events, matches, match_us = (sum(part[i] for part in parts.values()) for i in range(3))
    report.task_cpu_us = round(match_us + rates.task_us + rates.event_us * events + rates.match_us * matches)
    return report


def drawn(rng: np.random.Generator, executor: int) -> LoadReport:
    events = rng.integers(100, 50_000, 3)
    matches = events * rng.integers(0, 20, 3)
    return task(executor, {10 * executor + i: (int(events[i]), int(matches[i]), int(events[i]) // 9) for i in range(3)})


def learned(rng: np.random.Generator, batches: int = 8) -> TaskCosts:
    costs = TaskCosts()
    for _ in range(batches):
        costs.charge([drawn(rng, e) for e in range(4)], [0] * 4)
    return costs


def check(rates: CostRates) -> None:
    """What a task takes by itself is rather found too small than too large."""
    assert rates[1:] == pytest.approx(TRUE[1:], rel=0.05)
    assert 0.6 * TRUE.task_us < rates.task_us < 1.02 * TRUE.task_us


def test_the_rates_are_found() -> None:
    check(learned(np.random.default_rng(1)).rates)


def test_a_few_disturbed_tasks_change_little() -> None:
    rng = np.random.default_rng(2)
    costs = learned(rng, 20)
    costs.charge([drawn(rng, e) for e in range(4)], [5_000_000] * 4)
    check(costs.rates)


@pytest.mark.parametrize("seed", range(4))
def test_an_executor_is_charged_all_that_its_task_spent_and_partitions_their_part(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = learned(rng)
    reports, beside = [drawn(rng, e) for e in range(4)], [0, 70_000, 5_000, 123]
    for before, after, runner_us in zip(reports, costs.charge(reports, beside), beside, strict=True):
        whole_us, measured_us = before.task_cpu_us + runner_us, sum(load.cpu_us for load in before.partitions.values())
        assert sum(load.cpu_us for load in after.executors.values()) == whole_us
        rest_us = sum(load.cpu_us for load in after.partitions.values()) - measured_us
        fitted_us = before.task_cpu_us - measured_us
        movable = (fitted_us - TRUE.task_us) / fitted_us
        assert rest_us == pytest.approx(movable * (whole_us - measured_us), rel=0.03)
        for partition, load in after.partitions.items():
            assert load._replace(cpu_us=0) == before.partitions[partition]._replace(cpu_us=0)


def test_what_differs_by_chance_is_charged_to_nobody_and_what_differs_more_is() -> None:
    rng, costs = np.random.default_rng(5), TaskCosts()

    def charged(late: float) -> float:
        """What is charged to a partition beyond the fit, if its task takes so much longer than the fit says."""
        parts = {0: (20_000, 40_000, 0)}
        rates = costs.rates
        spent_us = (1 + late) * (rates.task_us + 20_000 * rates.event_us + 40_000 * rates.match_us)
        (after,) = costs.charge([replace(task(0, parts), task_cpu_us=round(spent_us))], [0])
        return after.partitions[0].cpu_us / (20_000 * costs.rates.event_us + 40_000 * costs.rates.match_us) - 1

    for _ in range(30):
        tasks = [drawn(rng, e) for e in range(4)]
        costs.charge(tasks, [int(each.task_cpu_us * rng.uniform(-0.1, 0.1)) for each in tasks])
    assert charged(0.05) == pytest.approx(0.0, abs=1e-3)
    assert charged(-0.05) == pytest.approx(0.0, abs=1e-3)
    assert 0.8 < charged(1.0) < 1.0


def test_events_that_match_nothing_are_charged() -> None:
    """A crowd where nobody subscribes costs no matching, but it is received, unpacked and written all the same."""
    costs = learned(np.random.default_rng(3))
    crowd, city = costs.charge([task(0, {0: (40_000, 0, 0)}), task(1, {1: (10_000, 10_000, 1_000)})], [0, 0])
    assert crowd.partitions[0].cpu_us > 2 * city.partitions[1].cpu_us


def test_a_task_that_the_runner_does_not_know_is_charged_by_the_rates() -> None:
    costs = learned(np.random.default_rng(4))
    unknown, known = task(0, {0: (1000, 500, 50)}), task(1, {1: (1000, 500, 50)})
    charged, _ = costs.charge([replace(unknown, task_cpu_us=10**7), known], [None, 0])
    rates = costs.rates
    assert charged.partitions[0].cpu_us == pytest.approx(50 + 1000 * rates.event_us + 500 * rates.match_us, abs=1)


def test_if_the_runner_says_nothing_the_workers_time_counts() -> None:
    costs = TaskCosts()
    tasks = [task(e, {e: (1000, 0, 100)}, CostRates(0.0, 50.0 if e == 0 else 5.0, 0.0)) for e in range(8)]
    for _ in range(20):
        slow, quick, *_ = costs.charge(tasks, [None] * 8)
    assert slow.partitions[0].cpu_us > 3 * quick.partitions[1].cpu_us


def test_a_batch_of_which_the_runner_says_nothing_leaves_the_rates_as_they_are() -> None:
    costs, rng = learned(np.random.default_rng(6)), np.random.default_rng(7)
    rates = costs.rates
    costs.charge([drawn(rng, e) for e in range(4)], [None] * 4)
    assert costs.rates == rates


def test_before_enough_tasks_are_seen_the_rest_goes_by_events() -> None:
    costs = TaskCosts()
    (charged,) = costs.charge([task(0, {0: (3000, 0, 10), 1: (1000, 90, 10)})], [0])
    assert costs.rates == UNKNOWN
    assert TASKS_MIN > 1
    rest = {i: load.cpu_us - 10 for i, load in charged.partitions.items()}
    assert rest[0] == pytest.approx(3 * rest[1], abs=3)


def test_no_task_and_no_event() -> None:
    costs = TaskCosts()
    assert costs.charge([], []) == []
    (charged,) = costs.charge([LoadReport(task_cpu_us=700)], [300])
    assert (charged.partitions, charged.executors) == ({}, {})


def test_what_a_runner_spent_on_a_task_is_divided_among_its_executors_by_their_events() -> None:
    shared, alone, unknown = (TaskName(1, number) for number in range(3))
    reports = [task(e, {e: (events, 0, 0)}) for e, events in enumerate((100, 300, 50, 70, 0))]
    for report, name in zip(reports, (shared, shared, alone, unknown, shared), strict=True):
        report.task = name
    assert divide_among_executors(reports, {shared: 8000, alone: 10}) == [2000, 6000, 10, None, 0]
    assert divide_among_executors([task(0, {})], {}) == [None]
