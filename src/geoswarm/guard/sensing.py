"""Where the sensor looks after a rebalance, and what it reports to Guard. Thesis §5.3.1.

Shared by the engine and the simulator, which differ in how they keep live queries; `sensor.py` has the summary itself.

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
from geoswarm.guard.sensor import MapPlace, place_of, summarise


class LiveQueries(NamedTuple):
    """Live ones, as parallel arrays. `x` and `y` are their centres as shares of the world's sides."""

    users: Ints
    """Numbers of names."""
    names: pa.StringArray
    born_s: Floats
    x: Floats
    y: Floats


def triggers(plan: Plan, changes: Sequence[ChangeNote], work_us: Mapping[int, float]) -> list[int]:
    """The costliest partition of each executor that moved or cut one: what it is relieved of may be another, as when
    the hot one is a single cell. Where a plan was drawn afresh, the costliest of the busiest executor."""
    owner = {p.id: p.executor for p in plan.partitions}
    gives = [change.partition for change in changes if not isinstance(change, Merge)]
    givers = {owner[partition] for partition in gives if partition in owner}
    if any(partition not in owner for partition in gives):  # merged first, to be cut anew: under a number to come
        givers |= {change.executor for change in changes if isinstance(change, Merge)}
    if not changes:
        busy = dict.fromkeys(owner.values(), 0.0)
        for partition, executor in owner.items():
            busy[executor] += work_us.get(partition, 0.0)
        givers = {max(busy, key=lambda executor: busy[executor])}
    held = {giver: [i for i, executor in owner.items() if executor == giver] for giver in sorted(givers)}
    return [max(partitions, key=lambda i: work_us.get(i, 0.0)) for partitions in held.values() if partitions]


def sense(guard: Guard, inside: LiveQueries, around: Callable[[MapPlace, float], LiveQueries]) -> None:
    """`inside` are the queries that meet the partition; `around` gives those round a place, so far each way."""
    ages = guard.round - guard.rounds_at(inside.born_s)
    place, chosen = place_of(ages, inside.x, inside.y), inside
    if guard.rules.reach > 0:
        chosen = around(place, guard.rules.reach)
        ages = guard.round - guard.rounds_at(chosen.born_s)
    known = np.flatnonzero(np.bincount(chosen.users, minlength=len(chosen.names)))
    codes = np.empty(len(chosen.names), np.int64)
    codes[known] = guard.codes(chosen.names.take(pa.array(known)))
    guard.hotspot(summarise(codes[chosen.users], ages)._replace(place=place))
