"""Transitions of fixes that are put in order before. `reorder.py` has the rules."""

from typing import Any

from geoswarm.flow.keyed.held_fixes import ReorderWork
from geoswarm.flow.keyed.life_work import LifeWork
from geoswarm.flow.keyed.reorder import Reorder
from geoswarm.flow.keyed.transitions import Transitions
from geoswarm.flow.keyed.work import ExecutorWork


class OrderedTransitions(Transitions):
    def __init__(self, reorder: Reorder, *said: Any) -> None:
        """`said` is what transitions must know."""
        super().__init__(*said)
        self.reorder = reorder

    def work(self) -> type[ExecutorWork]:
        return ReorderWork if self.telling is None else OrderedLifeWork


class OrderedLifeWork(ReorderWork, LifeWork):
    """Both: who is inside, and who is silent, is known from the fixes that have gone on."""
