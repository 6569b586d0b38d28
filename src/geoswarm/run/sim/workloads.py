"""What the simulators need of a workload. The workloads themselves are the lab's, which is above this room, and hands
them in.

Rows are Arrow batches in the layouts of `model.py`, drawn by their ids: whatever range is asked for again is the same.
"""

from typing import Any, Protocol

import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Floats, Ints


class CalmStream(Protocol):
    """Events, and the queries that stand before the stream starts."""

    @property
    def events_per_s(self) -> float: ...

    def events(self, first_id: int, count: int) -> pa.RecordBatch: ...

    def subscriptions(self, first_id: int, count: int) -> pa.RecordBatch: ...


class ChangingStream(Protocol):
    """A calm stream that something happens to: some events fall elsewhere, and queries come and go."""

    @property
    def base(self) -> CalmStream: ...

    def events(self, first_id: int, count: int) -> pa.RecordBatch: ...

    def subscriptions(self, first_id: int, count: int) -> pa.RecordBatch: ...

    def operations(self, since_s: float, until_s: float) -> pa.RecordBatch: ...


class UserChanges(Protocol):
    """What users register and cancel, in order of time; parallel arrays."""

    @property
    def at_s(self) -> Floats: ...

    @property
    def registers(self) -> Bools:
        """False: the row cancels a query."""

    @property
    def ids(self) -> Ints: ...

    @property
    def users(self) -> pa.StringArray:
        """Names."""

    @property
    def x(self) -> Floats:
        """Centre of the query; NaN where it is cancelled."""

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
        """From `since_s` to just before `until_s`."""

    def rectangles(self, x: Floats, y: Floats) -> list[Floats]:
        """xmin, ymin, xmax, ymax of the queries round these centres."""


class TextStream(Protocol):
    """Events with a text, and queries over places and words. As many queries come as go."""

    @property
    def seed(self) -> int: ...

    def events(self, first_id: int, count: int) -> pa.RecordBatch: ...

    def subscriptions(self, first_id: int, count: int, queries: Any, interval: int) -> pa.RecordBatch:
        """`queries` names one of the workload's kinds of queries."""

    def departures(self, live: int, numbers: Ints) -> Ints:
        """The query that each departure takes out, where `live` queries stand at any time."""
