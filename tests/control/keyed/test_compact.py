"""Compact statistics: values rounded so that sums stay right, and planning on vectors instead of keys."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.keyed.key_worlds import random_world
from geoswarm.control.keyed.compact import MixedCompact, discretise, expand, load_errors, summarise_keys, with_means
from geoswarm.control.keyed.mixed import Mixed, Search, mixed_trial
from geoswarm.control.keyed.problem import Case, KeyStats, Limits
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.lab.workload.zipf import Zipf

FIGURE_6 = np.array([8.0, 6.0, 3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0])


def test_figure_6_ends_with_no_deviation_at_all() -> None:
    rounded = discretise(FIGURE_6, 2)
    assert rounded.tolist() == [8, 4, 4, 2, 2, 2, 1, 1, 1, 1]
    assert (FIGURE_6 - rounded).sum() == 0


def test_steps_of_one_leave_whole_numbers_as_they_are() -> None:
    assert discretise(FIGURE_6, 0).tolist() == FIGURE_6.tolist()


def representatives(highest: int, bits: int) -> set[int]:
    """As in the paper: s R .. R, then R/2 .. 1."""
    step = 1 << bits
    return {n * step for n in range(1, highest // step + 1)} | {1 << b for b in range(bits)}


@settings(deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=300), st.integers(0, 8))
def test_values_become_a_neighbour_among_the_papers_representatives(values: list[int], bits: int) -> None:
    rounded = discretise(np.array(values, np.float64), bits)
    known = sorted(representatives(max(values), bits))
    for value, got in zip(values, rounded, strict=True):
        below = max(y for y in known if y <= value)
        above = min((y for y in known if y > value), default=below)
        assert got in (below, above)
    # Values above the largest representative can only be rounded down; all others keep the sum within a step.
    excess = sum(max(0, value - known[-1]) for value in values)
    assert abs(sum(values) - rounded.sum()) <= max(excess, 1 << bits)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 8))
def test_where_small_values_are_many_the_deviation_vanishes(seed: int, bits: int) -> None:
    values = np.ceil(1000.0 / np.arange(1, 3000) ** 0.85)
    values = np.random.default_rng(seed).permutation(values)
    assert abs((values - discretise(values, bits)).sum()) <= 1  # Theorem 3


def test_no_load_stays_no_load() -> None:
    assert discretise(np.zeros(3), 3).tolist() == [0, 0, 0]
    assert discretise(np.array([0.0, 20.0, 0.25, 0.25, 0.25, 0.25]), 2).tolist().count(1.0) == 1
    assert len(discretise(np.empty(0), 3)) == 0


def zipf_case(keys: int = 30_000, executors: int = 6) -> tuple[KeyPlan, KeyStats, Case]:
    counts = Zipf(keys=keys).first()
    plan = KeyPlan.first(range(executors))
    load = counts.astype(np.float64)
    stats = KeyStats(np.arange(keys), load, 5.0 * load)
    return plan, stats, Case.of(plan, stats)


def test_vectors_count_every_key_once_and_keep_owners_and_homes() -> None:
    plan, stats = random_world(np.random.default_rng(4), 5, 2000, skew=0.6)
    case = Case.of(plan, stats)
    compact = summarise_keys(case, Limits())
    vectors = compact.vectors
    assert vectors.count.sum() == 2000
    assert len(vectors.load) < 1000
    assert (vectors.owner[compact.member] == case.owner).all()
    assert (vectors.home[compact.member] == case.home).all()
    rows = np.stack([vectors.owner, vectors.home, vectors.load, vectors.state])
    assert len(np.unique(rows, axis=1).T) == len(vectors.load)


def test_with_steps_of_one_planning_on_vectors_balances_exactly_as_estimated() -> None:
    _, _, case = zipf_case(keys=5_000)
    load = case.load - case.load.min() + 1.0  # whole numbers from 1 on: none is between two steps
    case = replace(case, load=load, state=5.0 * load)
    limits = Limits(level_bits=0)
    compact = summarise_keys(case, limits)
    trial = mixed_trial(Search(compact.vectors, limits))
    owner = expand(compact, trial, case, limits)
    np.testing.assert_allclose(case.loads(owner), trial.loads)
    assert trial.loads.max() <= case.load_max(limits) * (1 + 1e-9)
    assert trial.table == (owner != case.home).sum()
    assert trial.migration == pytest.approx(case.state[owner != case.owner].sum())


@pytest.mark.parametrize("bits", [0, 3, 8])
def test_the_estimate_of_loads_is_off_by_less_than_a_hundredth(bits: int) -> None:
    _, _, case = zipf_case()
    limits = Limits(level_bits=bits)
    compact = with_means(summarise_keys(case, limits), case)
    trial = mixed_trial(Search(compact.vectors, limits))
    owner = expand(compact, trial, case, limits)
    assert (owner != case.owner).any()
    assert load_errors(trial, case, owner).max() < 0.01


def test_means_correct_what_rounding_makes_of_the_keys_that_move() -> None:
    _, _, case = zipf_case()
    limits = Limits(level_bits=8)
    errors = []
    for compact in (summarise_keys(case, limits), with_means(summarise_keys(case, limits), case)):
        trial = mixed_trial(Search(compact.vectors, limits))
        errors.append(load_errors(trial, case, expand(compact, trial, case, limits)).max())
    assert errors[1] < errors[0] / 3


def test_vectors_lead_to_about_the_same_plan_as_keys() -> None:
    plan, stats, _ = zipf_case()
    keys, vectors = Mixed().rebalance(plan, stats), MixedCompact().rebalance(plan, stats)
    assert keys.why["skew_before"] > 1.2  # type: ignore[operator]
    assert vectors.loads.max() <= keys.loads.max() * 1.01
    assert vectors.migration_share == pytest.approx(keys.migration_share, rel=0.3)
    assert int(vectors.why["vectors"]) < len(stats.keys) / 10


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), load_bits=st.integers(-60, 60), state_bits=st.integers(-60, 60))
def test_the_unit_of_load_and_state_does_not_matter(seed: int, load_bits: int, state_bits: int) -> None:
    plan, stats = random_world(np.random.default_rng(seed), 4, 300, skew=0.8)
    scaled = KeyStats(stats.keys, stats.load * 2.0**load_bits, stats.state * 2.0**state_bits)
    want, got = MixedCompact().rebalance(plan, stats), MixedCompact().rebalance(plan, scaled)
    assert got.plan == want.plan
    assert got.why.get("vectors") == want.why.get("vectors")


@pytest.mark.parametrize("unit", [1e-9, 1e-6, 0.3, 1.0, 7.0, 1e9])
def test_loads_of_any_size_are_estimated_as_well(unit: float) -> None:
    _, _, case = zipf_case()
    small = replace(case, load=case.load * unit)
    limits = Limits(level_bits=3)
    compact = with_means(summarise_keys(small, limits), small)
    trial = mixed_trial(Search(compact.vectors, limits))
    owner = expand(compact, trial, small, limits)
    assert trial.loads.sum() == pytest.approx(small.load.sum())
    assert load_errors(trial, small, owner).max() < 0.01
    assert small.loads(owner).max() <= small.load_max(limits) * 1.01
    assert len(compact.vectors.load) < len(case.load) / 10


def test_one_key_with_almost_no_load_does_not_make_every_key_a_vector_of_its_own() -> None:
    _, _, case = zipf_case()
    load = case.load * np.random.default_rng(0).uniform(0.9, 1.1, len(case.load))
    load[7] = 1e-12
    compact = summarise_keys(replace(case, load=load), Limits())
    assert len(compact.vectors.load) < len(load) / 4
