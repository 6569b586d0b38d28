"""Transitions of fixes that are put in order before. `reorder.py` has the rules."""

from collections.abc import Callable
from typing import Any

from geoswarm.flow.keyed.held_fixes import ReorderWork
from geoswarm.flow.keyed.reorder import Reorder
from geoswarm.flow.keyed.transitions import Transitions


class OrderedTransitions(Transitions):
    def __init__(self, reorder: Reorder, *said: Any) -> None:
        """`said` is what transitions must know."""
        super().__init__(*said)
        self.reorder = reorder

    def work(self) -> Callable[[Any, int], Any]:
        return ReorderWork
