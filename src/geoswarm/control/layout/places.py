"""A plan from rectangles and the division of their terms among executors: the grid^t index of PS2Stream §IV-C.

Every layout of words ends here. A rectangle whose shares all have one owner is not divided.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.control.layout.text_sample import ANYTHING, TextSample
from geoswarm.core.arrays.jit import Array
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import Box
from geoswarm.core.text.cut import LISTED_MAX, TermCut
from geoswarm.errors import PlanError


class Place(NamedTuple):
    box: Box
    executors: tuple[int, ...]
    """The executor of each share; a single one where terms are not divided."""
    share_of_term: Array | None = None
    """The share of each term of the sample; -1: not listed, so its hash decides."""


def plan_of(executors: int, sample: TextSample, places: list[Place]) -> Plan:
    """A plan of epoch 0 with these places."""
    partitions: list[Partition] = []
    cuts: list[TermCut] = []
    for place in places:
        if place.share_of_term is None or len(set(place.executors)) == 1:
            partitions.append(Partition(len(partitions), *place.box, executor=place.executors[0]))
            continue
        owners, terms = list(place.executors), anything_first(place.share_of_term)
        first = int(place.share_of_term[ANYTHING])
        if first > 0:
            owners[0], owners[first] = owners[first], owners[0]
        shares_of: dict[int, list[int]] = {}
        for share, executor in enumerate(owners):
            shares_of.setdefault(executor, []).append(share)
        for executor, shares in shares_of.items():
            part = Partition(len(partitions), *place.box, executor=executor, cut=len(cuts), shares=tuple(shares))
            partitions.append(part)
        cuts.append(term_cut(len(owners), terms, sample))
    return Plan(0, sample.grid, executors, tuple(partitions), len(partitions), cuts=tuple(cuts))


def expect(grid: Grid, executors: int, sample: TextSample) -> None:
    """Checks the arguments of a layout; raises PlanError."""
    if executors < 1:
        raise PlanError(f"{executors} executors cannot own {grid.cells} cells: use at least 1")
    if grid != sample.grid:
        raise PlanError(f"the sample was located on {sample.grid}, the plan is for {grid}: use one grid for both")


def anything_first(share_of_term: Array) -> Array:
    """The same division with ANYTHING in share 0, which is exchanged with the share that it had."""
    first = share_of_term[ANYTHING]
    if first <= 0:
        return share_of_term
    swapped = np.where(share_of_term == first, 0, np.where(share_of_term == 0, first, share_of_term))
    return swapped.astype(share_of_term.dtype)


def term_cut(count: int, share_of_term: Array, sample: TextSample) -> TermCut:
    """A cut that lists each term with a share; the most frequent ones if they are too many."""
    listed = np.flatnonzero(share_of_term >= 0)
    listed = listed[listed != ANYTHING]
    if len(listed) > LISTED_MAX:
        listed = np.sort(listed[np.argsort(-sample.said_counts[listed], kind="stable")[:LISTED_MAX]])
    # Terms are numbered in the order of their hashes, so these ascend as a TermCut needs them.
    return TermCut(count, sample.hashes[listed], share_of_term[listed].astype(np.int16))
