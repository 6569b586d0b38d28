"""The interface of a keyed operator: rows of a key and its state in, rows to keep and rows to send out.

A pure function of its turn: it keeps nothing, and knows neither executors nor plans nor files. `turn.py` groups the
rows of a key, `store/keyed_state.py` stores state, `core/keys/plan.py` has the executor of each key. Mixed §II.

Time is cut into intervals. State belongs to an interval, and is forgotten when that interval leaves the window, which
is the last `window` intervals, including the present one:

    interval     3     4     5     6     7   <- now        window = 4
    kept        (x)   ▒▒    ▒     ▒▒▒   ▒                  3 has been forgotten
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Floats, Ints

KEY = "key"
"""The column that rows are routed by: integers or text."""


class Moment(NamedTuple):
    """The time of a batch; the same each time it runs."""

    batch: int
    interval: int
    now_us: int


def no_clock() -> float:
    """A clock that stands still."""
    return 0.0


class Turn(NamedTuple):
    """Some keys, each once and with all its rows of the batch: those of key i are rows[starts[i]:starts[i + 1]]."""

    keys: pa.Array
    rows: pa.RecordBatch
    """Rows that `feed` returned, including `key`; rows of one key are in the operator's `order`."""
    starts: Ints
    held: pa.RecordBatch
    """The state of these keys, in columns of `kept`; rows of one key from oldest to newest."""
    held_starts: Ints
    held_intervals: Ints
    """The interval in which each held row was kept."""
    held_batches: Ints
    """The batch in which each held row was kept."""
    moment: Moment
    cpu_s: Callable[[], float] = no_clock
    """The CPU time of the calling thread, for what a key took; nothing else may depend on it."""

    @property
    def row_counts(self) -> Ints:
        return np.diff(self.starts)

    @property
    def row_groups(self) -> Ints:
        """The number of the key of each row."""
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
    """Rows to keep, in columns of `kept`, beside those that are held: nothing is ever overwritten."""
    kept_groups: Ints
    """The number of the key of each kept row in the turn; ascending."""
    given: pa.RecordBatch
    """Rows to send out, in columns of `given`."""
    work: Floats
    """The work for each key, in a unit of the operator's own: what its time depends on."""
    given_counts: Ints | None = None
    """The number of given rows of each key, where the operator knows it."""
    took_us: Floats | None = None
    """The CPU time of each key, where the operator has measured it by the turn's clock (`charge.py`)."""
    counts: Mapping[str, int] = {}
    """What the operator counts beside its rows, by name, for the journal."""


class Operator(ABC):
    """Made in the driver and sent to workers, so it must be picklable and small."""

    name: str
    """The name of the operator and of the folder of its state: letters, digits and dashes."""
    window: int = 1
    """The number of intervals, including the present one, of which a key keeps state."""
    order: tuple[str, ...] = ()
    """Columns by which the rows of one key are sorted. Give some if the order matters: Spark promises none."""
    merge_by: str | None = None
    """A column of `given`. Rows that agree in it are brought together and merged before they go out."""
    merges_always: bool = False
    """Whether they are always merged, or only while some key is split."""
    can_split: bool = False
    """Whether several places may work on a key at once: because `merge` can merge their rows, or because what they give
    does not overlap. Each place gets some of the key's rows of the batch, or none, and all of its state, or, with
    `part_numbers`, its own part of it."""

    @property
    @abstractmethod
    def kept(self) -> pa.Schema:
        """The columns of its state, without the key."""

    @property
    def kept_before(self) -> tuple[pa.Schema, ...]:
        """What `kept` was in earlier versions of the operator, the oldest first: the first columns of the next one.
        Such state is still read; what it lacks is null."""
        return ()

    @abstractmethod
    def given(self, fed: pa.Schema) -> pa.Schema:
        """The columns of the rows that go out, for fed rows of this schema."""

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Incoming rows as the operator needs them, with a column `key`; more or fewer. Runs before the exchange."""
        return rows

    def aside(self, fed: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows to route by key, and the rows, in their final form, that go out without the operator's work."""
        return fed, None

    @property
    def narrow(self) -> pa.Schema | None:
        """Columns of fed rows in which some of them can travel, because the others follow from these; `work` gets such
        rows as they travelled. None: all travel whole."""
        return None

    def fits_narrow(self, fed: pa.RecordBatch) -> Bools:
        """Which fed rows can travel so, if there are narrow columns."""
        raise NotImplementedError(f"operator {self.name} has no narrow rows")

    def part_numbers(self, rows: pa.RecordBatch) -> Ints | None:
        """A number for each row, fed or kept. Rows of a split key that agree in it go to one place, which gets the kept
        rows with such numbers and no others. None: rows are dealt out in turn, and each place gets all state."""
        return None

    def work(self) -> Callable[[Any, int], Any] | None:
        """What works for an executor (task, its number) in place of turns, with the `run`, `report` and `loads` of
        `work.ExecutorWork`: for state that does not live in intervals (`flow/aggregates/work.py`). None: turns."""
        return None

    @abstractmethod
    def update(self, turn: Turn) -> Answer:
        """Called with every key that has rows in this batch, in one or several turns."""

    def compact(self, held: StateRows) -> StateRows:
        """Fewer rows with the same meaning. The rows are of one interval, key by key from oldest to newest, and may be
        only some of the state: other files may have rows of the same key and interval."""
        return held

    def close(self, turn: Turn) -> pa.RecordBatch | None:
        """Called when the interval `moment.interval` has ended, with every key that kept rows in it, without new rows,
        with its state up to then. Returns rows to send out, or None."""
        return None

    def expire(self, turn: Turn) -> pa.RecordBatch | None:
        """Called when an interval leaves the window, with every key that kept rows in it, and these. Like `close`."""
        return None

    def merge(self, given: pa.RecordBatch, starts: Ints) -> pa.RecordBatch:
        """Merges rows of several executors that agree in `merge_by`: one row, or several, for each group."""
        raise NotImplementedError(f"operator {self.name} has no merge")
