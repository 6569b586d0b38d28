"""Zipf keys: the same seed, the same stream; and as much change between intervals as was asked for."""

import numpy as np
import pytest

from geoswarm.core.keys.plan import KeyPlan
from geoswarm.errors import SettingsError
from geoswarm.lab.workload.zipf import Window, Zipf

KEYS = np.arange(20_000)
OWNER = KeyPlan.first(range(8)).route(KEYS)


def workload(f: float = 1.0, seed: int = 0) -> Zipf:
    return Zipf(keys=len(KEYS), fluctuation=f, seed=seed)


def test_a_key_of_rank_r_comes_in_proportion_to_its_power() -> None:
    counts = np.sort(workload().first())[::-1]
    assert counts[0] / counts[99] == pytest.approx(100**0.85, rel=0.01)
    assert counts.sum() == pytest.approx(10 * len(KEYS), rel=0.02)
    assert counts[-1] >= 1
    assert len(np.unique(Zipf(keys=100, skew=0.0).first())) == 1


@pytest.mark.parametrize("f", [0.1, 0.5, 1.0, 2.0])
def test_one_executor_changes_by_the_fluctuation_and_no_tuple_is_lost(f: float) -> None:
    first = workload(f).first()
    later = workload(f).next(first, OWNER, 1)
    old, new = np.bincount(OWNER, first), np.bincount(OWNER, later)
    change = np.abs(new - old) / new
    assert f <= change.max() < f + 0.8  # the last swap may be of a heavy key
    assert (new != old).sum() == 2
    assert np.sort(later).tolist() == np.sort(first).tolist()


def test_without_fluctuation_nothing_changes() -> None:
    first = workload(0.0).first()
    assert (workload(0.0).next(first, OWNER, 1) == first).all()
    assert (workload(1.0).next(first, np.zeros_like(OWNER), 1) == first).all()  # one executor: none to swap with


def test_a_seed_replays_its_stream_and_another_does_not() -> None:
    def story(seed: int) -> list[int]:
        counts = workload(seed=seed).first()
        for interval in range(1, 4):
            counts = workload(seed=seed).next(counts, OWNER, interval)
        return [int(count) for count in counts]

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_tuples_are_as_many_as_counted() -> None:
    counts = workload().first()
    tuples = workload().tuples_of(counts, 1)
    assert (np.bincount(tuples, minlength=len(KEYS)) == counts).all()
    assert (np.diff(tuples) < 0).any()


def test_state_is_what_the_last_intervals_left() -> None:
    window = Window(3)
    states = [window.add(np.array([n, 10 * n])) for n in range(1, 6)]
    assert [s.tolist() for s in states] == [[1, 10], [3, 30], [6, 60], [9, 90], [12, 120]]
    short = Window(1)
    assert [short.add(np.array([n])).tolist() for n in (4, 5)] == [[4], [5]]


def test_a_workload_without_keys_is_refused() -> None:
    with pytest.raises(SettingsError, match="0 keys"):
        Zipf(keys=0)
    with pytest.raises(SettingsError, match="fluctuation -1"):
        Zipf(fluctuation=-1)
