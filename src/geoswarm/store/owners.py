"""The owners of subscriptions and what the subscriptions cost them, read from the segments of a version.

`guard/` decides how much a user may have; its door (`guard/door.py`) asks `OwnedSubscriptions`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import AGGREGATE, BIRTH, KEYWORDS, OBJECTS, REGION, USER, WHERE
from geoswarm.core.subscriptions.keywords import alternatives
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.core.subscriptions.where import lengths_of
from geoswarm.guard.accounts import NOT_HERE, HeldSubscriptions
from geoswarm.guard.door import Owned
from geoswarm.guard.limits import THOUSANDTHS, aggregate_costs, area_shares, costs
from geoswarm.guard.names import as_text
from geoswarm.guard.sensing import LiveQueries
from geoswarm.store.segments.segment import Segment
from geoswarm.store.subscriptions.view import View, find_live


class OwnedSubscriptions(NamedTuple):
    """The subscriptions of a version that are live at a moment."""

    grid: Grid
    view: View
    now_us: int

    def owned(self) -> Iterator[Owned]:
        """The owners of all of them, by segment."""
        for name, held in self.view.segments.items():
            yield owners_in_segment(self.grid, held, np.flatnonzero(held.live(self.view.dead[name], self.now_us)))

    def held(self, ids: Ints, users: pa.StringArray) -> HeldSubscriptions:
        places = find_live(self.view, ids, self.now_us)
        owner, cost = np.full(len(ids), NOT_HERE, np.int64), np.zeros(len(ids), np.int64)
        for number, segment in enumerate(self.view.segments.values()):
            mine = np.flatnonzero(places[0] == number)
            if len(mine):
                ordinals = places[1, mine]
                stored = segment[USER]
                known = pc.index_in(stored.names, value_set=users).fill_null(NOT_HERE)
                owner[mine] = known.to_numpy(zero_copy_only=False)[stored.codes[ordinals]]
                cost[mine] = costs_at(self.grid, segment, ordinals)
        return HeldSubscriptions(places[0] >= 0, owner, cost)

    def queries(self, window: Floats, *, is_middle: bool) -> LiveQueries:
        grid, first = self.grid, 0
        users, names, born_s = [np.empty(0, np.int64)], [pa.array([], pa.string())], [np.empty(0)]
        rects = [np.empty((0, 4))]
        for name, held in self.view.segments.items():
            near = np.flatnonzero(_within(held.rects, window, is_middle))
            near = near[held.live_at(near, self.view.dead[name], self.now_us)]
            stored = held[USER]
            users.append(stored.codes[near].astype(np.int64) + first)
            names.append(as_text(stored.names))
            born_s.append(BIRTH.read(held[BIRTH], near) / 1e6)
            rects.append(held.rects[near])
            first += len(stored.names)
        found = np.concatenate(rects)
        x = ((found[:, 0] + found[:, 2]) / 2 - grid.xmin) / (grid.xmax - grid.xmin)
        y = ((found[:, 1] + found[:, 3]) / 2 - grid.ymin) / (grid.ymax - grid.ymin)
        return LiveQueries(np.concatenate(users), pa.concat_arrays(names), np.concatenate(born_s), x, y)


def owners_in_segment(grid: Grid, held: Segment, ordinals: Ints) -> Owned:
    """The owners of some subscriptions of a segment."""
    stored = held[USER]
    return Owned(stored.names, stored.codes[ordinals].astype(np.int64), costs_at(grid, held, ordinals))


def owners_of(grid: Grid, subs: Subs) -> Owned:
    """The owners of subscriptions that are being registered."""
    users, region = subs[USER], subs[REGION]
    every = np.arange(len(subs))
    listed = alternatives(subs[KEYWORDS], every) + alternatives(subs[OBJECTS], every)
    codes = users.indices.to_numpy(zero_copy_only=False)
    areas, counted = area_shares(grid, region.rects), aggregate_costs(subs[AGGREGATE])
    parts = region.vertex_counts() + lengths_of(subs[WHERE])
    return Owned(users.dictionary, codes, costs(areas, listed, parts, counted))


def costs_at(grid: Grid, held: Segment, ordinals: Ints) -> Ints:
    """The costs, in thousandths, of some subscriptions of a segment."""
    areas, parts = area_shares(grid, held.rects[ordinals]), held[REGION].vertex_counts(ordinals)
    if len(held[WHERE].codes):
        parts = parts + lengths_of(WHERE.read(held[WHERE], ordinals))
    counted = aggregate_costs(AGGREGATE.read(held[AGGREGATE], ordinals))
    return costs(areas, held.alternatives(ordinals), parts, counted)


def live_of_users(view: View, grid: Grid, now_us: int) -> dict[str, tuple[int, float]]:
    """The number of live subscriptions of each user, and their cost."""
    found: dict[str, tuple[int, float]] = {}
    for names, codes, paid in OwnedSubscriptions(grid, view, now_us).owned():
        counts, sums = np.bincount(codes), np.bincount(codes, paid / THOUSANDTHS)
        used = np.flatnonzero(counts)
        users = as_text(names.take(pa.array(used))).to_pylist()
        for user, n, cost in zip(users, counts[used], sums[used], strict=True):
            before = found.get(user, (0, 0.0))
            found[user] = before[0] + int(n), before[1] + float(cost)
    return found


@kernel
def _within(rects: Floats, window: Floats, is_middle: bool) -> Bools:
    met = np.zeros(len(rects), np.bool_)
    for i in range(len(rects)):
        if is_middle:
            x, y = (rects[i, 0] + rects[i, 2]) / 2, (rects[i, 1] + rects[i, 3]) / 2
            met[i] = window[0] <= x <= window[2] and window[1] <= y <= window[3]
        else:
            across = rects[i, 0] <= window[2] and rects[i, 2] >= window[0]
            met[i] = across and rects[i, 1] <= window[3] and rects[i, 3] >= window[1]
    return met
