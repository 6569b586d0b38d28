"""How many rows a key had in the window, and the same for the words of texts.

`trending.py` finds terms that rise. Mixed §V: word count on Social.

A batch keeps one row for each of its keys, so a count is the sum of the held rows.

A split key is counted in several places at once, and any of them may have no rows in a batch and give nothing. So each
place must get all held rows of the key, including those of the others; `merge` takes that part of the count once, and
adds up the new rows:

    place 0    held 70    added 4    count 74
    place 1    held 70    added 3    count 73        merged: count 77, added 7
"""

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.flow.keyed.columns import check_name, check_window, column, key_column, key_field, make_batch, sum_groups
from geoswarm.flow.keyed.operator import KEY, Answer, Operator, StateRows, Turn
from geoswarm.flow.keyed.terms import terms_in, tokens_of

COUNT_KEPT = pa.schema([pa.field("count", pa.int64(), nullable=False)])


class Count(Operator):
    """Gives (key, count, added) for each key with rows in the batch: rows in the window, and of those, in this batch.

    A key without rows in a batch gives nothing, also when its count falls because an interval leaves the window.
    """

    merge_by = KEY
    can_split = True

    def __init__(self, key: str = KEY, window: int = 1, name: str = "count") -> None:
        self.key = key
        self.window = check_window(window)
        self.name = check_name(name)

    @property
    def kept(self) -> pa.Schema:
        return COUNT_KEPT

    def given(self, fed: pa.Schema) -> pa.Schema:
        numbers = [pa.field(name, pa.int64(), nullable=False) for name in ("count", "added")]
        return pa.schema([key_field(fed), *numbers])

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Only the key: the exchange carries nothing else."""
        return pa.RecordBatch.from_arrays([key_column(rows, self.key, self.name)], names=[KEY])

    def update(self, turn: Turn) -> Answer:
        added = turn.row_counts
        count = added + sum_groups(turn.held.column("count").to_numpy(), turn.held_starts)
        given = make_batch([turn.keys, pa.array(count), pa.array(added)], self.given(turn.rows.schema))
        return Answer(*count_rows(turn), given, count_work(turn), np.ones(len(turn.keys), np.int64))

    def compact(self, held: StateRows) -> StateRows:
        return add_up_counts(held)

    def merge(self, given: pa.RecordBatch, starts: Ints) -> pa.RecordBatch:
        count, added = (given.column(name).to_numpy() for name in ("count", "added"))
        added_in_all = sum_groups(added, starts)
        before = np.maximum.reduceat(count - added, starts[:-1]) if len(starts) > 1 else added_in_all
        keys = given.column(KEY).take(pa.array(starts[:-1]))
        return make_batch([keys, pa.array(before + added_in_all), pa.array(added_in_all)], given.schema)


class WordCount(Count):
    """Counts the texts of the window that have a term, term by term; `core/text/tokens.py` defines terms."""

    def __init__(self, text: str = "text", window: int = 1, name: str = "word-count") -> None:
        super().__init__(text, window, name)

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        tokens = tokens_of(column(rows, self.key, self.name), self.name)
        return pa.RecordBatch.from_arrays([terms_in(tokens)], names=[KEY])


def count_rows(turn: Turn) -> tuple[pa.RecordBatch, Ints]:
    """The rows to keep: the number of rows of each key of the turn."""
    kept = np.flatnonzero(turn.row_counts)  # one place of a split key may have no rows of it
    return make_batch([pa.array(turn.row_counts[kept])], COUNT_KEPT), kept


def count_work(turn: Turn) -> Floats:
    """Rows counted and rows looked up; there are few of the second once they are compacted."""
    return (turn.row_counts + np.diff(turn.held_starts)).astype(np.float64)


def add_up_counts(held: StateRows) -> StateRows:
    """One row for each key that has any, with the newest of its batches."""
    sums = sum_groups(held.rows.column("count").to_numpy(), held.starts)
    some = np.flatnonzero(np.diff(held.starts))
    starts = np.concatenate([[0], np.cumsum(np.diff(held.starts) > 0)])
    return StateRows(make_batch([pa.array(sums[some])], COUNT_KEPT), starts, held.batches[held.starts[some + 1] - 1])
