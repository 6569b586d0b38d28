"""The boxes of blocks of rows: which rows may lie in a region, and in a time, without looking at them.

Rows in Z-order are near each other in space, so a block of some hundred has a small box, and a region meets few of the
boxes. Nothing is exact here: whoever asks tests the rows of the blocks that are found.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, Ints

BLOCK_ROWS = 256
"""Rows of a block: at 10 million events 40,000 boxes, which take some 50 microseconds to test."""


class Blocks(NamedTuple):
    """Of each block the least and the most of its rows."""

    boxes: Floats
    """(n, 4): xmin, ymin, xmax, ymax."""
    times_us: Ints
    """(n, 2): the first and the last time."""

    def meeting(self, box: tuple[float, float, float, float], since_us: int, until_us: int) -> Bools:
        """The blocks that may have rows in a closed box, from `since_us` on and before `until_us`."""
        xmin, ymin, xmax, ymax = self.boxes.T
        first, last = self.times_us.T
        near = (xmin <= box[2]) & (xmax >= box[0]) & (ymin <= box[3]) & (ymax >= box[1])
        return near & (first < until_us) & (last >= since_us)  # type: ignore[no-any-return]


def blocks_of(low: tuple[Floats, Floats], high: tuple[Floats, Floats], times_us: Ints) -> Blocks:
    """The blocks of rows, at least one, whose boxes have these corners (x and y), and with these times."""
    starts = np.arange(0, len(times_us), BLOCK_ROWS)
    sides = [np.minimum.reduceat(side, starts) for side in low] + [np.maximum.reduceat(side, starts) for side in high]
    times = [edge.reduceat(times_us, starts) for edge in (np.minimum, np.maximum)]
    return Blocks(np.stack(sides, axis=1), np.stack(times, axis=1))


def runs_of(chosen: Bools, rows: int) -> Ints:
    """The runs of rows of chosen blocks, which follow each other: (n, 2), the first row and the row behind the last."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(np.int8), [0]])))
    return np.minimum(edges.reshape(-1, 2) * BLOCK_ROWS, rows)
