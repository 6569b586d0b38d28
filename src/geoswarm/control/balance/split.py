"""Find where to cut a partition of the costliest executor so that moving one half to the cheapest makes both equal.

Tried when no whole partitions can be moved (`subset.py`). It uses the statistics alone, no points and no queries.
SWARM §4.3.2, "Searching for Best Split": along rows and along columns, moving the half before or behind the cut,
the difference of costs

    C_diff = [C(m_H) - C(p) + C(kept)] - [C(m_L) + C(moved)]

only falls, or only rises, as the cut advances (tested in `tests/core/stats/`), so a binary search finds its zero.

The paper tries the next largest partition only when the largest is one cell. Here it is also tried when no cut lowers
the higher of the two costs: the cut nearest to zero can still overload the cheapest if one row has nearly all cost.
"""

from collections.abc import Mapping
from typing import NamedTuple

from geoswarm.control.balance.subset import largest_first
from geoswarm.control.estimate import COST_ROUNDING
from geoswarm.core.space.partition import Axis
from geoswarm.core.stats.triostat import TrioStat


class SplitChoice(NamedTuple):
    partition: int
    axis: Axis
    after: int
    moves_first: bool
    """Whether the upper or left half moves."""
    cost_moved: float
    cost_kept: float
    cost_diff: float
    """C_diff: the cost of the costliest minus that of the cheapest, after the move."""


def find_split(stats: Mapping[int, TrioStat], cost_high: float, cost_low: float) -> SplitChoice | None:
    """The best cut of the largest partition that a cut improves. `stats` are the costliest executor's."""
    for partition, cost in largest_first({i: s.cost for i, s in stats.items()}):
        cut = best_split(partition, stats[partition], cost_high, cost_low)
        if cut is not None:
            highest_after = max(cost_high - cost + cut.cost_kept, cost_low + cut.cost_moved)
            if highest_after < cost_high * (1 - COST_ROUNDING):
                return cut
    return None


def best_split(partition: int, stat: TrioStat, cost_high: float, cost_low: float) -> SplitChoice | None:
    """The cut with the least absolute C_diff in four searches; None for a single cell."""
    rest = cost_high - stat.cost - cost_low
    best: SplitChoice | None = None
    axes: tuple[Axis, Axis] = ("row", "column")
    for axis in axes:
        first, last = (stat.box.row0, stat.box.row1) if axis == "row" else (stat.box.col0, stat.box.col1)
        for moves_first in (True, False):
            cut = _search(partition, stat, axis, (first, last), moves_first, rest) if first < last else None
            if cut and (best is None or abs(cut.cost_diff) < abs(best.cost_diff)):
                best = cut
    return best


def _search(
    partition: int, stat: TrioStat, axis: Axis, ends: tuple[int, int], moves_first: bool, rest: float
) -> SplitChoice:
    """A binary search for the sign change of C_diff, which also visits the nearest cut on either side of it."""
    low, high = ends[0], ends[1] - 1
    best: SplitChoice | None = None
    while low <= high:
        after = (low + high) // 2
        before, behind = (half.cost for half in stat.halves_at(axis, after))
        moved, kept = (before, behind) if moves_first else (behind, before)
        diff = rest + kept - moved
        if best is None or abs(diff) < abs(best.cost_diff):
            best = SplitChoice(partition, axis, after, moves_first, moved, kept, diff)
        if diff == 0:
            break
        # Too little moves: let the moving half grow, downwards if it lies before the cut.
        if (diff > 0) == moves_first:
            low = after + 1
        else:
            high = after - 1
    assert best is not None  # there is at least one cut
    return best
