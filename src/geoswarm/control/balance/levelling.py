"""Level the work of executors on a draft of a plan: whole partitions move, others are cut, and hot cells are spread.

The costliest executor gives to the cheapest, again and again, until the costliest is near the mean or nothing helps.
What should go is known: what the one has too much or the other too little. A partition of about that much moves; else
one is cut so that a side has about that much; and where no cut does, because a few cells have it all, so many turns
of a partition go over (`Spread`). The work is known by cell, so a cut is found in one pass over the cells of its
partition. `auto.py` decides when.
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from geoswarm.control.balance.merge import find_rectangles
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.change import TURNS_MAX, Change, Merge, Move, Split, Spread
from geoswarm.core.space.partition import Axis, Partition
from geoswarm.core.space.plan import Plan

NEAR = 0.3
"""A part that is moved may differ by this share from what should move; else a cut is tried."""
STEP_MIN = 0.01
"""Of the mean: the least that is worth handing over."""
TURN = 1 / 32
"""Of the mean: about the work of a turn, where a partition is spread."""


class CellWork(NamedTuple):
    """Work by cell, in any unit."""

    rows: Ints
    columns: Ints
    work: Floats


@dataclass
class _Part:
    partition: Partition
    mine: Ints
    """Which of the cells are in it."""
    work: float
    turns: dict[int, int]
    """The number of turns of each owner."""

    def of(self, executor: int) -> float:
        """The work that an owner has of it."""
        return self.work * self.turns.get(executor, 0) / sum(self.turns.values())

    @property
    def is_spread(self) -> bool:
        return len(self.turns) > 1

    @property
    def is_plain(self) -> bool:
        """Whether it can be cut and merged."""
        return not self.is_spread and self.partition.cut is None


class _Cut(NamedTuple):
    axis: Axis
    after: int
    moves_first: bool
    """Whether the first half goes."""
    moved: float
    """The work of the half that goes."""


class Levelling:
    def __init__(self, plan: Plan, cells: CellWork) -> None:
        self._done: list[Change] = []
        self._cells, self._next_id = cells, plan.next_partition_id
        slots = plan.slot_of_cell[cells.rows * plan.grid.columns + cells.columns]
        order = np.argsort(slots, kind="stable")
        ends = np.searchsorted(slots[order], np.arange(len(plan.partitions) + 1))
        self._parts: dict[int, _Part] = {}
        for slot, p in enumerate(plan.partitions):
            mine = order[ends[slot] : ends[slot + 1]]
            self._parts[p.id] = _Part(p, mine, float(cells.work[mine].sum()), dict(Counter(p.turns)))
        self.loads = np.zeros(plan.executors)
        for part in self._parts.values():
            self._add(part)

    @property
    def changes(self) -> list[Change]:
        """What leads from the plan to the draft. Of several owners that a partition had on the way, only the last
        counts, and none if it was cut or merged then."""
        kept, settled = list[Change](), set[int]()
        for change in reversed(self._done):
            touched = change.partitions if isinstance(change, Merge) else (change.partition,)
            if not isinstance(change, Move | Spread) or change.partition not in settled:
                kept.append(change)
            settled.update(touched)
        return kept[::-1]

    @property
    def mean(self) -> float:
        return float(self.loads.mean())

    @property
    def busiest(self) -> float:
        """The work of the costliest executor, as a multiple of the mean."""
        return float(self.loads.max()) / self.mean if self.mean > 0 else 1.0

    @property
    def partitions(self) -> int:
        return len(self._parts)

    def take_back(self, share: float) -> None:
        """Give what is spread to the owner that has most of it, if its work is at most `share` of the mean."""
        for part in self._parts.values():
            if part.is_spread and part.work <= share * self.mean:
                self._deal(part, {max(part.turns, key=lambda executor: part.turns[executor]): 1})

    def level(self, aim: float, steps_max: int) -> None:
        """Hand over until the costliest executor is at most `aim` times the mean, or nothing helps."""
        for _ in range(steps_max):
            if self.busiest <= aim or not self._hand_over():
                return

    def merge(self) -> None:
        """Join what forms a rectangle and belongs to one executor. It changes no load."""
        for executor in range(len(self.loads)):
            self._unite([part for part in self._parts.values() if part.is_plain and part.turns.get(executor)])

    def merge_cold(self, share: float) -> None:
        """Join what forms a rectangle and has at most `share` of the mean together, whoever has it."""
        least = share * self.mean
        self._unite([part for part in self._parts.values() if part.is_plain and part.work <= least], least)

    def _unite(self, parts: list[_Part], work_max: float = np.inf) -> None:
        by_id, gone = {part.partition.id: part for part in parts}, set[int]()
        for group in find_rectangles([part.partition for part in parts]):
            work = sum(by_id[i].work for i in group)
            if gone.intersection(group) or work > work_max:
                continue
            gone.update(group)
            (owner,) = max((by_id[i] for i in group), key=lambda part: part.work).turns
            self._done.append(Merge(group, owner))
            for i in group:
                self._remove(self._parts.pop(i))
            boxes = np.array([by_id[i].partition.box for i in group])
            (row0, col0), (row1, col1) = boxes[:, :2].min(axis=0).tolist(), boxes[:, 2:].max(axis=0).tolist()
            mine = np.concatenate([by_id[i].mine for i in group])
            union = Partition(self._next_id, row0, col0, row1, col1, owner)
            self._parts[self._next_id] = _Part(union, mine, work, {owner: 1})
            self._add(self._parts[self._next_id])
            self._next_id += 1

    def _hand_over(self) -> bool:
        """One step from the costliest executor to the cheapest; False if none helps."""
        high, low = int(np.argmax(self.loads)), int(np.argmin(self.loads))
        wanted = min(self.loads[high] - self.mean, self.mean - self.loads[low])
        if wanted < STEP_MIN * self.mean:
            return False
        held = [part for part in self._parts.values() if part.turns.get(high) and part.work > 0]
        whole = [part for part in held if not part.is_spread]
        near = min(whole, key=lambda part: (abs(part.work - wanted), part.partition.id), default=None)
        if near is not None and abs(near.work - wanted) <= NEAR * wanted:
            self._deal(near, {low: 1})
            return True
        heaviest = max(held, key=lambda part: (part.of(high), -part.partition.id))
        if heaviest.of(high) > wanted:
            cut = self._best_cut(heaviest, wanted) if heaviest.is_plain else None
            if cut is not None and abs(cut.moved - wanted) <= NEAR * wanted:
                self._split(heaviest, cut, high, low)
            else:
                self._pass_turns(heaviest, high, low, wanted)
            return True
        smaller = max((part for part in whole if part.work < wanted), key=lambda part: part.work, default=None)
        if smaller is None:
            return False
        self._deal(smaller, {low: 1})
        return True

    def _pass_turns(self, part: _Part, high: int, low: int, wanted: float) -> None:
        """Let `low` have so many of the turns of `high` that about `wanted` goes over."""
        total = min(TURNS_MAX, int(np.ceil(part.work / (TURN * self.mean))))
        turns = {executor: max(1, round(total * n / sum(part.turns.values()))) for executor, n in part.turns.items()}
        given = min(turns[high], max(1, round(wanted / part.work * sum(turns.values()))))
        turns[low] = turns.get(low, 0) + given
        turns[high] -= given
        self._deal(part, {executor: n for executor, n in turns.items() if n})

    def _best_cut(self, part: _Part, wanted: float) -> _Cut | None:
        """The cut one side of which has about `wanted`; None for a single cell, or where one cell has all work."""
        p, best, found = part.partition, np.inf, None
        sides: tuple[tuple[Axis, int, int, Ints], ...] = (
            ("row", p.row0, p.row1, self._cells.rows),
            ("column", p.col0, p.col1, self._cells.columns),
        )
        for axis, low, high, places in sides:
            if low == high:
                continue
            before = np.cumsum(np.bincount(places[part.mine] - low, self._cells.work[part.mine], high - low + 1))[:-1]
            for moves_first, moved in ((True, before), (False, part.work - before)):
                off = np.abs(moved - wanted)
                at = int(np.argmin(off))
                if off[at] < best:
                    best, found = float(off[at]), _Cut(axis, low + at, moves_first, float(moved[at]))
        return found

    def _deal(self, part: _Part, turns: dict[int, int]) -> None:
        """Give a part new owners. Turns are written down as few as will do."""
        self._remove(part)
        few = int(np.gcd.reduce(list(turns.values())))
        part.turns = {executor: n // few for executor, n in turns.items()}
        self._add(part)
        dealt = tuple(executor for executor, n in part.turns.items() for _ in range(n))
        i = part.partition.id
        self._done.append(Spread(i, dealt) if len(dealt) > 1 else Move(i, dealt[0]))

    def _split(self, part: _Part, cut: _Cut, high: int, low: int) -> None:
        p = part.partition
        owners = (low, high) if cut.moves_first else (high, low)
        self._done.append(Split(p.id, cut.axis, cut.after, owners))
        places = self._cells.rows if cut.axis == "row" else self._cells.columns
        is_first = places[part.mine] <= cut.after
        self._remove(self._parts.pop(p.id))
        ids = self._next_id, self._next_id + 1
        self._next_id += 2
        for half, owner, chosen in zip(p.halves(cut.axis, cut.after, ids), owners, (is_first, ~is_first), strict=True):
            mine = part.mine[chosen]
            self._parts[half.id] = _Part(half, mine, float(self._cells.work[mine].sum()), {owner: 1})
            self._add(self._parts[half.id])

    def _add(self, part: _Part) -> None:
        for executor in part.turns:
            self.loads[executor] += part.of(executor)

    def _remove(self, part: _Part) -> None:
        for executor in part.turns:
            self.loads[executor] -= part.of(executor)
