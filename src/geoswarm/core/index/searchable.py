"""One segment, as matchers see it. `flow/match/match.py` and `flow/match/areas.py` search it.

Points find rectangles, words and regions in one index each. Areas find everything but plain rectangles in one more
index, by the rectangle round it. That index is made when the first area comes and kept while the segment is open.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools
from geoswarm.core.index.cells import CellIndex, build
from geoswarm.core.index.demands import Demands
from geoswarm.core.index.kernels import Records
from geoswarm.core.index.regions import Regions
from geoswarm.core.index.word_kernels import Conditions, TextIndex
from geoswarm.core.space.grid import Grid


class RestIndex:
    """The index of subscriptions that have words or a shape, or are in lists; it is built at the first use."""

    def __init__(self) -> None:
        self._held: tuple[Grid, CellIndex] | None = None

    def cells(self, grid: Grid, segment: "Searchable") -> CellIndex:
        if self._held is None or self._held[0] != grid:
            chosen = np.flatnonzero(segment.is_rest())
            self._held = grid, build(grid, segment.records.rects[chosen]).renumber(chosen)
        return self._held[1]


class Searchable(NamedTuple):
    records: Records
    rectangles: CellIndex | None
    """None: no subscription is a rectangle without words."""
    text: TextIndex | None = None
    """None: no subscription of the segment asks for words."""
    conditions: Conditions | None = None
    regions: Regions | None = None
    """None: every region is its rectangle."""
    rest: RestIndex | None = None
    """The index for areas, kept while the segment is open; None: it is built for each search."""
    demands: Demands | None = None
    """None: no subscription asks for more than a place and words."""

    def is_rest(self) -> Bools:
        """Whether each subscription is missing from `rectangles`."""
        rest = np.zeros(len(self.records.ids), np.bool_)
        if self.conditions is not None:
            rest |= np.diff(self.conditions.conjunctions_offsets) > 0
        if self.regions is not None:
            rest[self.regions.ordinals] = True
        if self.demands is not None:
            rest |= self.demands.listed
        return rest

    def by_rectangles(self, grid: Grid) -> list[CellIndex]:
        """Together they have all subscriptions, by their rectangles."""
        found = [] if self.rectangles is None else [self.rectangles]
        has_lists = self.demands is not None and self.demands.lists is not None
        if self.conditions is not None or self.regions is not None or has_lists:
            found.append((self.rest or RestIndex()).cells(grid, self))
        return found
