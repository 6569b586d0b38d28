"""A rectangle of cells, or some of its terms, and the executors that own it. `plan.py` has all partitions."""

from dataclasses import dataclass, replace
from typing import Literal

from geoswarm.errors import PlanError

Axis = Literal["row", "column"]


@dataclass(frozen=True)
class Partition:
    """A rectangle of cells, last row and column included, and the executor that owns it, or several among which its
    events are dealt out. Any executor can serve any event, since all map the same subscriptions."""

    id: int
    row0: int
    col0: int
    row1: int
    col1: int
    executor: int
    parent: tuple[int, ...] = ()
    """The partitions this one came from: none for the first, one after a split, several after a merge."""
    previous_executor: int | None = None
    """The executor that had these cells before; None if none had, or several."""
    cut: int | None = None
    """Which of the plan's cuts divides the terms of this rectangle; None: they are not divided."""
    shares: tuple[int, ...] = ()
    """Shares of the cut, ascending. The partition with share 0 also serves subscriptions that ask for no words."""
    others: tuple[int, ...] = ()
    """The executors that have a turn after `executor`, where it is spread. One that is named twice has two turns."""

    @property
    def turns(self) -> tuple[int, ...]:
        """The executors among which its events are dealt out, an equal part for each turn."""
        return self.executor, *self.others

    @property
    def owners(self) -> tuple[int, ...]:
        """Its executors, each once."""
        return tuple(dict.fromkeys(self.turns))

    @property
    def box(self) -> tuple[int, int, int, int]:
        return self.row0, self.col0, self.row1, self.col1

    @property
    def cells(self) -> int:
        return (self.row1 - self.row0 + 1) * (self.col1 - self.col0 + 1)

    def halves(self, axis: Axis, after: int, ids: tuple[int, int]) -> tuple["Partition", "Partition"]:
        """The two sides of the border after row or column `after`, both with this partition's first executor."""
        if self.cut is not None:
            raise PlanError(f"partition {self.id} has {len(self.shares)} shares of its place's terms: merge them first")
        if axis not in ("row", "column"):
            raise PlanError(f"partition {self.id} cannot be split along {axis!r}: say 'row' or 'column'")
        lo, hi = (self.row0, self.row1) if axis == "row" else (self.col0, self.col1)
        if not lo <= after < hi:
            choice = f"choose {lo}..{hi - 1}" if lo < hi else "try the other axis"
            raise PlanError(f"partition {self.id} has {axis}s {lo}..{hi}, no split after {after}: {choice}")
        first, second = (
            replace(self, id=new, parent=(self.id,), previous_executor=self.executor, others=()) for new in ids
        )
        if axis == "row":
            return replace(first, row1=after), replace(second, row0=after + 1)
        return replace(first, col1=after), replace(second, col0=after + 1)
