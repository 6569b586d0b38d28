"""What it takes to be an attribute of a subscription: its columns, its check, its arrays in a file, and the way back.

    an operation's columns ──`parse`──► values ──`write`──► arrays of a segment ──`open`──► stored ──`read`──► values
                                          │ ▲                                                                    │
                                   `take` └─┘ `concatenate`                        `show`: columns again  ◄──────┘

*Values* are what some subscriptions have, as parallel arrays, one row each. *Stored* is what one segment holds, mapped:
it may leave out what most subscriptions do not ask for. Who calls what: `flow/validate.py` parses, `store/segments`
writes, opens and reads, `store/subscriptions` takes rows and shows them. The table of all attributes is `columns.py`;
simple kinds that a new attribute can use as they are stand in `kinds.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Floats, Ints, SubIds
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
    """For the documentation: what may stand in it, and what null means."""
    is_required: bool = False
    """Whether every operation has a value. Other columns may be left out, and are null then."""


class Refusals(Protocol):
    """Where `parse` sends rows that cannot be taken; `flow/dead_letters.py` has it. `detail` may name the row's columns
    in braces, and is a sentence that says what is wrong, how much, and what to do."""

    def turn_away(self, chosen: Bools, reason: str, detail: str) -> None: ...

    def turn_away_one(self, row: int, reason: str, detail: str) -> None: ...


@dataclass(frozen=True)
class Inspection:
    """Operations that are being validated, and what is needed to judge them."""

    rows: pa.RecordBatch
    puts: Bools
    """The rows that register or replace: only their attributes are looked at."""
    grid: Grid
    now_us: int
    refusals: Refusals

    def is_null(self, column: str) -> Bools:
        return np.asarray(pc.is_null(self.rows.column(column)).to_numpy(zero_copy_only=False), np.bool_)

    def floats(self, column: str) -> Floats:
        """Null is NaN."""
        values = self.rows.column(column)
        return np.asarray(values.to_numpy(zero_copy_only=values.null_count == 0), np.float64)


class Placement(NamedTuple):
    """Where subscriptions come to lie in the segment that is being written."""

    ids: SubIds
    """By ordinal."""
    by_id: Ints
    """The ordinals in ascending order of their ids."""
    counts: TermCounts | None
    """How common terms are in the stream, if that is known."""


class Attribute(ABC, Generic[V, S]):
    """V is the type of its values, S of what a segment stores."""

    name: str
    columns: tuple[Column, ...] = ()
    """The columns of operations that say it; none: the engine itself sets it."""
    reasons: ClassVar[Mapping[str, str]] = {}
    """The reasons that `parse` may give, each with a sentence; dead letters know no others."""

    @abstractmethod
    def parse(self, inspection: Inspection) -> V:
        """The value of every row; whatever, for rows that are refused or put nothing."""

    @abstractmethod
    def take(self, values: V, rows: Ints) -> V: ...

    @abstractmethod
    def concatenate(self, parts: Sequence[V]) -> V: ...

    @abstractmethod
    def write(self, values: V, placement: Placement) -> Arrays:
        """The arrays of a segment, which no other attribute may name the same; none, if all values are the default."""

    @abstractmethod
    def open(self, records: Arrays) -> S:
        """A segment that was written before the attribute was made has no arrays of it: its subscriptions have the
        default."""

    @abstractmethod
    def read(self, stored: S, ordinals: Ints) -> V:
        """The values of some of the segment's subscriptions."""

    @abstractmethod
    def show(self, values: V) -> dict[str, pa.Array]:
        """Its columns, as an operation could say them that registers the same."""
