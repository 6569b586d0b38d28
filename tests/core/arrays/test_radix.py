"""Sorting by digits gives what comparing gives."""

import numpy as np
import pytest

from geoswarm.core.arrays.radix import sort_order, sort_with


@pytest.mark.parametrize("key_max", [1, 2047, 2048, 2**20, 2**32 - 1])
@pytest.mark.parametrize("count", [0, 1, 3000])
def test_equal_keys_stay_in_order_and_values_move_with_their_keys(key_max: int, count: int) -> None:
    rng = np.random.default_rng(key_max)
    keys = (rng.integers(0, key_max, count, endpoint=True) // 3 * 3).astype(np.uint32)
    want = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(sort_order(keys, key_max), want)
    values = rng.integers(0, 2**63, count).astype(np.uint64)
    sorted_keys, sorted_values = sort_with(keys.copy(), values.copy(), key_max)
    np.testing.assert_array_equal(sorted_keys, keys[want])
    np.testing.assert_array_equal(sorted_values, values[want])
