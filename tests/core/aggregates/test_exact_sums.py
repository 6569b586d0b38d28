"""Sums are exact: the nearest float64 to what Python's fractions add up to, whatever the order and the shares."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geoswarm.core.aggregates.exact_sums import add_floats, add_integers, add_sums, are_finite, exact_sums, round_sums

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
BIGGEST = 1.7976931348623157e308


def nearest(total: Fraction) -> float:
    try:
        return total.numerator / total.denominator
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def sum_of(values: list[float]) -> pa.Array:
    return add_floats(np.array(values, np.float64), np.array([0, len(values)])).array()


@given(st.lists(FLOATS, max_size=40))
@example([BIGGEST, BIGGEST, -BIGGEST])
@example([5e-324, -5e-324, 5e-324])
@example([1.0, 2.0**-53])
@example([1.0, 2.0**-53, 2.0**-1074])
@example([1.0 + 2.0**-52, 2.0**-53])
@example([BIGGEST, 2.0**970])
@example([-1.0, 1e-300])
@example([2.2250738585072014e-308, -5e-324])
def test_a_sum_is_the_nearest_float(values: list[float]) -> None:
    assert round_sums(sum_of(values)).tolist() == [nearest(sum(map(Fraction, values), Fraction(0)))]


@given(st.lists(FLOATS, min_size=1, max_size=20), st.randoms(use_true_random=False), st.integers(0, 20))
def test_neither_order_nor_shares_change_a_byte(values: list[float], rng: object, cut: int) -> None:
    want = sum_of(values).to_pylist()
    shuffled = list(values)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    parts = pa.concat_arrays([sum_of(shuffled[:cut]), sum_of(shuffled[cut:])])
    assert add_sums(parts, np.array([0, 2])).array().to_pylist() == want


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_integers_sum_without_overflow(values: list[int]) -> None:
    sums = add_integers(pa.array(values, pa.int64()), np.array([0, len(values)])).array()
    assert [Fraction(*sums) for sums in exact_sums(sums)] == [sum(values)]
    assert round_sums(sums).tolist() == [float(sum(values))]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=10))
def test_unsigned_integers_sum_as_well(values: list[int]) -> None:
    sums = add_integers(pa.array(values, pa.uint64()), np.array([0, len(values)])).array()
    assert [Fraction(*sums) for sums in exact_sums(sums)] == [sum(values)]


@pytest.mark.parametrize("seed", range(5))
def test_every_group_has_its_own_sum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.normal(size=5000), rng.integers(-1000, 900, 5000))
    starts = np.sort(np.append(rng.integers(0, 5001, 700), [0, 5000]))
    want = [sum(map(Fraction, values[a:b].tolist()), Fraction(0)) for a, b in itertools.pairwise(starts)]
    sums = add_floats(values, starts).array()
    assert round_sums(sums).tolist() == [nearest(total) for total in want]
    again = np.sort(np.append(rng.integers(0, len(sums) + 1, 60), [0, len(sums)]))
    merged = [sum(want[a:b], Fraction(0)) for a, b in itertools.pairwise(again)]
    assert [Fraction(*one) for one in exact_sums(add_sums(sums, again).array())] == merged


def test_infinities_stay_and_both_are_no_number() -> None:
    inf = math.inf
    sums = pa.concat_arrays([sum_of([inf, 1.0]), sum_of([-inf, BIGGEST]), sum_of([inf, -inf]), sum_of([BIGGEST] * 2)])
    assert are_finite(sums).tolist() == [False, False, False, True]
    assert np.array_equal(round_sums(sums), [inf, -inf, math.nan, inf], equal_nan=True)
    merged = add_sums(sums, np.array([0, 2, 2, 4])).array()
    assert np.array_equal(round_sums(merged), [math.nan, 0.0, math.nan], equal_nan=True)


def test_nan_is_no_value_and_nothing_sums_to_zero() -> None:
    assert sum_of([math.nan, 2.5, math.nan]).to_pylist() == sum_of([2.5]).to_pylist()
    assert sum_of([]).to_pylist() == sum_of([3.5, -3.5]).to_pylist() == [b"\x00\x00"]
    assert round_sums(pa.array([], pa.binary())).tolist() == []


def test_a_sum_of_values_of_like_size_has_few_bytes() -> None:
    speeds = np.random.default_rng(1).uniform(0, 120, 100_000)
    assert len(sum_of(speeds.tolist())[0].as_py()) <= 22
