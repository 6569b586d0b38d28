"""Executors are shared out among fewer tasks, by what they cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoswarm.control.task_shares import share_tasks


@pytest.mark.parametrize(
    ("costs", "tasks", "wanted"),
    [
        ([4.0, 3.0, 2.0, 1.0], 2, [5.0, 5.0]),
        ([109.0, 125.0, 1.0, 98.0, 70.0, 76.0, 11.0, 10.0], 2, [229.0, 271.0]),
        ([0.0, 0.0, 0.0, 7.0], 2, [0.0, 7.0]),
        ([1.0, 1.0, 1.0], 3, [1.0, 1.0, 1.0]),
    ],
)
def test_tasks_end_together(costs: list[float], tasks: int, wanted: list[float]) -> None:
    task_of = share_tasks(costs, tasks)
    held = [sum(c for c, t in zip(costs, task_of, strict=True) if t == task) for task in range(tasks)]
    assert sorted(held) == wanted


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=40), st.integers(1, 40))
def test_every_task_has_an_executor_and_none_is_overloaded(costs: list[float], tasks: int) -> None:
    tasks = min(tasks, len(costs))
    task_of = share_tasks(costs, tasks)
    assert set(task_of) == set(range(tasks))
    held = [sum(c for c, t in zip(costs, task_of, strict=True) if t == task) for task in range(tasks)]
    assert max(held) <= sum(costs) / tasks + max(costs) + 1e-6 * sum(costs)
