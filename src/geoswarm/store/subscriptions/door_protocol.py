"""The calls that the store makes to Guard, which may refuse operations and keeps accounts (`store/guard_files.py`)."""

from typing import Protocol

import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import ValidatedOperations
from geoswarm.store.subscriptions.view import View


class Door(Protocol):
    def enter(self, operations: pa.RecordBatch, now_us: int, dead: DeadLetters) -> pa.RecordBatch:
        """The operations that are worth validating; the others become dead letters."""

    def admit(self, validated: ValidatedOperations, view: View, now_us: int, dead: DeadLetters) -> Bools:
        """Which of the fit operations may be carried out, by row; the others become dead letters."""

    def done(self, refused: Ints, now_us: int) -> None:
        """The admitted operations have been carried out, all but these rows."""

    def came(self, subs: Subs) -> None:
        """These subscriptions are in force from now on."""

    def went(self, view: View, places: Ints) -> None:
        """The subscriptions at these places are not in force any more."""
