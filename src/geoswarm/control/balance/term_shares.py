"""Changes to how the terms of one place are shared: divide it in two, join two shares, or deal many shares anew.

Whether a change is worth it is for `adjust.py` to say. The first two are PS2Stream §V-A, Phase I. The third is not in
the print, which migrates whole cells: one cell of a large town can be more than an executor's part of all work, and
its halves, too. So its terms are divided into `SHARES` of about the same load, and executors hold some of these.
"""

import numpy as np

from geoswarm.control.balance.seen import Seen
from geoswarm.layout.load_model import Costs
from geoswarm.layout.places import anything_first, term_cut
from geoswarm.layout.terms import by_load
from geoswarm.layout.text_sample import TextSample
from geoswarm.layout.unit import Unit
from geoswarm.space.change import Change, Divide, Merge
from geoswarm.space.partition import Partition
from geoswarm.stats.triostat import Box

SHARES = 16
"""An executor can be given a sixteenth of a cell."""


def divided(part: Partition, text: TextSample, costs: Costs, high: int, low: int) -> Divide | None:
    """Two shares of about the same load; the one with fewer queries goes from `high` to `low`."""
    unit = Unit.whole(text).within(Box(*part.box))
    shares = anything_first(by_load(unit, 2, costs))
    if not {0, 1} <= set(shares.tolist()):
        return None
    first, second = (len(half.queries) for half in unit.divided(shares, 2))
    return Divide(part.id, term_cut(2, shares, text), (high, low) if first >= second else (low, high))


def joined(seen: Seen, part: Partition, low: int) -> Merge | None:
    """With what `low` has of the same place."""
    for slot in seen.held(low)[~seen.is_proposed[seen.held(low)]]:
        other = seen.plan.partitions[slot]
        if other.cut == part.cut and other.box == part.box:
            return Merge((part.id, other.id), low)
    return None


def dealt(seen: Seen, part: Partition, text: TextSample, costs: Costs, low: int, share: float) -> list[Change]:
    """This share of a partition's own goes to `low`, as nearly as its terms can be counted out; others keep theirs."""
    plan = seen.plan
    family = [slot for slot, p in enumerate(plan.partitions) if p.box == part.box]
    if part.cut is not None and plan.cuts[part.cut].count >= SHARES:
        cut = plan.cuts[part.cut]
        owners = [0] * cut.count
        for slot in family:
            for held in plan.partitions[slot].shares:
                owners[held] = plan.partitions[slot].executor
    else:
        shares = anything_first(by_load(Unit.whole(text).within(Box(*part.box)), SHARES, costs))
        cut = term_cut(SHARES, shares, text)
        borders = np.cumsum(seen.times[family]) / seen.times[family].sum()
        places = np.searchsorted(borders, (np.arange(SHARES) + 0.5) / SHARES).clip(max=len(family) - 1)
        owners = [plan.partitions[family[place]].executor for place in places]
    mine = [i for i, owner in enumerate(owners) if owner == part.executor]
    if len(mine) < 2:
        return []
    for i in mine[-min(max(1, round(share * len(mine))), len(mine) - 1) :]:
        owners[i] = low
    whole: list[Change] = []
    if len(family) > 1:
        whole = [Merge(tuple(plan.partitions[slot].id for slot in family), part.executor)]
    return [*whole, Divide(plan.next_partition_id if whole else part.id, cut, tuple(owners))]
