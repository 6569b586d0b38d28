"""The changes of a plan, as values, and the partitions after each. `control/` decides on them, `plan.py` applies them.

SWARM §4.3.1 (move, split, merge); PS2Stream §V-A (terms divided and merged again). `Spread` is in no paper: where a
cell is hot, there is nothing left to cut.
"""

from dataclasses import dataclass, replace

from geoswarm.core.space.partition import Axis, Partition
from geoswarm.core.text.cut import TermCut
from geoswarm.errors import PlanError

TURNS_MAX = 4096
"""The most turns of a partition that is spread."""


@dataclass(frozen=True)
class Move:
    partition: int
    executor: int


@dataclass(frozen=True)
class Spread:
    """Deal the events of a partition out among executors, an equal part for each turn; a `Move` takes it back."""

    partition: int
    turns: tuple[int, ...]


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


Change = Move | Spread | Split | Divide | Merge


@dataclass(frozen=True)
class DivideNote:
    """A `Divide` as it is written down: only the number of its terms is kept."""

    partition: int
    terms: str
    executors: tuple[int, ...]


ChangeNote = Move | Spread | Split | DivideNote | Merge
"""A change as it is written down."""
CHANGE_NAMES: dict[str, type[ChangeNote]] = {
    "move": Move,
    "spread": Spread,
    "split": Split,
    "divide": DivideNote,
    "merge": Merge,
}
"""The name of each change in the journal and in messages."""


def note_of(change: Change) -> ChangeNote:
    if isinstance(change, Divide):
        terms = f"{change.terms.count} shares, {len(change.terms.hashes)} terms by name"
        return DivideNote(change.partition, terms, change.executors)
    return change


def name_of(change: ChangeNote) -> str:
    return next(name for name, kind in CHANGE_NAMES.items() if isinstance(change, kind))


def apply_change(old: list[Partition], change: Change, next_id: int, cuts: list[TermCut]) -> list[Partition]:
    """The partitions that replace `old`. Numbers become Python's own, since JSON takes none of numpy's."""
    match change:
        case Move():
            return [_own(old[0], (int(change.executor),))]
        case Spread():
            return [_own(old[0], tuple(map(int, change.turns)))]
        case Split():
            halves = old[0].halves(change.axis, int(change.after), (next_id, next_id + 1))
            return [replace(h, executor=int(e)) for h, e in zip(halves, change.executors, strict=True)]
        case Divide():
            cuts.append(change.terms)
            return _divide(old[0], change, next_id, len(cuts) - 1)
        case Merge():
            return [_union(old, change, next_id, cuts)]


def _own(old: Partition, turns: tuple[int, ...]) -> Partition:
    if not 1 <= len(turns) <= TURNS_MAX:
        raise PlanError(f"partition {old.id} cannot be dealt out in {len(turns)} turns: use 1 to {TURNS_MAX}")
    if turns == old.turns:
        return old
    return replace(old, executor=turns[0], others=turns[1:], previous_executor=old.executor)


def _divide(old: Partition, change: Divide, next_id: int, cut: int) -> list[Partition]:
    if old.cut is not None:
        raise PlanError(f"the terms of partition {old.id} are divided already: merge its shares first")
    if len(change.executors) != change.terms.count:
        raise PlanError(f"{change.terms.count} shares for {len(change.executors)} executors: name one for each share")
    shares_of: dict[int, list[int]] = {}
    for share, executor in enumerate(change.executors):
        shares_of.setdefault(int(executor), []).append(share)
    divided = replace(old, parent=(old.id,), previous_executor=old.executor, cut=cut, others=())
    return [
        replace(divided, id=next_id + i, executor=executor, shares=tuple(shares))
        for i, (executor, shares) in enumerate(shares_of.items())
    ]


def _union(old: list[Partition], change: Merge, next_id: int, cuts: list[TermCut]) -> Partition:
    if len(old) < 2 or len({p.id for p in old}) < len(old):
        raise PlanError(f"a merge of {change.partitions} joins nothing: name two or more, each once")
    holders = {owner for p in old for owner in p.owners}
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
    # They do not overlap, so they form a rectangle if they fill the one around them.
    filled = sum(p.cells for p in old)
    if filled != union.cells:
        raise PlanError(
            f"partitions {change.partitions} fill {filled} of the {union.cells} cells of the rectangle "
            "around them: merge only what forms a rectangle"
        )
    return union
