"""A generated stream as a source: rows depend on their id alone, so an offset is the id of the next row.

`spark/generator.py` and `local/sources.py` offer it to their engines; the streams themselves are in `lab/workload/`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Protocol

import pyarrow as pa

from geoswarm.errors import SettingsError

READ_ROWS = 65_536
"""Rows per Arrow batch: 2 MB of tweets, which stay in the processor's cache for the next stage."""


class Workload(Protocol):
    id_max: ClassVar[int]
    """The first id that the stream does not have."""

    @property
    def events_per_s(self) -> float: ...

    def events(self, first_id: int, count: int) -> pa.RecordBatch: ...


@dataclass(frozen=True)
class Pace:
    """How fast the rows are offered, and how many."""

    rows_per_batch: int = 500_000
    """The most rows in one micro-batch."""
    rows_total: int | None = None
    """The number of rows after which the stream ends; None: never."""
    partitions: int = 2
    """Input partitions, and thereby tasks, of a micro-batch."""
    paced: bool = False
    """Offer no more than events_per_s × the seconds since this run of the query began."""

    def __post_init__(self) -> None:
        for key, least in (("rows_per_batch", 1), ("rows_total", 0), ("partitions", 1)):
            value = getattr(self, key)
            if value is not None and value < least:
                raise SettingsError(f"{key} of the generator is {value}: give {least} or more")


class Offering:
    """The number of rows that are available at a moment of this run."""

    def __init__(self, workload: Workload, pace: Pace, clock_s: Callable[[], float]) -> None:
        self._workload, self._pace, self._clock_s = workload, pace, clock_s
        self._began: tuple[float, int] | None = None  # (clock, first id) of this run

    def end_id(self, next_id: int) -> int:
        """The first id that is not available yet."""
        total = self._workload.id_max if self._pace.rows_total is None else self._pace.rows_total
        if not self._pace.paced:
            return total
        now_s = self._clock_s()
        if self._began is None:
            self._began = (now_s, next_id)
        began_s, first_id = self._began
        return min(total, first_id + int((now_s - began_s) * self._workload.events_per_s))


def id_ranges(first_id: int, count: int, pieces: int) -> list[tuple[int, int]]:
    """(first id, count) of each of at most `pieces` pieces."""
    pieces = min(pieces, count)
    cuts = [first_id + count * i // pieces for i in range(pieces + 1)] if pieces else []
    return [(a, b - a) for a, b in pairwise(cuts)]


def read_range(workload: Workload, first_id: int, count: int) -> Iterator[pa.RecordBatch]:
    for start in range(first_id, first_id + count, READ_ROWS):
        yield workload.events(start, min(READ_ROWS, first_id + count - start))
