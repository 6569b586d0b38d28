"""Counts the alerts of subscriptions that end after `max_events`, and finds the last alert of each.

Keyed by the subscription; the state is how many alerts it has had, counted from the version in which it was registered
or replaced. `flow/stages/max_events.py` makes the rows of alerts, and leaves out those behind the last.

    max_events = 3, two were given before      (ts, event_id)   (8, 1)  (8, 4)  (9, 2)
                                                                  3rd     -       -       ended
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Ints, SubIds
from geoswarm.flow.keyed.columns import make_batch
from geoswarm.flow.keyed.operator import KEY, Answer, Operator, StateRows, Turn
from geoswarm.model import SUB_ID

LimitLookup = Callable[[SubIds], tuple[Ints, Ints]]
"""Takes ascending ids of subscriptions, and returns the alerts after which each ends, or 0, and the version from which
on they are counted. It travels to workers, so it must be picklable."""

MOST, COUNTED_FROM, TASK, AMONG = "most", "counted_from", "task", "among"


def no_limits(ids: SubIds) -> tuple[Ints, Ints]:
    """For an operator that is only asked for its name and its columns."""
    return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)


class MaxEvents(Operator):
    """Rows are alerts of such subscriptions, by `sub_id`, with MOST and COUNTED_FROM as they are looked up, and the
    number of the task that has the alert. Gives the last alert of each subscription that has had its most with it: by
    (ts, event_id), then by task; of alerts that agree in all of it, so many (AMONG) are before the end."""

    name = "max-events"
    window = 2
    order = ("ts", "event_id", TASK)

    def __init__(self, lookup: LimitLookup = no_limits) -> None:
        self.lookup = lookup

    @property
    def kept(self) -> pa.Schema:
        return pa.schema([pa.field(name, pa.int64(), nullable=False) for name in (SUB_ID.name, COUNTED_FROM, "told")])

    def given(self, fed: pa.Schema) -> pa.Schema:
        names = (KEY, COUNTED_FROM, "ts", "event_id", TASK)
        return pa.schema([*(fed.field(name) for name in names), pa.field(AMONG, pa.int64(), nullable=False)])

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.rename_columns([KEY if name == SUB_ID.name else name for name in rows.schema.names])

    def update(self, turn: Turn) -> Answer:
        rows, firsts, counts = turn.rows, turn.starts[:-1], turn.row_counts
        most, counted_from = (rows.column(name).to_numpy()[firsts] for name in (MOST, COUNTED_FROM))
        told, known = np.zeros(len(firsts), np.int64), np.flatnonzero(np.diff(turn.held_starts))
        newest = turn.held_starts[known + 1] - 1
        same = turn.held.column(COUNTED_FROM).to_numpy()[newest] == counted_from[known]
        told[known[same]] = turn.held.column("told").to_numpy()[newest[same]]
        ends = np.flatnonzero(told + counts >= most)
        last = firsts[ends] + (most - told)[ends] - 1
        columns = [rows.column(name).take(pa.array(last)) for name in (KEY, COUNTED_FROM, "ts", "event_id", TASK)]
        among = last - _first_of_equals(rows, firsts)[last] + 1
        given = make_batch([*columns, pa.array(among)], self.given(rows.schema))
        kept = [turn.keys, pa.array(counted_from), pa.array(np.minimum(told + counts, most))]
        work = (counts + np.diff(turn.held_starts)).astype(np.float64)
        return Answer(make_batch(kept, self.kept), np.arange(len(firsts)), given, work)

    def compact(self, held: StateRows) -> StateRows:
        """The newest row of each subscription that is still counted from the same version."""
        some = np.flatnonzero(np.diff(held.starts))
        last = held.starts[some + 1] - 1
        ids, counted_from = (held.rows.column(name).to_numpy()[last] for name in (SUB_ID.name, COUNTED_FROM))
        distinct, place = np.unique(ids, return_inverse=True)
        stays = self.lookup(distinct)[1][place] == counted_from
        kept = np.zeros(len(held.starts) - 1, np.int64)
        kept[some[stays]] = 1
        chosen = last[stays]
        return StateRows(held.rows.take(pa.array(chosen)), np.append(0, np.cumsum(kept)), held.batches[chosen])


def _first_of_equals(rows: pa.RecordBatch, firsts: Ints) -> Ints:
    """For each row the first of its key's that agrees with it in their order; these lie together."""
    begins: Bools = np.zeros(len(rows), np.bool_)
    begins[firsts] = True
    for name in MaxEvents.order:
        column = rows.column(name)
        differs = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
        begins[1:] |= differs.to_numpy(zero_copy_only=False)
    return np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
