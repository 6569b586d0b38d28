"""Join partitions of one executor that together form a rectangle: fewer partitions, and fewer queries counted twice.

Nothing moves between executors. SWARM §4.3.1 (a background task, about every five hours).

Any number of partitions may form the rectangle, also a pinwheel of five in which no two do. The corners of a rectangle
made of partitions are corners of partitions, so all pairs of corners are tried:

    ┌───┬───────┐
    │ a │   b   │    a's upper left and d's lower right corner: all five lie inside and fill it
    │   ├───┬───┤
    │   │ c │ d │
    ├───┴───┤   │
    │   e   │   │
    └───────┴───┘

The paper joins whatever it finds. But N·Q·R of a union is more than the sum over its parts (two of 1·1·1 cost 2, their
union of 2·2·2 costs 8), and a union that makes its executor the costliest would be cut again in the next round.
So a union is left out if its executor would then cost more than the costliest does now.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from geoswarm.control.estimate import executor_costs, is_worse
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.change import Merge
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.redraw import unite_stats
from geoswarm.core.stats.triostat import TrioStat

PARTITIONS_MAX = 128
"""The most partitions of one executor that are tried, smallest first. Time is cubic: about 20 ms for these."""


class Merges(NamedTuple):
    changes: list[Merge]
    left_out: int
    """Rectangles that would have made their executor the costliest."""


def find_merges(plan: Plan, stats: Mapping[int, TrioStat]) -> Merges:
    costs = executor_costs(plan, stats)
    ceiling = float(costs.max())
    owned: dict[int, list[Partition]] = defaultdict(list)
    for p in plan.partitions:
        owned[p.executor].append(p)
    changes, left_out = [], 0
    for executor, parts in sorted(owned.items()):
        merged: set[int] = set()
        for group in find_rectangles(parts):
            if merged & set(group):
                continue
            pieces = [stats[i] for i in group]
            cost = costs[executor] - sum(s.cost for s in pieces) + unite_stats(pieces).cost  # at most
            if is_worse(float(cost), ceiling):
                left_out += 1
                continue
            costs[executor] = cost
            merged.update(group)
            changes.append(Merge(group, executor))
    return Merges(changes, left_out)


def find_rectangles(parts: list[Partition]) -> list[tuple[int, ...]]:
    """Every set of two or more partitions that fills a rectangle, as ids; the largest sets come first."""
    tried = sorted(parts, key=lambda p: (p.cells, p.id))[:PARTITIONS_MAX]
    borders: Ints = np.array([(p.row0, p.col0, p.row1, p.col1) for p in tried], np.int64).reshape(-1, 4)
    first, last = borders[:, :2], borders[:, 2:]
    cells = np.prod(last - first + 1, axis=1)
    ids = np.array([p.id for p in tried])
    reaches = (last[:, None, :] >= last[None, :, :]).all(axis=2)  # [far corner, partition]
    found: set[tuple[int, ...]] = set()
    for corner in range(len(tried)):
        behind = (first >= first[corner]).all(axis=1)
        inside = behind & reaches
        size = np.prod(last - first[corner] + 1, axis=1)
        filled = (inside @ cells == size) & (inside.sum(axis=1) > 1) & (last >= first[corner]).all(axis=1)
        found.update(tuple(sorted(ids[inside[far]].tolist())) for far in np.flatnonzero(filled))
    return sorted(found, key=lambda group: (-len(group), group))
