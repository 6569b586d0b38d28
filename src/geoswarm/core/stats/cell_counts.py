"""Events and matches of the cells where events fell: where a partition's work lies, for strategies that cut anywhere.

A task counts some of its events, each of which then stands for several, so that a report stays small. TrioStat
(`triostat.py`) keeps a few numbers for each row and column instead, and knows nothing of single cells.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints


class CellCounts(NamedTuple):
    """Counts of the cells that have any, by ascending cell."""

    cells: Ints
    events: Floats
    matches: Floats

    @classmethod
    def none(cls) -> "CellCounts":
        return cls(np.empty(0, np.int64), np.empty(0), np.empty(0))

    @classmethod
    def of(cls, cells: Ints, events: Floats, matches: Floats) -> "CellCounts":
        """Cells may be named several times, in any order."""
        found, at = np.unique(cells, return_inverse=True)
        sums = (np.bincount(at, counts, minlength=len(found)).astype(np.float64) for counts in (events, matches))
        return cls(found.astype(np.int64), *sums)

    def __add__(self, other: "CellCounts") -> "CellCounts":  # type: ignore[override]
        if not len(self.cells) or not len(other.cells):
            return self if len(self.cells) else other
        return CellCounts.of(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def to_bytes(self) -> bytes:
        return np.stack([self.cells.astype(np.float64), self.events, self.matches]).tobytes()

    @classmethod
    def from_bytes(cls, written: bytes) -> "CellCounts":
        cells, events, matches = np.frombuffer(written, np.float64).reshape(3, -1)
        return cls(cells.astype(np.int64), events, matches)
