"""What the simulators need of a workload, as protocols. The workloads are in `lab/workload/`, which is above this room.

Rows are Arrow batches in the layouts of `model.py`, drawn by their ids: the same range always gives the same rows.
"""

from typing import Any, Protocol

import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Floats, Ints


class CalmStream(Protocol):
    """Events, and the queries that are live before the stream starts."""

    @property
    def events_per_s(self) -> float: ...

    def events(self, first_id: int, count: int) -> pa.RecordBatch: ...

    def subscriptions(self, first_id: int, count: int) -> pa.RecordBatch: ...


class ChangingStream(Protocol):
    """A calm stream with changes: some events move elsewhere, and queries come and go."""

    @property
    def base(self) -> CalmStream: ...

    def events(self, first_id: int, count: int) -> pa.RecordBatch: ...

    def subscriptions(self, first_id: int, count: int) -> pa.RecordBatch: ...

    def operations(self, since_s: float, until_s: float) -> pa.RecordBatch: ...


class UserChanges(Protocol):
    """What users register and cancel, in order of time, as parallel arrays."""

    @property
    def at_s(self) -> Floats: ...

    @property
    def registers(self) -> Bools:
        """Whether each row registers a query; else it cancels one."""

    @property
    def ids(self) -> Ints: ...

    @property
    def users(self) -> pa.StringArray:
        """The name of each row's user."""

    @property
    def x(self) -> Floats:
        """The centre of each query; NaN where one is cancelled."""

    @property
    def y(self) -> Floats: ...


class UserStream(Protocol):
    """Events, and users who register and cancel meanwhile."""

    @property
    def events_per_s(self) -> float: ...

    def events(self, first_id: int, count: int) -> pa.RecordBatch: ...

    def named_standing(self) -> UserChanges:
        """What is registered before the stream starts."""

    def named_changes(self, since_s: float, until_s: float) -> UserChanges:
        """The changes from `since_s` to just before `until_s`."""

    def rectangles(self, x: Floats, y: Floats) -> list[Floats]:
        """The sides xmin, ymin, xmax, ymax of the queries round these centres."""


class TextStream(Protocol):
    """Events with a text, and queries over places and words. As many queries come as go."""

    @property
    def seed(self) -> int: ...

    def events(self, first_id: int, count: int) -> pa.RecordBatch: ...

    def subscriptions(self, first_id: int, count: int, queries: Any, interval: int) -> pa.RecordBatch:
        """`queries` names one of the workload's kinds of queries."""

    def subscriptions_of(self, ids: Ints, queries: Any, interval: int) -> pa.RecordBatch:
        """The same for any ids."""

    def departures(self, live: int, numbers: Ints) -> Ints:
        """The query that each departure removes, where `live` queries are live at any time."""
