"""Who has which share of the places whose terms are divided, as flat arrays that kernels read.

Only turns a plan round; how a term finds its share is for `core/text/cut.py`, and who asks is the router
(`flow/route_terms.py`) or a strategy that counts a sample (`control/balance/tally.py`). PS2Stream §IV-C: H1.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.plan import Plan


class Holders(NamedTuple):
    cut_of_slot: Ints
    """Of the first slot of each divided place; -1: not divided."""
    starts: Ints
    slots: Ints
    """slots[starts[s] + share]: the slot that has the share, of the slot s that stands for a divided place."""


def holders(plan: Plan) -> Holders:
    cuts, starts = np.full(len(plan.partitions), -1, np.int64), np.zeros(len(plan.partitions), np.int64)
    slots: list[int] = []
    for first, siblings in plan.siblings.items():
        slot_of_share = {share: slot for slot in siblings for share in plan.partitions[slot].shares}
        starts[first], cuts[first] = len(slots), plan.partitions[first].cut or 0
        slots += [slot_of_share[share] for share in sorted(slot_of_share)]
    return Holders(cuts, starts, np.array(slots, np.int64))
