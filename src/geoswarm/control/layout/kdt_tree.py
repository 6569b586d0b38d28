"""The kd^t-tree: a kd-tree whose leaves may be divided by terms. PS2Stream §IV-B, Figure 3.

A value that can be inspected and printed; `to_plan` makes the grid^t index of it, which routes. `kd_cuts.py` and
`hybrid.py` grow it.

    rows 0..999, columns 0..999: behind column 413
      rows 0..999, columns 0..412 -> executor 0, load 4711
      rows 0..999, columns 413..999: by terms
        1802 terms -> executor 1, load 4000
        977 terms -> executor 2, load 4100
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from geoswarm.control.layout.load_model import Costs
from geoswarm.control.layout.places import Place, plan_of
from geoswarm.control.layout.terms import NO_SHARE, by_load
from geoswarm.control.layout.unit import Unit
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import Box


class SpaceCut(NamedTuple):
    axis: int
    """0: the cut is behind a row, 1: behind a column."""
    after: int

    def halves(self, box: Box) -> tuple[Box, Box]:
        if self.axis == 0:
            return box._replace(row1=self.after), box._replace(row0=self.after + 1)
        return box._replace(col1=self.after), box._replace(col0=self.after + 1)


@dataclass(eq=False)
class Node:
    unit: Unit
    load: float
    by_text: bool = False
    """Whether the node is in N_t: divided by terms only."""
    cut: SpaceCut | None = None
    """The cut between its children; None if it has none, or they divide its terms."""
    children: list["Node"] = field(default_factory=list)
    executor: int = -1
    """The executor of a leaf; -1 for inner nodes."""

    @property
    def total(self) -> float:
        return sum(leaf.load for leaf in self.leaves())

    def leaves(self) -> Iterator["Node"]:
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def places(self) -> Iterator["Node"]:
        """The lowest nodes that were made by cuts of space."""
        if self.cut is None:
            yield self
        else:
            for child in self.children:
                yield from child.places()

    def divide(self, shares: int, costs: Costs) -> bool:
        """Divides the terms among new children; False if there are too few terms."""
        share_of_term = by_load(self.unit, shares, costs)
        if len(set(share_of_term.tolist()) - {NO_SHARE}) < shares:
            return False
        parts = self.unit.divide(share_of_term, shares)
        self.children = [Node(part, part.load(costs), by_text=True) for part in parts]
        return True

    def to_plan(self, executors: int) -> Plan:
        """The plan of epoch 0 that routes by this tree."""
        sample = self.unit.sample
        places = []
        for node in self.places():
            leaves = list(node.leaves())
            shares = np.full(sample.terms, NO_SHARE, np.int16)
            for share, leaf in enumerate(leaves):
                if leaf.unit.terms is not None:
                    shares[leaf.unit.terms] = share
            owners = tuple(leaf.executor for leaf in leaves)
            places.append(Place(node.unit.box, owners, shares if len(leaves) > 1 else None))
        return plan_of(executors, sample, places)

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, depth: int) -> Iterator[str]:
        box, terms = self.unit.box, self.unit.terms
        name = (
            f"rows {box.row0}..{box.row1}, columns {box.col0}..{box.col1}" if terms is None else f"{len(terms)} terms"
        )
        if self.cut is not None:
            how = f": behind {('row', 'column')[self.cut.axis]} {self.cut.after}"
        elif self.children:
            how = ": by terms"
        else:
            how = f" -> executor {self.executor}, load {self.load:.0f}"
        yield "  " * depth + name + how
        for child in self.children:
            yield from child._lines(depth + 1)
