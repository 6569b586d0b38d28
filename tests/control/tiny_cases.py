"""Every tiny case of balancing, and the best that any assignment can do, by trying all."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints


class TinyCase(NamedTuple):
    loads: Floats
    """Whole numbers, ascending."""
    owners: Ints
    executors: int
    best: float
    """The least maximum of all assignments."""


def tiny_cases() -> Iterator[TinyCase]:
    """Two to six items with loads of 1 to 6, for two and three executors. At first all items are at executor 0, or
    dealt out in turn."""
    for executors, items in product((2, 3), range(2, 7)):
        for drawn in combinations_with_replacement(range(1, 7), items):
            loads = np.array(drawn, np.float64)
            best = float((_assignments(items, executors) @ loads).max(axis=0).min())
            for owners in (np.zeros(items, np.int64), np.arange(items) % executors):
                yield TinyCase(loads, owners, executors, best)


@cache
def _assignments(items: int, executors: int) -> Floats:
    """(executor, assignment, item): 1 where the item is at the executor. The first item is at executor 0: the others
    are the same with other names."""
    owners = np.array([(0, *rest) for rest in product(range(executors), repeat=items - 1)])
    return np.stack([owners == d for d in range(executors)]).astype(np.float64)
