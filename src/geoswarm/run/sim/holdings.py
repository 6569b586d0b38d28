"""What the executors of a virtual cluster hold: the queries of each partition, and its statistics.

The statistics are the engine's own (`core/stats/`); only the counting is divided by partition here, as tasks do it in
the engine. `cluster.py` serves events. A drawn thing stands for many: counts are sums, so they scale.
"""

import numpy as np

from geoswarm.core.arrays.jit import Bools, CellIds, Ints
from geoswarm.core.space.grid import CellBox
from geoswarm.core.space.overlap import overlap
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.redraw import redraw_stats
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.run.sim.world import World


class Holdings:
    def __init__(self, world: World, plan: Plan, *, counts: bool) -> None:
        """`counts`: whether to keep statistics. A static plan needs none."""
        self._world, self._counts = world, counts
        self._live: Bools = np.zeros(len(world.boxes.row0), np.bool_)
        self._fresh: Bools = np.zeros(len(world.boxes.row0), np.bool_)  # queries of this round
        self._held: dict[int, Ints] = {p.id: np.empty(0, np.int64) for p in plan.partitions}
        self.stats: dict[int, TrioStat] = {p.id: TrioStat.empty(p) for p in plan.partitions} if counts else {}

    def queries_of_slot(self, plan: Plan) -> Ints:
        return np.array([len(self._held[p.id]) for p in plan.partitions], np.int64) * self._world.query_weight

    def register(self, plan: Plan, ordinals: Ints) -> Ints:
        """Registers queries. Returns how many arrived at each slot."""
        self._live[ordinals] = self._fresh[ordinals] = True
        met, ends, arrived = self._by_slot(plan, ordinals)
        for slot in np.flatnonzero(arrived):
            partition, new = plan.partitions[slot].id, met[ends[slot] - arrived[slot] : ends[slot]]
            self._held[partition] = np.concatenate([self._held[partition], new])
            if self._counts:
                drawn = TrioStat.empty(plan.partitions[slot])
                drawn.add_queries(self._world.of(new))
                self._add(partition, drawn, self._world.query_weight)
        return arrived * self._world.query_weight

    def cancel(self, plan: Plan, ordinals: Ints) -> Ints:
        """Cancels queries. Returns how many left each slot."""
        self._live[ordinals] = False
        met, ends, left = self._by_slot(plan, ordinals)
        for slot in np.flatnonzero(left):
            partition, old = plan.partitions[slot].id, met[ends[slot] - left[slot] : ends[slot]]
            held = self._held[partition]
            self._held[partition] = held[self._live[held]]
            if self._counts:
                drawn = TrioStat.empty(plan.partitions[slot])
                drawn.remove_queries(self._world.of(old), self._fresh[old])
                self._add(partition, drawn, self._world.query_weight)
        return left * self._world.query_weight

    def count(self, plan: Plan, cells: CellIds) -> None:
        """Counts drawn events, each with the world's weight. The coordinator closes the round."""
        slots = plan.route(cells)
        order = np.argsort(slots, kind="stable")
        rows, columns = np.divmod(cells[order].astype(np.int64), plan.grid.columns)
        counts = np.bincount(slots, minlength=len(plan.partitions))
        ends = np.cumsum(counts)
        for slot, partition in enumerate(plan.partitions):
            seen = slice(ends[slot] - counts[slot], ends[slot])
            drawn = TrioStat.empty(partition)
            drawn.add_points(rows[seen], columns[seen])
            self._add(partition.id, drawn, self._world.weight)
        self._fresh[:] = False

    def redraw(self, old: Plan, new: Plan) -> Ints:
        """Changes to a new plan. Returns, by its slots, the number of queries that came to another executor, or to
        several where a partition is spread."""
        kept = {p.id: p for p in old.partitions}
        sources = {p.id: self._held[p.id] for p in old.partitions}
        moved = np.zeros(len(new.partitions), np.int64)
        held: dict[int, Ints] = {}
        for slot, p in enumerate(new.partitions):
            if p.id in kept:
                held[p.id], before = sources[p.id], [kept[p.id]]
            else:
                # Slots are found by cells, so that several changes in one step count as their sum.
                met = np.unique(old.slot_of_cell.reshape(old.grid.rows, -1)[p.row0 : p.row1 + 1, p.col0 : p.col1 + 1])
                before = [old.partitions[s] for s in met]
                pool = np.concatenate([sources[b.id] for b in before])
                pool = np.unique(pool) if len(before) > 1 else pool
                held[p.id] = pool[self._world.meets(pool, p.row0, p.col0, p.row1, p.col1)]
            takers = [owner for owner in p.owners if any(owner not in b.owners for b in before)]
            moved[slot] = len(held[p.id]) * len(takers)
        self._held = held
        if self._counts:
            self._redraw_stats(new, {p.id: self._world.of(held[p.id]) for p in new.partitions if p.id not in kept})
        return moved * self._world.query_weight

    def _redraw_stats(self, new: Plan, queries_of: dict[int, CellBox]) -> None:
        """Redraws statistics. Queries are counted as drawn, so other counts are divided by the weight meanwhile."""
        weight = float(self._world.query_weight)
        scaled = {i: _times(stat, 1 / weight) for i, stat in self.stats.items()} if weight != 1 else self.stats
        drawn = redraw_stats(scaled, new, queries_of)
        self.stats = {i: _times(stat, weight) for i, stat in drawn.items()} if weight != 1 else drawn

    def _add(self, partition: int, drawn: TrioStat, weight: int) -> None:
        self.stats[partition] += _times(drawn, float(weight))

    def _by_slot(self, plan: Plan, ordinals: Ints) -> tuple[Ints, Ints, Ints]:
        """The queries sorted by the slots that they meet, the end of each slot's, and their number."""
        found = overlap(plan, self._world.of(ordinals))
        times = np.repeat(ordinals, np.diff(found.offsets))
        counts = np.bincount(found.slots, minlength=len(plan.partitions))
        return times[np.argsort(found.slots, kind="stable")], np.cumsum(counts), counts


def _times(stat: TrioStat, weight: float) -> TrioStat:
    """The statistics as if everything had been counted `weight` times."""
    return TrioStat(stat.box, stat.by_row * weight, stat.by_column * weight)
