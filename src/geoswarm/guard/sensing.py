"""The partitions that the sensor examines after a rebalance, and its report to Guard. Thesis §5.3.1.

The engine and the simulator share this, and differ in how they keep live queries; `sensor.py` makes the summary.

    a plan was applied ──► triggers: which partitions ──► queries in them ──► place ──► queries round it ──► Guard
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.change import ChangeNote, Merge
from geoswarm.core.space.plan import Plan
from geoswarm.guard.guard import Guard
from geoswarm.guard.sensor import MapPlace, hotspot_place, summarise_hotspot


class LiveQueries(NamedTuple):
    """Live queries, as parallel arrays. `x` and `y` are their centres as shares of the world's sides."""

    users: Ints
    """The position of each query's user in the names."""
    names: pa.StringArray
    born_s: Floats
    x: Floats
    y: Floats


def triggers(plan: Plan, changes: Sequence[ChangeNote], work_us: Mapping[int, float]) -> list[int]:
    """The costliest partition of each executor that moved or cut one. It may have moved others, if the hot one is a
    single cell. For a new plan, the costliest partition of the busiest executor."""
    owner = {p.id: p.executor for p in plan.partitions}
    gives = [change.partition for change in changes if not isinstance(change, Merge)]
    givers = {owner[partition] for partition in gives if partition in owner}
    if any(partition not in owner for partition in gives):  # merged first, then cut again: its id is not in this plan
        givers |= {change.executor for change in changes if isinstance(change, Merge)}
    if not changes:
        busy = dict.fromkeys(owner.values(), 0.0)
        for partition, executor in owner.items():
            busy[executor] += work_us.get(partition, 0.0)
        givers = {max(busy, key=lambda executor: busy[executor])}
    held = {giver: [i for i, executor in owner.items() if executor == giver] for giver in sorted(givers)}
    return [max(partitions, key=lambda i: work_us.get(i, 0.0)) for partitions in held.values() if partitions]


def sense(guard: Guard, inside: LiveQueries, around: Callable[[MapPlace, float], LiveQueries]) -> None:
    """Reports a hotspot. `inside` are the queries that meet the partition; `around` returns those within a distance of
    a place."""
    ages = guard.round - guard.rounds_at(inside.born_s)
    place, chosen = hotspot_place(ages, inside.x, inside.y), inside
    if guard.rules.reach > 0:
        chosen = around(place, guard.rules.reach)
        ages = guard.round - guard.rounds_at(chosen.born_s)
    known = np.flatnonzero(np.bincount(chosen.users, minlength=len(chosen.names)))
    codes = np.empty(len(chosen.names), np.int64)
    codes[known] = guard.codes(chosen.names.take(pa.array(known)))
    guard.add_hotspot(summarise_hotspot(codes[chosen.users], ages)._replace(place=place))
