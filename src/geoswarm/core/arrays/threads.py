"""A loop over many rows on all cores of the machine. Only for kernels: other code does not release the GIL."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
PIECE_STEPS_MIN = 16_384
"""Steps of a piece, of some nanoseconds each: fewer are done before a thread has started."""
PIECES_PER_CORE = 4
"""Pieces for each core: rows differ in cost, and all cores should end together."""


def run_in_pieces(work: Callable[[int, int], T], rows: int, steps: int) -> list[T]:
    """The results of `work(first, end)` for consecutive pieces of `rows`: at least one piece, which may be empty.
    `steps` is about how many times the loop within all rows goes round, as the number of their vertices."""
    cores = os.cpu_count() or 1
    count = max(1, min(PIECES_PER_CORE * cores, rows, steps // PIECE_STEPS_MIN)) if cores > 1 else 1
    ends = [rows * k // count for k in range(count + 1)]
    if count == 1:
        return [work(0, rows)]
    with ThreadPoolExecutor(cores) as pool:
        return list(pool.map(work, ends[:-1], ends[1:]))
