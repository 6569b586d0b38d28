"""Exchanges of two items: never worse, bounded, and in every tiny case compared with the best of all assignments."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.tiny_cases import TinyCase, tiny_cases
from geoswarm.control.balance.distributor import move_greedily, redistribute
from geoswarm.control.keyed.llfd import SLACK, llfd, loads_of
from geoswarm.control.keyed.mixed import Search
from geoswarm.control.keyed.problem import Case, Limits
from geoswarm.control.keyed.readj import readjust_keys
from geoswarm.control.swap import best_swap, swap_items


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_best_exchange_along_sorted_lists_is_the_best_of_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    load = np.sort(rng.integers(1, 30, 12).astype(np.float64))[::-1].copy()
    cut = int(rng.integers(1, 12))
    mixed = rng.permutation(12)
    gives, takes = np.sort(mixed[:cut]), np.sort(mixed[cut:])
    gap = float(rng.integers(1, 60))
    shifts = [load[a] - (load[b] if b >= 0 else 0.0) for a in gives for b in [*takes, -1]]
    gain, went, came = best_swap(load, gives, takes, gap)
    assert gain == max(0.0, *(gap - abs(gap - 2 * shift) for shift in shifts))
    assert (went in gives and came in [*takes, -1]) or gain == 0.0


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.sampled_from([0.0, 0.9, 1.0]))
def test_exchanges_keep_every_item_and_bring_the_loads_closer(seed: int, executors: int, low: float) -> None:
    rng = np.random.default_rng(seed)
    load, owner = rng.pareto(1.2, 60), rng.integers(0, executors, 60)
    before = np.bincount(owner, load, executors).astype(np.float64)
    loads, mean = before.copy(), before.mean()
    steps = swap_items(load, owner, loads, 1.02 * mean, low * mean)
    np.testing.assert_allclose(loads, np.bincount(owner, load, executors), rtol=1e-9, atol=1e-9)
    assert loads.max() <= before.max() * (1 + 1e-12)
    assert loads.min() >= before.min() * (1 - 1e-12)
    assert (steps > 0) <= (np.square(loads).sum() < np.square(before).sum())


def balanced_plans(theta: float) -> tuple[int, int, int, int]:
    """How many tiny cases have a balanced plan, and how many of these LLFD finds alone, with exchanges, and Readj."""
    exist = alone = swapped = readj = 0
    limits = Limits(theta_max=theta)
    for tiny in tiny_cases():
        case = case_of(tiny)
        bound = case.load_max(limits) * (1 + SLACK)
        if tiny.best <= bound:
            exist += 1
            loads = case.loads_now.copy()
            llfd(case.load, case.load, case.count, case.owner, loads, case.load_max(limits))
            alone += bool(loads.max() <= bound)
            swapped += Search(case, limits).trial(0, case.load).loads.max() <= bound
            readj += readjust_keys(case, limits, sigma=1e-3)[1]
    return exist, alone, swapped, readj


def case_of(tiny: TinyCase) -> Case:
    owners = tiny.owners.astype(np.int32)
    return Case(tiny.loads, tiny.loads, owners, owners, tiny.executors, np.ones(len(owners), np.int64))


@pytest.mark.parametrize(("theta", "want"), [(0.0, (880, 804, 855, 850)), (0.08, (1920, 1832, 1890, 1878))])
def test_with_exchanges_llfd_finds_more_balanced_plans_than_readj(
    theta: float, want: tuple[int, int, int, int]
) -> None:
    exist, alone, swapped, readj = balanced_plans(theta)
    assert alone < readj <= swapped <= exist
    assert (exist, alone, swapped, readj) == want


def test_exchanges_bring_the_distributor_closer_to_the_best_assignment() -> None:
    greedy: list[float] = []
    swapped: list[float] = []
    for loads, owners, executors, best in tiny_cases():
        for found, after in (
            (greedy, move_greedily(owners, loads, executors)),
            (swapped, redistribute(owners, loads, executors)[0]),
        ):
            found.append(float(np.bincount(after, loads, executors).max()) / best)
    assert max(greedy) == pytest.approx(1.25)
    assert max(swapped) == pytest.approx(7 / 6)
    missed_before, missed = (sum(ratio > 1.0 for ratio in found) for found in (greedy, swapped))
    assert missed < missed_before / 9
    assert all(after <= before for before, after in zip(greedy, swapped, strict=True))


def test_a_hundred_thousand_keys_that_cannot_be_balanced_are_exchanged_in_milliseconds() -> None:
    rng = np.random.default_rng(0)
    load, owner = rng.pareto(0.9, 100_000), rng.integers(0, 15, 100_000)
    loads = loads_of(load, np.ones(len(load), np.int64), owner.astype(np.int32), 15)
    swap_items(load, owner.copy(), loads.copy(), float(loads.mean()), 0.0)
    began_s = time.thread_time()
    swap_items(load, owner, loads, float(loads.mean()), 0.0)
    assert time.thread_time() - began_s < 0.25
