"""The elastic rule: loads in, executors out."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.config import ExecutorRange
from geoswarm.control.elastic import (
    DOWN_ROUNDS,
    UP_ROUNDS,
    WAIT_ROUNDS,
    ClusterState,
    Elastic,
    TimedBatch,
)
from geoswarm.control.outcome import ScaleEntry

SPAN = ExecutorRange(min=2, max=64)
INTERVAL_S, ROUND_S = 1.0, 10.0
WAITING_S_MAX = 1000.0
"""Seconds of stream that a batch takes in, however long it had to wait."""


class Stream:
    """A stream by arithmetic: a batch takes `fixed_s`, and `work_s` per second of stream, shared by the executors."""

    def __init__(
        self,
        executors: int,
        span: ExecutorRange = SPAN,
        *,
        fixed_s: float = 0.0,
        every_s: float = INTERVAL_S,
        slots: int | None = None,
        seed: int = 0,
        noise: float = 0.0,
    ) -> None:
        self.executors, self.fixed_s, self.every_s, self.slots = executors, fixed_s, every_s, slots
        self.rule = Elastic(span, every_s or INTERVAL_S, ROUND_S)
        self.rng, self.noise = np.random.default_rng(seed), noise
        self.began_s = self.waiting_s = 0.0
        self.decisions: list[ScaleEntry] = []

    def run(self, rounds: int, work_s: float) -> list[int]:
        """The number of executors after each of so many decisions."""
        numbers: list[int] = []
        while len(numbers) < rounds:
            arrived_s = self.waiting_s
            noise = self.rng.uniform(1 - self.noise, 1 + self.noise)
            batch_s = self.fixed_s + arrived_s * work_s * noise / min(self.executors, self.slots or self.executors)
            batch = TimedBatch(self.began_s, batch_s, round(arrived_s * work_s * 1000))
            pause_s = max(batch_s, self.every_s, 0.2)
            self.began_s += pause_s
            self.waiting_s = min(pause_s, WAITING_S_MAX)
            decided = self.rule.add_batch(batch, ClusterState(self.executors, slots=self.slots))
            if decided is not None:
                self.decisions.append(decided)
                self.executors = decided.executors_next
                numbers.append(self.executors)
        return numbers


SETTLED = WAIT_ROUNDS + DOWN_ROUNDS + 1

STEADY = (
    # executors, work in executors, fixed seconds, trigger: executors at the end, why
    (8, 4.0, 0.0, 1.0, 8, "half busy: stays"),
    (8, 5.6, 0.1, 1.0, 8, "80 % is reached only now and then"),
    (8, 8.0, 0.0, 1.0, 16, "full: twice as many"),
    (8, 7.0, 0.0, 1.0, 14, "so many that they are half busy"),
    (8, 20.0, 0.0, 1.0, 64, "far behind, in steps"),
    (60, 58.0, 0.0, 1.0, 64, "never above the range"),
    (8, 2.0, 0.0, 1.0, 4, "a quarter busy: half as many"),
    (8, 0.1, 0.0, 1.0, 2, "nearly idle: down in steps, never below the range"),
    (2, 0.0, 0.0, 1.0, 2, "nothing at all"),
    (8, 0.1, 0.25, 1.0, 2, "what a batch costs in any case is below 30 %"),
    (8, 0.1, 0.5, 1.0, 8, "what a batch costs in any case is half of the interval: it might be work"),
    (4, 0.4, 0.2, 0.0, 2, "no trigger, so there is no rest between batches, but they are short"),
    (8, 7.9, 0.2, 0.0, 16, "no trigger, and batches get longer and longer"),
)


@pytest.mark.parametrize(("executors", "work_s", "fixed_s", "every_s", "want", "why"), STEADY)
def test_a_steady_load_gets_the_executors_that_it_needs(
    executors: int, work_s: float, fixed_s: float, every_s: float, want: int, why: str
) -> None:
    stream = Stream(executors, fixed_s=fixed_s, every_s=every_s)
    assert stream.run(8 * SETTLED, work_s)[-1] == want, why


def test_a_step_is_answered_in_a_few_rounds_and_comes_back() -> None:
    stream = Stream(2)
    assert set(stream.run(20, 1.0)) == {2}
    up = stream.run(40, 16.0)
    assert up[-1] == 32
    assert up.index(32) < 4 * (UP_ROUNDS + WAIT_ROUNDS + 1)  # four times twice as many
    down = stream.run(60, 1.0)
    assert down[-1] == 2
    assert down.index(2) < 4 * (DOWN_ROUNDS + WAIT_ROUNDS + 1)
    assert max(down) == 32
    assert stream.run(20, 1.0)[-1] == 2


@settings(deadline=None, max_examples=60)
@given(
    work_s=st.floats(0.0, 60.0),
    executors=st.integers(1, 64),
    fixed_s=st.sampled_from([0.0, 0.05, 0.3, 0.9]),
    every_s=st.sampled_from([0.0, 1.0, 3.0]),
    slots=st.sampled_from([None, 4, 16]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_constant_load_with_noise_never_makes_it_swing(
    work_s: float, executors: int, fixed_s: float, every_s: float, slots: int | None, seed: int
) -> None:
    """It may learn once what too few and too many are; after that nothing changes any more."""
    span = ExecutorRange(min=1, max=64)
    stream = Stream(executors, span, fixed_s=fixed_s, every_s=every_s, slots=slots, seed=seed, noise=0.2)
    numbers = [executors, *stream.run(250, work_s)]
    assert all(span.min <= n <= span.max for n in numbers)
    steps = [(a, b) for a, b in pairwise(numbers) if a != b]
    turns = sum((a < b) != (c < d) for (a, b), (c, d) in pairwise(steps))
    assert turns <= 4, numbers
    assert len(set(numbers[150:])) == 1, numbers
    assert all(0.5 <= b / a <= 2.0 or abs(b - a) == 1 for a, b in steps), numbers


def test_more_executors_that_do_not_help_are_taken_back_and_not_tried_again() -> None:
    stream = Stream(8, fixed_s=0.9)
    numbers = stream.run(40, 0.05)
    assert numbers[-1] == 8
    assert max(numbers) == 15
    assert sum(a != b for a, b in pairwise(numbers)) == 2
    assert stream.decisions[-1].reason.endswith("but more than 8 executors did not help")
    assert any("no shorter with 15 executors: back to 8" in decided.reason for decided in stream.decisions)
    stream.fixed_s = 0.0
    assert stream.run(30, 9.0)[-1] > 8  # other events: it is tried again


def test_there_are_no_more_executors_than_tasks_that_run_at_once() -> None:
    stream = Stream(2, slots=6)
    assert stream.run(40, 20.0)[-1] == 6
    assert stream.decisions[-1].slots == 6
    assert stream.decisions[-1].reason.endswith("but the cluster runs 6 tasks at once: give it more cores")
    above = Stream(8, slots=6)
    assert set(above.run(40, 20.0)) == {8}  # a number that someone chose stays


def test_it_waits_until_the_strategy_has_given_new_executors_work() -> None:
    rule, decisions = Elastic(SPAN, INTERVAL_S, 1.0), []
    for number in range(30):
        idle = max(0, 6 - number)
        decided = rule.add_batch(TimedBatch(float(number), 1.0, 100), ClusterState(10, idle))
        decisions += [decided] if decided else []
    first = next(n for n, decided in enumerate(decisions) if decided.executors_next > 10)
    assert [decided.reason for decided in decisions[WAIT_ROUNDS:4]] == [
        "2 of 10 executors have no work yet: wait for the strategy",
        "1 of 10 executors have no work yet: wait for the strategy",
    ]
    assert first == 4 + UP_ROUNDS - 1


def test_a_growing_backlog_is_not_waited_for() -> None:
    rule, decisions = Elastic(SPAN, INTERVAL_S, 1.0), []
    began_s = 0.0
    for number in range(8):
        batch_s = 0.5 if number < 5 else 1.3 ** (number - 4)
        decided = rule.add_batch(TimedBatch(began_s, batch_s, 100), ClusterState(4))
        decisions += [decided] if decided else []
        began_s += max(1.0, batch_s)
    grown = next(decided for decided in decisions if decided.executors_next > 4)
    assert grown.reason == "above 80% for 1 round, and batches get longer"
    assert (grown.executors_next, grown.busy, grown.interval_s) == (8, 1.0, 1.0)


def test_a_batch_that_is_long_but_rare_needs_no_more_executors() -> None:
    rule = Elastic(SPAN, INTERVAL_S, ROUND_S)
    decided = [rule.add_batch(TimedBatch(600.0 * n, 30.0, 10**6), ClusterState(8)) for n in range(12)]
    numbers = [entry.executors_next for entry in decided if entry is not None]
    assert numbers[-1] < 8
    assert max(numbers) == 8
