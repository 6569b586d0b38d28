"""Which query is cancelled when: lifetimes near to normal, one query out for each that comes in, and no list to keep.

The stream starts with the queries 0 .. mean-1. From then on, arrival n is query mean + n, and departure n is query
`departing(n)`. Departures are arrivals in another order: three times over, the line of numbers is cut into blocks and
each block is shuffled within itself. A shuffle moves a number by a triangular distribution, three of them by nearly
a normal one; and because a shuffle can be undone, both directions are a few integer steps from any number.

    n ──► block of n ──► (n × step + start of the block) mod size ──► again, with blocks of another size ──► again

So the number of live queries never changes, and a lifetime, counted in arrivals, is mean ± at most 0.84 mean.
PS2Stream §VI-A: N(μ, σ²) new queries between the arrival and the departure of a query, σ = 0.2 μ.
"""

import math
from dataclasses import dataclass

import numpy as np

from geoswarm.core.arrays.jit import Ints, kernel
from geoswarm.errors import InputError
from geoswarm.lab.workload.draw import Key, bits, key_of
from geoswarm.lab.workload.tweets import _coprime_step as coprime_step

SPREAD_SHARE = 0.2
"""Standard deviation of a lifetime, as a share of its mean."""
MEAN_MAX = 1 << 31
"""The product of a place and a step must fit into 63 bits."""

_SIZES = (0.8, 1.0, math.sqrt(3.0 - 0.8**2 - 1.0))
"""Relative sizes of the blocks. They are unequal, so that the edges of one shuffle wander through the blocks of
the next: what moved up in one is then as likely to move up as down in the other. A block of n spreads by
n / √6; squares sum to 3."""


@dataclass(frozen=True)
class Lifetimes:
    mean: int
    """The mean lifetime, in arrivals; also the number of live queries."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.mean <= MEAN_MAX:
            raise InputError(f"a mean lifetime of {self.mean} queries cannot be: give 1 to {MEAN_MAX}")

    def departing(self, numbers: Ints) -> Ints:
        """The query that each departure takes out."""
        for stage in reversed(range(len(_SIZES))):
            size, step = self._block(stage)
            numbers = _unshuffle(numbers, self._key(stage), size, pow(step, -1, size))
        return numbers

    def departures(self, ids: Ints) -> Ints:
        """The departure that takes each query out."""
        for stage in range(len(_SIZES)):
            size, step = self._block(stage)
            ids = _shuffle(ids, self._key(stage), size, step)
        return ids

    def _block(self, stage: int) -> tuple[int, int]:
        size = max(1, round(SPREAD_SHARE * math.sqrt(2.0) * _SIZES[stage] * self.mean))
        return size, coprime_step(size)

    def _key(self, stage: int) -> Key:
        return key_of(self.seed, f"leave{stage}")


@kernel
def _shuffle(numbers: Ints, key: Key, size: int, step: int) -> Ints:
    moved = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        block = numbers[i] // size
        start = np.int64(bits(key, block, 0) % np.uint64(size))
        moved[i] = block * size + ((numbers[i] - block * size) * step + start) % size
    return moved


@kernel
def _unshuffle(numbers: Ints, key: Key, size: int, back: int) -> Ints:
    """`back` undoes the step: their product is 1 modulo the size."""
    moved = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        block = numbers[i] // size
        start = np.int64(bits(key, block, 0) % np.uint64(size))
        moved[i] = block * size + ((numbers[i] - block * size - start) % size) * back % size
    return moved
