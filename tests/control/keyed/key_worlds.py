"""Small worlds of keys: a plan and statistics with the owners and homes that a test wants."""

import numpy as np

from geoswarm.control.keyed.problem import KeyStats
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.keys.hashing import KeyOwners
from geoswarm.core.keys.plan import KeyPlan


def keys_at_home(homes: list[int], executors: int) -> Ints:
    """Ascending keys whose hashes lead to the executors of `homes`."""
    pool = np.arange(10_000)
    at = KeyPlan.first(range(executors)).homes(pool)
    keys: list[int] = []
    for home in homes:
        keys.append(next(int(k) for k in pool if at[k] == home and (not keys or k > keys[-1])))
    return np.array(keys, np.int64)


def world(loads: list[float], homes: list[int], owners: list[int], executors: int) -> tuple[KeyPlan, KeyStats]:
    """State is as large as load."""
    keys = keys_at_home(homes, executors)
    plan = KeyPlan.first(range(executors)).with_table(keys, np.array(owners, np.int32))
    assert plan.route(keys).tolist() == owners
    return plan, KeyStats(keys, np.array(loads, np.float64), np.array(loads, np.float64))


def random_world(rng: np.random.Generator, executors: int, keys: int, skew: float = 1.0) -> tuple[KeyPlan, KeyStats]:
    """Zipf-like loads, states that do not follow them, and a table of a tenth of the keys."""
    ids = rng.choice(2**40, keys, replace=False)
    load = np.ceil(100.0 / rng.permutation(np.arange(1, keys + 1)) ** skew * rng.uniform(1, 20))
    state = np.ceil(load * rng.uniform(0.2, 5.0, keys))
    listed = rng.choice(keys, keys // 10, replace=False)
    targets: KeyOwners = rng.integers(0, executors, len(listed)).astype(np.int32)
    return KeyPlan.first(range(executors)).with_table(ids[listed], targets), KeyStats(ids, load, state)


def perfect_world(rng: np.random.Generator, executors: int) -> tuple[KeyPlan, KeyStats]:
    """Loads that can be balanced exactly, and no single one as large as an executor."""
    cuts = [np.sort(rng.choice(np.arange(1, 1000), int(rng.integers(1, 9)), replace=False)) for _ in range(executors)]
    load: Floats = np.concatenate([np.diff(np.concatenate([[0], cut, [1000]])) for cut in cuts]).astype(np.float64)
    ids = rng.choice(2**40, len(load), replace=False)
    return KeyPlan.first(range(executors)), KeyStats(ids, load, load)
