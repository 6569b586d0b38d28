"""Costs are fitted without negative ones, and without what was disturbed."""

import numpy as np
import pytest

from geoswarm.core.arrays.least_squares import fit_nonnegative, fit_trimmed


@pytest.mark.parametrize("seed", range(5))
def test_true_costs_are_found_whatever_their_scale(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = 10.0 ** rng.uniform(-3, 4, 3) * (rng.random(3) < 0.8)
    terms = rng.random((50, 3)) * 10.0 ** rng.uniform(0, 6, 3)
    assert fit_nonnegative(terms, terms @ costs) == pytest.approx(costs, rel=1e-6, abs=1e-9)


def test_none_is_negative_and_the_rest_is_as_near_as_can_be() -> None:
    terms = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])
    assert fit_nonnegative(terms, np.array([3.0, 2.0, 1.0])) == pytest.approx([0.0, 2.0])
    assert fit_nonnegative(terms, -np.ones(3)).tolist() == [0.0, 0.0]


def test_a_few_rows_that_are_far_off_do_not_count() -> None:
    rng = np.random.default_rng(1)
    terms = np.stack([np.ones(100), rng.random(100)], axis=1)
    wanted = terms @ [5.0, 2.0]
    wanted[:8] *= 30
    assert fit_trimmed(terms, wanted) == pytest.approx([5.0, 2.0], rel=1e-3)


def test_what_rows_leave_open_goes_to_the_one_that_is_not_disliked() -> None:
    alike = np.stack([np.ones(40), np.full(40, 1000.0)], axis=1)
    assert fit_nonnegative(alike, np.full(40, 500.0), (0.01, 0.0)) == pytest.approx([0.0, 0.5], abs=0.01)
    rng = np.random.default_rng(2)
    told_apart = np.stack([np.ones(40), rng.uniform(0, 1000, 40)], axis=1)
    assert fit_nonnegative(told_apart, told_apart @ [100.0, 0.5], (0.01, 0.0)) == pytest.approx([100.0, 0.5], rel=0.1)
