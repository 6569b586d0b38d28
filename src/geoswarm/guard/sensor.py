"""The summary of a hotspot for Guard: its users, and the ages of their queries.

It needs neither partitions nor files: the engine gives it one row per live query. Thesis §5.3.1.

The thesis summarises the partition that made the cluster rebalance. This engine cuts a hot place into ever smaller
partitions, each with only a small part of a user's queries. So the summary is of the place: the partition's youngest
queries show where it is (`hotspot_place`), and all live queries round it (`near`) are summarised.

    query   user  age             users  0  1  2  3  4  older
      17      4    0                4    2  .  .  .  .   1
      18      4    0        ->      9    .  1  .  .  .   .
      33      9    1
       2      4   31              ages are whole detection rounds: 0 is the current one
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.errors import InputError

AGES = 5
"""The ages that are distinguished, in rounds; an older query weighs less than 1/16 and is only counted."""
MapPlace = tuple[float, float]
"""A point of the map, as shares of the world's sides."""
NOWHERE: MapPlace = (float("nan"), float("nan"))


class HotspotSummary(NamedTuple):
    users: Ints
    """Codes of `Guard.codes`, ascending, each once."""
    counts: Ints
    """Live queries of each user by age, 0 to 4 and older, (n, 6)."""
    place: MapPlace = NOWHERE
    """The place of the new queries. If unknown, it differs from every other hotspot's."""


def summarise_hotspot(users: Ints, ages: Ints, x: Floats | None = None, y: Floats | None = None) -> HotspotSummary:
    """A summary from one row per live query that meets the partition. `x` and `y` are the queries' centres, as shares
    of the world's sides. Users without a code (below 0) are left out."""
    users, ages = np.asarray(users, np.int64), np.clip(np.asarray(ages, np.int64), 0, AGES)
    if users.shape != ages.shape or users.ndim != 1:
        raise InputError(f"{users.shape} users and {ages.shape} ages: give one of each for every query")
    place = NOWHERE if x is None or y is None else hotspot_place(ages, x, y)
    if len(users) and users.min() < 0:
        known = users >= 0
        users, ages = users[known], ages[known]
    if not len(users):
        return HotspotSummary(np.empty(0, np.int64), np.empty((0, AGES + 1), np.int64), place)
    bins = int(users.max()) + 1
    if bins <= 4 * len(users) + 4096:  # counting is faster than sorting, unless few queries have high codes
        counts = np.bincount(users * (AGES + 1) + ages, minlength=bins * (AGES + 1)).reshape(bins, AGES + 1)
        who = np.flatnonzero(counts.any(axis=1))
        return HotspotSummary(who, counts[who], place)
    who, which = np.unique(users, return_inverse=True)
    counts = np.bincount(which * (AGES + 1) + ages, minlength=len(who) * (AGES + 1))
    return HotspotSummary(who, counts.reshape(len(who), AGES + 1), place)


def hotspot_place(ages: Ints, x: Floats, y: Floats) -> MapPlace:
    """The median of the youngest queries' centres, which a few distant queries do not move."""
    if not len(ages):
        return NOWHERE
    youngest = ages == ages.min()
    return float(np.median(x[youngest])), float(np.median(y[youngest]))


def near(place: MapPlace, x: Floats, y: Floats, reach: float) -> Bools:
    """Which queries lie round the place of a hotspot."""
    return np.maximum(np.abs(x - place[0]), np.abs(y - place[1])) <= reach
