"""Cut a partition that is larger than what should be handed over: by space, or by terms where one cell has nearly all.

`adjust.py` tries this when moving whole partitions does too little. PS2Stream §V-A migrates cells; a partition of the
engine has many cells, so it is cut where the load of the half that moves is nearest to what is wanted.
"""

from collections.abc import Sequence

import numpy as np

from geoswarm.control.balance.seen import Seen
from geoswarm.control.balance.term_shares import hand_over_share
from geoswarm.control.layout.load_model import Costs
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.change import Change, Split
from geoswarm.core.space.partition import Axis, Partition


def cut_partition(
    seen: Seen, part: Partition, text: TextSample | None, costs: Costs, executors: tuple[int, int], wanted: float
) -> list[Change]:
    """Changes that move `wanted` of the first executor's partition to the second; empty if it cannot be cut."""
    slot = int(np.searchsorted(seen.plan.partition_id_of_slot, part.id))
    time, (high, low) = float(seen.times[slot]), executors
    if seen.is_proposed[slot] or not time:
        return []
    if part.cut is None and part.cells > 1:
        axis, after, moves_first, share = best_border(part, _weights(part, text, costs), min(wanted / time, 1.0))
        if text is None or 0 < share * time < 2 * wanted:
            return [Split(part.id, axis, after, (low, high) if moves_first else (high, low))]
    return [] if text is None else hand_over_share(seen, part, text, costs, low, wanted / time)


def best_border(part: Partition, weights: tuple[Floats, Floats], wanted: float) -> tuple[Axis, int, bool, float]:
    """The border whose one side is nearest to the wanted share, whether that is the first side, and its share."""
    best: tuple[float, Axis, int, bool, float] = (np.inf, "row", 0, True, 0.0)
    axes: Sequence[tuple[Axis, Floats, int]] = (("row", weights[0], part.row0), ("column", weights[1], part.col0))
    for axis, line, first in axes:
        if len(line) < 2:
            continue
        before = np.cumsum(line)[:-1] / line.sum() if line.sum() else np.arange(1, len(line)) / len(line)
        for moves_first, share in ((True, before), (False, 1 - before)):
            at = int(np.argmin(np.abs(share - wanted)))
            best = min(best, (float(abs(share[at] - wanted)), axis, first + at, moves_first, float(share[at])))
    return best[1:]


def _weights(part: Partition, text: TextSample | None, costs: Costs) -> tuple[Floats, Floats]:
    """What events cost in each row and in each column of a partition."""
    rows, columns = np.ones(part.row1 - part.row0 + 1), np.ones(part.col1 - part.col0 + 1)
    if text is None:
        return rows, columns
    inside = (text.rows >= part.row0) & (text.rows <= part.row1)
    inside &= (text.columns >= part.col0) & (text.columns <= part.col1)
    checks = np.bincount(text.asked.rows, text.checks, minlength=text.events)
    cost = (costs.c2_event + costs.c1_check * checks)[inside]
    for weights, sides, first in ((rows, text.rows, part.row0), (columns, text.columns, part.col0)):
        weights[:] = np.bincount(sides[inside] - first, cost, minlength=len(weights))
    return rows, columns
