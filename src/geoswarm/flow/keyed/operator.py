"""What a keyed operator is: rows of a key and what is remembered of that key in, rows to remember and rows to send out.

A pure function of its turn: it keeps nothing, and knows neither executors nor plans nor files. `turn.py` puts the rows
of a key together, `store/keyed_state.py` remembers, `core/keys/plan.py` says which executor has which key. Mixed §II.

Time is cut into intervals. What is remembered is remembered of an interval, and forgotten when that interval leaves the
window, which is the last `window` intervals, the present one included:

    interval     3     4     5     6     7   <- now        window = 4
    kept        (x)   ▒▒    ▒     ▒▒▒   ▒                  3 has been forgotten
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints

KEY = "key"
"""The column that rows are routed by: integers or text."""


class Moment(NamedTuple):
    """When a batch runs; the same each time it runs."""

    batch: int
    interval: int
    now_us: int


class Turn(NamedTuple):
    """Some keys, each once and with all its rows of the batch: those of key i are rows[starts[i]:starts[i + 1]]."""

    keys: pa.Array
    rows: pa.RecordBatch
    """What `feed` made, `key` included; rows of one key in the operator's `order`."""
    starts: Ints
    held: pa.RecordBatch
    """What is remembered of these keys, in columns of `kept`; rows of one key from oldest to newest."""
    held_starts: Ints
    held_intervals: Ints
    """Of each row that is held: the interval that it was kept in, and..."""
    held_batches: Ints
    """...the batch."""
    moment: Moment

    @property
    def row_counts(self) -> Ints:
        return np.diff(self.starts)

    @property
    def row_groups(self) -> Ints:
        """Of each row, the number of its key."""
        return np.repeat(np.arange(len(self.keys)), np.diff(self.starts))

    @property
    def held_groups(self) -> Ints:
        return np.repeat(np.arange(len(self.keys)), np.diff(self.held_starts))


class StateRows(NamedTuple):
    """Rows of state, key by key: those of key i are rows[starts[i]:starts[i + 1]], each from the batch that kept it."""

    rows: pa.RecordBatch
    starts: Ints
    batches: Ints


class Answer(NamedTuple):
    kept: pa.RecordBatch
    """Rows to remember, in columns of `kept`, beside those that are held: nothing is ever overwritten."""
    kept_groups: Ints
    """Of each of them, the number of its key in the turn; ascending."""
    given: pa.RecordBatch
    """Rows to send out, in columns of `given`."""
    work: Floats
    """Per key, what it took, in a unit of the operator's own: keys are balanced by it."""


class Operator(ABC):
    """Made in the driver and sent to workers, so it must be picklable and small."""

    name: str
    """Of the folder that its state is in: letters, digits and dashes."""
    window: int = 1
    """Intervals, the present one included, of which a key keeps state."""
    order: tuple[str, ...] = ()
    """Columns by which the rows of one key are sorted. Give some if the order matters: Spark promises none."""
    merge_by: str | None = None
    """A column of `given`. Rows that agree in it are brought together and go through `merge` before they are sent..."""
    merges_always: bool = False
    """...always, or else only while some key is split."""
    can_split: bool = False
    """Whether a key may be worked on in several places at once, because `merge` makes one of what they give. Each place
    is shown some of the key's rows of the batch, or none, and all that is held of it."""

    @property
    @abstractmethod
    def kept(self) -> pa.Schema:
        """Columns of what is remembered, without the key."""

    @abstractmethod
    def given(self, fed: pa.Schema) -> pa.Schema:
        """Columns of what goes out, for rows of this schema."""

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Incoming rows as the operator wants them, with a column `key`; may be more or fewer. Before the exchange."""
        return rows

    def aside(self, fed: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows that have a key's business, and, as they go out, those that have none and pass by all executors."""
        return fed, None

    @abstractmethod
    def update(self, turn: Turn) -> Answer:
        """Every key that has rows in this batch, in one or several turns."""

    def compact(self, held: StateRows) -> StateRows:
        """Fewer rows that mean the same, of one interval, key by key from oldest to newest. Only some of what is held:
        rows of the same key and interval may lie elsewhere."""
        return held

    def close(self, turn: Turn) -> pa.RecordBatch | None:
        """An interval has ended: `moment.interval`. Every key that kept something in it, without rows, with all that is
        held up to it.
        Returns rows to send out, or None."""
        return None

    def expire(self, turn: Turn) -> pa.RecordBatch | None:
        """An interval leaves the window: every key that kept something in it, with what it kept in it. As `close`."""
        return None

    def merge(self, given: pa.RecordBatch, starts: Ints) -> pa.RecordBatch:
        """Rows that agree in `merge_by` and came from several executors, group by group: one row, or some, of each."""
        raise NotImplementedError(f"operator {self.name} has no merge")
