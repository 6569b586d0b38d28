"""The interface of an attribute of a subscription: its columns, its check, its arrays in a file, and reading them.

    an operation's columns ──`parse`──► values ──`write`──► arrays of a segment ──`open`──► stored ──`read`──► values
                                          │ ▲                                                                    │
                                   `take` └─┘ `concatenate`                        `show`: columns again  ◄──────┘

*Values* are those of some subscriptions, as parallel arrays, one row each. *Stored* are the mapped arrays of one
segment, which may leave out default values. `flow/validate.py` parses, `store/segments` writes, opens and reads,
`store/subscriptions` takes rows and shows them. The table of all attributes is `attributes.py`;
simple kinds that a new attribute can use as they are stand in `kinds.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.config import WindowSettings
from geoswarm.core.aggregates.columns import AggregateStream
from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Bools, Floats, Ints, Ordinals, SubIds
from geoswarm.core.arrays.merged_rows import MergedRows
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.frequencies import TermCounts

V = TypeVar("V")
S = TypeVar("S")
Arrays = dict[str, Any]
"""Arrays of a file by name, numpy's or Arrow's."""


class Column(NamedTuple):
    """A column of operations."""

    name: str
    type: pa.DataType
    meaning: str
    """For the documentation: the values that it may have, and what null means."""
    is_required: bool = False
    """Whether every operation has a value. Other columns may be left out, and are null then."""


class Refusals(Protocol):
    """Takes rows that `parse` refuses; `flow/dead_letters.py` implements it. `detail` is a sentence that says what is
    wrong, how much, and what to do; it may name the row's columns in braces."""

    def turn_away(self, chosen: Bools, reason: str, detail: str) -> None: ...

    def turn_away_one(self, row: int, reason: str, detail: str) -> None: ...

    def turn_away_each(self, rows: Ints, reason: str, detail: str, whys: Sequence[str]) -> None:
        """Refuse ascending rows; `detail` may name a row's own `{why}`, too."""


@dataclass(frozen=True)
class Inspection:
    """Operations that are being validated, and what their checks need."""

    rows: pa.RecordBatch
    puts: Bools
    """The rows that register or replace: only their attributes are checked."""
    grid: Grid
    now_us: int
    refusals: Refusals
    window: WindowSettings | None = None
    """Which events are kept; None: no past can be asked for."""
    stream: AggregateStream | None = None
    """The running stream; None: none runs, so what it can give is not known."""

    def is_null(self, column: str) -> Bools:
        return np.asarray(pc.is_null(self.rows.column(column)).to_numpy(zero_copy_only=False), np.bool_)

    def floats(self, column: str) -> Floats:
        """Null is NaN."""
        values = self.rows.column(column)
        return np.asarray(values.to_numpy(zero_copy_only=values.null_count == 0), np.float64)


class Placement(NamedTuple):
    """The order of subscriptions in the segment that is being written."""

    ids: SubIds
    """By ordinal."""
    by_id: Ints
    """The ordinals in ascending order of their ids."""
    counts: TermCounts | None
    """How common terms are in the stream; None: not known."""


class Attribute(ABC, Generic[V, S]):
    """V is the type of its values, S that of its arrays in a segment."""

    name: str
    columns: tuple[Column, ...] = ()
    """The columns of operations that set it; empty: the engine sets it."""
    reasons: ClassVar[Mapping[str, str]] = {}
    """All reasons that `parse` may give for a refusal, each with a sentence."""

    @abstractmethod
    def parse(self, inspection: Inspection) -> V:
        """The value of every row; any value for rows that are refused, or that do not register or replace."""

    @abstractmethod
    def take(self, values: V, rows: Ints) -> V: ...

    @abstractmethod
    def concatenate(self, parts: Sequence[V]) -> V: ...

    @abstractmethod
    def write(self, values: V, placement: Placement) -> Arrays:
        """The arrays of a segment, by names that no other attribute uses; none, if all values are the default."""

    @abstractmethod
    def open(self, records: Arrays) -> S:
        """The stored arrays. A segment older than the attribute has none: its subscriptions have the default."""

    @abstractmethod
    def read(self, stored: S, ordinals: Ints) -> V:
        """The values of some of the segment's subscriptions."""

    def merge(self, parts: Sequence[S], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        """What `write` makes of the merged rows of several segments, whose stored arrays are `parts`; `counts` as in
        `Placement`. All values are in memory here; attributes of which a segment may have gigabytes do it piece by
        piece."""
        values = self.concatenate([self.read(stored, rows.kept(number)) for number, stored in enumerate(parts)])
        ids = np.concatenate(list(rows.gather(rows.ids)))
        arrays = self.write(self.take(values, rows.order()), Placement(ids, np.argsort(ids), counts))
        return [(name, [array]) for name, array in arrays.items()]

    @abstractmethod
    def show(self, values: V) -> dict[str, pa.Array]:
        """Its columns, as in an operation that registers the same."""


def find_ordinals(stored: Ordinals, wanted: Ints) -> Ints:
    """The position of each wanted ordinal among those that a segment stores, in any order, or -1. A few of a million
    take about a millisecond."""
    if not len(stored) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    asked = np.zeros(max(int(stored.max()), int(wanted.max())) + 1, np.bool_)
    asked[wanted] = True
    hits = np.flatnonzero(asked[stored])
    if not len(hits):
        return np.full(len(wanted), -1, np.int64)
    hits = hits[np.argsort(stored[hits])]
    place = np.minimum(np.searchsorted(stored[hits], wanted), len(hits) - 1)
    return np.where(stored[hits[place]] == wanted, hits[place], -1)
