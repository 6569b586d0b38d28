"""The plan, which gives each cell of the world to exactly one partition, and each partition to an executor, or several.

A plan is a value. `control/` decides what to change, `overlap.py` finds the partitions of a rectangle. A change returns
a new plan with the next epoch, or raises a `PlanError`; the old plan stays as it is. SWARM §4.1.1 (global index),
§4.3.1 (merging), §5.2 (parent partition and previous machine).

A *slot* is a partition's position in the plan, 0..P-1, by which arrays are indexed; its *id* lasts from plan to plan
and is never used again. A split or a merge makes new ids; a move keeps the id.

        grid            slot_of_cell     executor_of_slot
        ┌─────┬───┐     0 0 1            [2, 0, 1]
        │  4  │ 7 │     0 0 1
        ├─────┴───┤     2 2 2            partition_id_of_slot
        │    8    │                      [4, 7, 8]
        └─────────┘

Where subscriptions ask for words, the terms of a rectangle may be divided, too (PS2Stream §IV-B): several partitions
then have the same rectangle and the same `TermCut`, each with some of its shares. The first of them stands for all in
`slot_of_cell`; `siblings` has them all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from operator import attrgetter, index
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import Bools, CellIds, Floats, Ints, PartitionIds, kernel
from geoswarm.core.space.change import Change, Merge, Move, Split, Spread, apply_change
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Axis, Partition
from geoswarm.core.space.plan_problems import PARTITION_ID_MAX, find_problem
from geoswarm.core.text.cut import TermCut
from geoswarm.errors import PlanError

Slots = npt.NDArray[np.int32]  # positions in Plan.partitions
ExecutorIds = npt.NDArray[np.int32]  # executors
_Array = TypeVar("_Array", bound=npt.NDArray[Any])
_EVERYBODY = -1  # the owner of a partition that is spread over all executors, in plans written before 0.2
_LATER: tuple[Any, ...] = (None, (), ())
"""Columns that came later: cut, shares and others."""
_FEWEST = 8  # columns of a written partition


class Turns(NamedTuple):
    """The turns of all slots, one after another: a slot has one, or several where it is spread."""

    first_of_slot: Slots
    """The first turn of each slot."""
    counts: Slots
    """The number of turns of each slot."""
    slot: Slots
    owner: ExecutorIds
    lane: Slots
    """The first turn of the same slot and owner: events of both travel together."""


@dataclass(frozen=True)
class Plan:
    epoch: int
    grid: Grid
    executors: int
    partitions: tuple[Partition, ...]
    """Sorted by id."""
    next_partition_id: int
    drawn_by: str = ""
    """The strategy that drew this plan, or the ancestor from which it was changed."""
    cuts: tuple[TermCut, ...] = ()
    """The cuts that its partitions use."""

    def __post_init__(self) -> None:
        problem = find_problem(self)
        if problem:
            remedy = f"plan {self.epoch - 1} stays in force" if self.epoch > 0 else "correct its partitions"
            raise PlanError(f"plan {self.epoch} {problem}: refused; {remedy}")

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out derived arrays: a million cells travel as kilobytes and are painted on arrival."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def route(self, cells: CellIds) -> Slots:
        """The slot of each cell, in O(1) each. The cells must come from this plan's grid."""
        return self.slot_of_cell[cells]

    @cached_property
    def slot_of_cell(self) -> Slots:
        """The slot of each cell; of siblings, the first."""
        later = {slot for slots in self.siblings.values() for slot in slots[1:]}
        first = np.array([slot not in later for slot in range(len(self.partitions))], np.bool_)
        return _freeze(_paint(self.borders, first, self.grid.rows, self.grid.columns))

    @cached_property
    def executor_of_slot(self) -> ExecutorIds:
        """The executor of each slot; of one that is spread, the first."""
        return _freeze(np.array([p.executor for p in self.partitions], np.int32))

    @cached_property
    def turns(self) -> Turns:
        counts = np.array([1 + len(p.others) for p in self.partitions], np.int32)
        slot = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        owner = np.array([owner for p in self.partitions for owner in p.turns], np.int32)
        first = (np.cumsum(counts) - counts).astype(np.int32)
        _, lane, same = np.unique(slot * np.int64(self.executors) + owner, return_index=True, return_inverse=True)
        return Turns(*map(_freeze, (first, counts, slot, owner, lane[same].astype(np.int32))))

    @property
    def is_spread(self) -> bool:
        return len(self.turns.slot) > len(self.partitions)

    def by_executor(self, of_slot: npt.ArrayLike) -> Floats:
        """The sum for each executor of what its slots have; one that is spread gives an equal part for each turn."""
        turns, values = self.turns, np.asarray(of_slot, np.float64)
        parts = (values / turns.counts)[turns.slot]
        return np.bincount(turns.owner, parts, minlength=self.executors).astype(np.float64)

    @cached_property
    def partition_id_of_slot(self) -> PartitionIds:
        return _freeze(np.array([p.id for p in self.partitions], np.int32))

    @cached_property
    def borders(self) -> Ints:
        """One line per slot: row0, col0, row1, col1, all inclusive."""
        lines = [(p.row0, p.col0, p.row1, p.col1) for p in self.partitions]
        return _freeze(np.array(lines, np.int64).reshape(-1, 4))

    @cached_property
    def siblings(self) -> dict[int, tuple[int, ...]]:
        """For each slot that stands for a rectangle whose terms are divided: the slots of all its partitions."""
        by_box: dict[tuple[int, int, int, int], list[int]] = {}
        for slot, p in enumerate(self.partitions):
            if p.cut is not None:
                by_box.setdefault(p.box, []).append(slot)
        return {slots[0]: tuple(slots) for slots in by_box.values()}

    def partition(self, partition_id: int) -> Partition:
        try:
            return self._by_id[partition_id]
        except KeyError:
            raise PlanError(self._unknown(partition_id)) from None

    def move(self, partition: int, executor: int) -> "Plan":
        return self.apply([Move(partition, executor)])

    def spread(self, partition: int, turns: Iterable[int]) -> "Plan":
        return self.apply([Spread(partition, tuple(turns))])

    def split(self, partition: int, axis: Axis, after: int, executors: tuple[int, int]) -> "Plan":
        return self.apply([Split(partition, axis, after, executors)])

    def merge(self, partitions: Iterable[int], executor: int) -> "Plan":
        return self.apply([Merge(tuple(partitions), executor)])

    def apply(self, changes: Iterable[Change]) -> "Plan":
        """The next plan, one epoch later however many changes there are; they are applied in order."""
        draft, cuts = dict(self._by_id), list(self.cuts)
        next_id = self.next_partition_id
        for change in changes:
            touched = change.partitions if isinstance(change, Merge) else (change.partition,)
            missing = [i for i in touched if i not in draft]
            if missing:
                raise PlanError(self._unknown(missing[0]))
            instead = apply_change([draft[i] for i in touched], change, next_id, cuts)
            for i in touched:
                del draft[i]
            draft.update((p.id, p) for p in instead)
            next_id = max(next_id, instead[-1].id + 1)
        ordered, used = _without_unused(sorted(draft.values(), key=attrgetter("id")), cuts)
        return replace(self, epoch=self.epoch + 1, partitions=ordered, next_partition_id=next_id, cuts=used)

    def with_executors(self, executors: int) -> "Plan":
        """The next plan with so many executors: a new one has no partitions yet; those of one that left go to the
        executor with the fewest cells. What is spread stays with those of its executors that are left."""
        cells = [0] * executors
        for p in self.partitions:
            if p.executor < executors:
                cells[p.executor] += p.cells
        changes: list[Change] = []
        for p in sorted(self.partitions, key=lambda p: -p.cells):
            left = tuple(owner for owner in p.turns if owner < executors)
            if not left:
                target = min(range(executors), key=lambda e: cells[e])
                cells[target] += p.cells
                changes.append(Move(p.id, target))
            elif left != p.turns:
                changes.append(Spread(p.id, left))
        return replace(self.apply(changes), executors=executors)

    def for_strategy(self, drawn_by: str) -> "Plan":
        """The next plan, in which nothing changes but who goes on from it."""
        return replace(self, epoch=self.epoch + 1, drawn_by=drawn_by)

    def replace_by(self, fresh: "Plan", drawn_by: str) -> "Plan":
        """The next plan, which keeps nothing of this one: `fresh` with the next epoch and new ids."""
        first_id = self.next_partition_id
        if first_id + len(fresh.partitions) > PARTITION_ID_MAX:
            first_id = 0  # a plan for every batch uses ids up; those of this plan are far from here
        partitions = tuple(
            replace(p, id=first_id + i, parent=(), previous_executor=None) for i, p in enumerate(fresh.partitions)
        )
        next_id = first_id + len(partitions)
        return Plan(self.epoch + 1, fresh.grid, fresh.executors, partitions, next_id, drawn_by, fresh.cuts)

    def to_json(self) -> dict[str, Any]:
        rows = [
            [p.id, *p.box, p.executor, list(p.parent), p.previous_executor, p.cut, list(p.shares), list(p.others)]
            for p in self.partitions
        ]
        return {
            "epoch": self.epoch,
            "grid": asdict(self.grid),
            "executors": self.executors,
            "next_partition_id": self.next_partition_id,
            "drawn_by": self.drawn_by,
            "partitions": rows,
            "cuts": [cut.to_json() for cut in self.cuts],
        }

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> "Plan":
        try:
            epoch, executors, next_id = (index(written[k]) for k in ("epoch", "executors", "next_partition_id"))
            grid = Grid(**written["grid"])
            partitions = []
            rows: list[list[Any]] = written["partitions"]
            for row in rows:
                *numbers, parent, previous, cut, shares, others = (*row, *_LATER[len(row) - _FEWEST :])
                id_, row0, col0, row1, col1, executor = map(index, numbers)  # refuses 1.5 and "1"
                held, divided = (None if value is None else index(value) for value in (previous, cut))
                lineage, some, beside = (tuple(map(index, values)) for values in (parent, shares, others))
                if executor == _EVERYBODY:
                    executor, beside = 0, tuple(range(1, executors))
                partitions.append(
                    Partition(id_, row0, col0, row1, col1, executor, lineage, held, divided, some, beside)
                )
            cuts = tuple(TermCut.from_json(cut) for cut in written.get("cuts", ()))
            drawn_by = str(written.get("drawn_by", ""))
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"a written plan cannot be read: {error!r}; use `to_json`") from error
        return cls(epoch, grid, executors, tuple(partitions), next_id, drawn_by, cuts)

    @cached_property
    def _by_id(self) -> dict[int, Partition]:
        return {p.id: p for p in self.partitions}

    def _unknown(self, partition_id: int) -> str:
        if partition_id in self._by_id:
            return f"partition {partition_id} was split or merged earlier in the same list: change it once"
        return f"plan {self.epoch} has no partition {partition_id} among its {len(self.partitions)}: use its ids"


def _without_unused(
    partitions: list[Partition], cuts: list[TermCut]
) -> tuple[tuple[Partition, ...], tuple[TermCut, ...]]:
    used = sorted({p.cut for p in partitions if p.cut is not None})
    place = {cut: i for i, cut in enumerate(used)}
    kept = tuple(p if p.cut is None or place[p.cut] == p.cut else replace(p, cut=place[p.cut]) for p in partitions)
    return kept, tuple(cuts[cut] for cut in used)


def _freeze(array: _Array) -> _Array:
    array.setflags(write=False)
    return array


@kernel
def _paint(borders: Ints, paints: Bools, rows: int, columns: int) -> Slots:
    """The slot of each cell, -1 where there is none."""
    slots = np.full(rows * columns, -1, np.int32)
    for slot in np.flatnonzero(paints):
        for row in range(borders[slot, 0], borders[slot, 2] + 1):
            slots[row * columns + borders[slot, 1] : row * columns + borders[slot, 3] + 1] = slot
    return slots
