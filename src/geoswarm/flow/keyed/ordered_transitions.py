"""Transitions of fixes that are put in order before. `reorder.py` has the rules."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from geoswarm.flow.keyed.held_fixes import ReorderWork
from geoswarm.flow.keyed.operator import KEY
from geoswarm.flow.keyed.reorder import Reorder, without_inside
from geoswarm.flow.keyed.transitions import Transitions


class OrderedTransitions(Transitions):
    def __init__(self, reorder: Reorder, *said: Any) -> None:
        """`said` is what transitions must know."""
        super().__init__(*said)
        self.reorder = reorder

    def aside(self, fed: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Subscriptions on `inside` get all events at once; the fixes go on with the other subscriptions."""
        return without_inside(fed.filter(fed.column(KEY).is_valid()), self.lookup), self.give_inside(fed)

    def work(self) -> Callable[[Any, int], Any]:
        return ReorderWork
