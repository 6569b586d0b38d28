"""The partition of each share, where terms are divided, as flat arrays that kernels read.

The inverse of a plan; `core/text/cut.py` finds the share of a term. The router (`flow/route_terms.py`) uses it, and
strategies that count a sample (`control/balance/tally.py`). PS2Stream §IV-C: H1.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.plan import Plan


class Holders(NamedTuple):
    cut_of_slot: Ints
    """The cut of each slot that stands for a divided place; -1: not divided."""
    starts: Ints
    slots: Ints
    """slots[starts[s] + share] is the slot that has the share, where slot s stands for a divided place."""


def holders(plan: Plan) -> Holders:
    cuts, starts = np.full(len(plan.partitions), -1, np.int64), np.zeros(len(plan.partitions), np.int64)
    slots: list[int] = []
    for first, siblings in plan.siblings.items():
        slot_of_share = {share: slot for slot in siblings for share in plan.partitions[slot].shares}
        starts[first], cuts[first] = len(slots), plan.partitions[first].cut or 0
        slots += [slot_of_share[share] for share in sorted(slot_of_share)]
    return Holders(cuts, starts, np.array(slots, np.int64))
