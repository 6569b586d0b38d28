"""What the store asks of whoever guards it and keeps account of what is in it. `store/guard_files.py` does both."""

from typing import Protocol

import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import ValidatedOperations
from geoswarm.store.subscriptions.view import View


class Door(Protocol):
    def enter(self, operations: pa.RecordBatch, now_us: int, dead: DeadLetters) -> pa.RecordBatch:
        """The operations that are worth validating; it files the others."""

    def admit(self, validated: ValidatedOperations, view: View, now_us: int, dead: DeadLetters) -> Bools:
        """Which of the fit operations may be carried out, by row; it files the others."""

    def done(self, refused: Ints, now_us: int) -> None:
        """The admitted operations have been carried out, all but these rows."""

    def came(self, subs: Subs) -> None:
        """These subscriptions are in force from now on."""

    def went(self, view: View, places: Ints) -> None:
        """The subscriptions at these places are not in force any more."""
