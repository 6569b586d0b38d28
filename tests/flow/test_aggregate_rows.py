"""Rows of aggregates: whose they are."""

import numpy as np
import pytest

from geoswarm.flow.aggregates.live import distinct


@pytest.mark.parametrize("seed", range(10))
def test_each_subscription_is_named_once_whether_rows_are_in_order_or_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    subs = rng.integers(-5, 5, rng.integers(0, 30))
    for rows in (subs, np.sort(subs)):
        ids, at = distinct(rows)
        assert ids.tolist() == sorted(set(rows.tolist()))
        assert ids[at].tolist() == rows.tolist()
