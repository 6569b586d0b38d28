"""Who owns which part of the world: partitions, and the plan that gives each cell to exactly one of them.

A plan is a value. It does not decide what to change (`control/`) and does not find the partitions of a
rectangle (`overlap.py`). A change yields a new plan with the next epoch, or a `PlanError` and the old plan as
it was. SWARM §4.1.1 (global index), §4.3.1 (merging), §5.2 (parent partition and previous machine).

A *slot* is a partition's position in the plan, 0..P-1, and what arrays are indexed by; its *id* lasts from
plan to plan and is never given again. A split or a merge makes new ids; a move keeps the id.

        grid            slot_of_cell     executor_of_slot
        ┌─────┬───┐     0 0 1            [2, 0, 1]
        │  4  │ 7 │     0 0 1
        ├─────┴───┤     2 2 2            partition_id_of_slot
        │    8    │                      [4, 7, 8]
        └─────────┘

Where words are asked for, the terms of a rectangle may be divided, too (PS2Stream §IV-B): several partitions then have
the same rectangle and the same `TermCut`, and each some of its shares. The first of them stands for all in
`slot_of_cell`; `siblings` has them all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from operator import attrgetter, index
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from geoswarm.errors import PlanError
from geoswarm.jit import Bools, CellIds, Ints, PartitionIds, kernel
from geoswarm.space.grid import Grid
from geoswarm.text.cut import TermCut

Slots = npt.NDArray[np.int32]  # positions in Plan.partitions
Owners = npt.NDArray[np.int32]  # executors
Axis = Literal["row", "column"]
EVERYBODY = -1
"""An owner: the partition's events are dealt to all executors in turn. Any of them can serve any event, since all map
the same subscriptions; what is lost is that neighbours are matched together."""
ID_MAX = 2**31 - 1  # partition ids are int32 in arrays; one split a second would take 34 years
_Array = TypeVar("_Array", bound=npt.NDArray[Any])


@dataclass(frozen=True)
class Partition:
    """A rectangle of cells, last row and column included, and the executor that owns it."""

    id: int
    row0: int
    col0: int
    row1: int
    col1: int
    executor: int
    parent: tuple[int, ...] = ()
    """The partitions this one came from: none for the first, one after a split, several after a merge."""
    previous_executor: int | None = None
    """Who held these cells before; None if nobody did, or several at once."""
    cut: int | None = None
    """Which of the plan's cuts divides the terms of this rectangle; None: nobody does, all terms are here."""
    shares: tuple[int, ...] = ()
    """Of the cut, ascending. Whoever has share 0 also serves those who ask for no words."""

    @property
    def box(self) -> tuple[int, int, int, int]:
        return self.row0, self.col0, self.row1, self.col1

    @property
    def cells(self) -> int:
        return (self.row1 - self.row0 + 1) * (self.col1 - self.col0 + 1)

    def halves(self, axis: Axis, after: int, ids: tuple[int, int]) -> tuple["Partition", "Partition"]:
        """The two sides of the border behind row or column `after`, both still with this one's executor."""
        if self.cut is not None:
            raise PlanError(f"partition {self.id} has {len(self.shares)} shares of its place's terms: merge them first")
        if axis not in ("row", "column"):
            raise PlanError(f"partition {self.id} cannot be split along {axis!r}: say 'row' or 'column'")
        lo, hi = (self.row0, self.row1) if axis == "row" else (self.col0, self.col1)
        if not lo <= after < hi:
            choice = f"choose {lo}..{hi - 1}" if lo < hi else "try the other axis"
            raise PlanError(f"partition {self.id} has {axis}s {lo}..{hi}, no split after {after}: {choice}")
        first, second = (replace(self, id=new, parent=(self.id,), previous_executor=self.executor) for new in ids)
        if axis == "row":
            return replace(first, row1=after), replace(second, row0=after + 1)
        return replace(first, col1=after), replace(second, col0=after + 1)


@dataclass(frozen=True)
class Move:
    partition: int
    executor: int


@dataclass(frozen=True)
class Split:
    """Cut along a row or column border: the first half ends with the absolute row or column `after`."""

    partition: int
    axis: Axis
    after: int
    executors: tuple[int, int]


@dataclass(frozen=True)
class Divide:
    """Give each share of the place's terms to an executor; those with the same executor make one partition."""

    partition: int
    terms: TermCut
    executors: tuple[int, ...]


@dataclass(frozen=True)
class Merge:
    """Join partitions that together form a rectangle, or shares of one place's terms."""

    partitions: tuple[int, ...]
    executor: int


Change = Move | Split | Divide | Merge


@dataclass(frozen=True)
class Plan:
    epoch: int
    grid: Grid
    executors: int
    partitions: tuple[Partition, ...]
    """Sorted by id."""
    next_partition_id: int
    drawn_by: str = ""
    """The strategy whose first plan this, or an ancestor, was."""
    cuts: tuple[TermCut, ...] = ()
    """Those that its partitions use."""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            remedy = f"plan {self.epoch - 1} stays in force" if self.epoch > 0 else "correct its partitions"
            raise PlanError(f"plan {self.epoch} {problem}: refused; {remedy}")

    def __getstate__(self) -> dict[str, Any]:
        """Without the derived arrays: a million cells travel as kilobytes and are painted on arrival."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def route(self, cells: CellIds) -> Slots:
        """The slot of each cell, in O(1) each. The cells must come from this plan's grid."""
        return self.slot_of_cell[cells]

    @cached_property
    def slot_of_cell(self) -> Slots:
        """Of siblings, the first."""
        later = {slot for slots in self.siblings.values() for slot in slots[1:]}
        first = np.array([slot not in later for slot in range(len(self.partitions))], np.bool_)
        return _frozen(_paint(self.borders, first, self.grid.rows, self.grid.columns))

    @cached_property
    def executor_of_slot(self) -> Owners:
        return _frozen(np.array([p.executor for p in self.partitions], np.int32))

    @cached_property
    def partition_id_of_slot(self) -> PartitionIds:
        return _frozen(np.array([p.id for p in self.partitions], np.int32))

    @cached_property
    def borders(self) -> Ints:
        """One line per slot: row0, col0, row1, col1, all inclusive."""
        lines = [(p.row0, p.col0, p.row1, p.col1) for p in self.partitions]
        return _frozen(np.array(lines, np.int64).reshape(-1, 4))

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

    def split(self, partition: int, axis: Axis, after: int, executors: tuple[int, int]) -> "Plan":
        return self.apply([Split(partition, axis, after, executors)])

    def merge(self, partitions: Iterable[int], executor: int) -> "Plan":
        return self.apply([Merge(tuple(partitions), executor)])

    def apply(self, changes: Iterable[Change]) -> "Plan":
        """The next plan, one epoch on however many changes there are; each sees what those before it did."""
        draft, cuts = dict(self._by_id), list(self.cuts)
        next_id = self.next_partition_id
        for change in changes:
            touched = change.partitions if isinstance(change, Merge) else (change.partition,)
            missing = [i for i in touched if i not in draft]
            if missing:
                raise PlanError(self._unknown(missing[0]))
            made = _made([draft[i] for i in touched], change, next_id, cuts)
            for i in touched:
                del draft[i]
            draft.update((p.id, p) for p in made)
            next_id = max(next_id, made[-1].id + 1)
        ordered, used = _without_unused(sorted(draft.values(), key=attrgetter("id")), cuts)
        return replace(self, epoch=self.epoch + 1, partitions=ordered, next_partition_id=next_id, cuts=used)

    def followed_by(self, fresh: "Plan", drawn_by: str) -> "Plan":
        """The next plan where nothing of this one is left: `fresh` with the next epoch and ids of its own."""
        first_id = self.next_partition_id
        partitions = tuple(replace(p, id=first_id + i) for i, p in enumerate(fresh.partitions))
        next_id = first_id + len(partitions)
        return Plan(self.epoch + 1, fresh.grid, fresh.executors, partitions, next_id, drawn_by, fresh.cuts)

    def to_json(self) -> dict[str, Any]:
        rows = [
            [p.id, *p.box, p.executor, list(p.parent), p.previous_executor, p.cut, list(p.shares)]
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
            for *numbers, parent, previous, cut, shares in written["partitions"]:
                id_, row0, col0, row1, col1, executor = map(index, numbers)  # 1.5 and "1" are no places in a grid
                held, divided = (None if value is None else index(value) for value in (previous, cut))
                lineage, some = tuple(map(index, parent)), tuple(map(index, shares))
                partitions.append(Partition(id_, row0, col0, row1, col1, executor, lineage, held, divided, some))
            cuts = tuple(TermCut.from_json(cut) for cut in written["cuts"])
            drawn_by = str(written["drawn_by"])
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"a written plan cannot be read: {error!r}; use `to_json`") from error
        return cls(epoch, grid, executors, tuple(partitions), next_id, drawn_by, cuts)

    def _problem_of_terms(self) -> str | None:
        """Why terms are not divided as they should be: each share of a place to one partition."""
        alone = [p for p in self.partitions if p.cut is None and p.shares]
        strange = [p for p in self.partitions if p.cut is not None and not 0 <= p.cut < len(self.cuts)]
        if alone or strange:
            return f"has partition {(alone + strange)[0].id} with shares of a cut that it does not have"
        for slots in self.siblings.values():
            parts = [self.partitions[slot] for slot in slots]
            held = sorted(share for p in parts for share in p.shares)
            cut = parts[0].cut
            if cut is None or {p.cut for p in parts} != {cut} or held != list(range(self.cuts[cut].count)):
                return f"does not give each share of the terms of partition {parts[0].id}'s place to one partition"
        return None

    @cached_property
    def _by_id(self) -> dict[int, Partition]:
        return {p.id: p for p in self.partitions}

    def _unknown(self, partition_id: int) -> str:
        if partition_id in self._by_id:
            return f"partition {partition_id} was split or merged earlier in the same list: change it once"
        return f"plan {self.epoch} has no partition {partition_id} among its {len(self.partitions)}: use its ids"

    def _problem(self) -> str | None:
        """Why this is no plan, or None. Rectangles are checked first: painting trusts them."""
        grid, count = self.grid, len(self.partitions)
        ids = [p.id for p in self.partitions]
        if ids != sorted(set(ids)):
            twice = count - len(set(ids))
            return f"uses {twice} partition ids twice" if twice else "does not list its partitions by id"
        if ids and not 0 <= ids[0] <= ids[-1] < self.next_partition_id <= ID_MAX:
            return f"has partition ids {ids[0]}..{ids[-1]} and next {self.next_partition_id}, limit {ID_MAX}"
        strangers = sum(not EVERYBODY <= p.executor < self.executors for p in self.partitions)
        if strangers:
            return f"gives {strangers} of {count} partitions to executors outside 0..{self.executors - 1}"
        first, last = self.borders[:, :2], self.borders[:, 2:]
        wrong = np.any((first < 0) | (first > last) | (last >= (grid.rows, grid.columns)), axis=1)
        if np.any(wrong):
            which = self.partitions[int(np.argmax(wrong))]
            return (
                f"has {np.count_nonzero(wrong)} of {count} partitions that are empty or leave the grid of "
                f"{grid.rows} rows and {grid.columns} columns, such as {which.id} "
                f"(rows {which.row0}..{which.row1}, columns {which.col0}..{which.col1})"
            )
        divided = self._problem_of_terms()
        if divided:
            return divided
        orphans = int(np.count_nonzero(self.slot_of_cell < 0))
        faults = [f"leaves {orphans} of {grid.cells} cells without an owner"] if orphans else []
        places = {p.box: p for p in self.partitions if p.cut is not None}.values()
        areas = [*places, *(p for p in self.partitions if p.cut is None)]
        if sum(p.cells for p in areas) > grid.cells - orphans:  # more area than painted cells
            owners = np.zeros((grid.rows, grid.columns), np.int32)
            for p in areas:
                owners[p.row0 : p.row1 + 1, p.col0 : p.col1 + 1] += 1
            doubles = np.count_nonzero(owners > 1)
            faults.append(f"gives {doubles} of {grid.cells} cells more than one owner")
        return " and ".join(faults) or None


def _without_unused(
    partitions: list[Partition], cuts: list[TermCut]
) -> tuple[tuple[Partition, ...], tuple[TermCut, ...]]:
    used = sorted({p.cut for p in partitions if p.cut is not None})
    place = {cut: i for i, cut in enumerate(used)}
    kept = tuple(p if p.cut is None or place[p.cut] == p.cut else replace(p, cut=place[p.cut]) for p in partitions)
    return kept, tuple(cuts[cut] for cut in used)


def _made(old: list[Partition], change: Change, next_id: int, cuts: list[TermCut]) -> list[Partition]:
    """What takes the place of `old`. Numbers become Python's own: numpy's would not go into JSON."""
    match change:
        case Move():
            held, executor = old[0].executor, int(change.executor)
            return old if executor == held else [replace(old[0], executor=executor, previous_executor=held)]
        case Split():
            halves = old[0].halves(change.axis, int(change.after), (next_id, next_id + 1))
            return [replace(h, executor=int(e)) for h, e in zip(halves, change.executors, strict=True)]
        case Divide():
            cuts.append(change.terms)
            return _divided(old[0], change, next_id, len(cuts) - 1)
        case Merge():
            return [_union(old, change, next_id, cuts)]


def _divided(old: Partition, change: Divide, next_id: int, cut: int) -> list[Partition]:
    if old.cut is not None:
        raise PlanError(f"the terms of partition {old.id} are divided already: merge its shares first")
    if len(change.executors) != change.terms.count:
        raise PlanError(f"{change.terms.count} shares for {len(change.executors)} executors: name one for each share")
    shares_of: dict[int, list[int]] = {}
    for share, executor in enumerate(change.executors):
        shares_of.setdefault(int(executor), []).append(share)
    made = replace(old, parent=(old.id,), previous_executor=old.executor, cut=cut)
    return [
        replace(made, id=next_id + i, executor=executor, shares=tuple(shares))
        for i, (executor, shares) in enumerate(shares_of.items())
    ]


def _union(old: list[Partition], change: Merge, next_id: int, cuts: list[TermCut]) -> Partition:
    if len(old) < 2 or len({p.id for p in old}) < len(old):
        raise PlanError(f"a merge of {change.partitions} joins nothing: name two or more, each once")
    holders = {p.executor for p in old}
    union = Partition(
        id=next_id,
        row0=min(p.row0 for p in old),
        col0=min(p.col0 for p in old),
        row1=max(p.row1 for p in old),
        col1=max(p.col1 for p in old),
        executor=int(change.executor),
        parent=tuple(p.id for p in old),
        previous_executor=holders.pop() if len(holders) == 1 else None,
    )
    if any(p.cut is not None for p in old):
        if len({(p.box, p.cut) for p in old}) > 1:
            raise PlanError(f"partitions {change.partitions} have shares of different places' terms: merge one place's")
        shares = tuple(sorted(share for p in old for share in p.shares))
        whole = old[0].cut is not None and len(shares) == cuts[old[0].cut].count
        return replace(union, cut=None if whole else old[0].cut, shares=() if whole else shares)
    # They do not overlap, so filling their bounding rectangle is the same as forming one.
    filled = sum(p.cells for p in old)
    if filled != union.cells:
        raise PlanError(
            f"partitions {change.partitions} fill {filled} of the {union.cells} cells of the rectangle "
            "around them: merge only what forms a rectangle"
        )
    return union


def _frozen(array: _Array) -> _Array:
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
