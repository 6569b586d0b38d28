"""Finds objects that enter, leave or stay, for subscriptions that are on more than `inside`.

Keyed by the object. The state is where the object is: the subscriptions that it is inside of, and since when. `match/`
found before whether each event is inside; `transition_kernels.py` loops. Keyed state is as in Mixed §II; transitions
are in none of the papers.

    event            1       2       3       4       5       6
    ts               0 s     10 s    20 s    30 s    40 s    50 s
    subscription     ·    ┌──●───────●───────●──┐    ·    ┌──●──
    inside                   2       3       4               6      whatever the object
    enter                    2                               6
    dwell(15)                                4                      the first 15 s or more after event 2; once a stay
    exit                                             5

The exact rules:
 - inside means the whole condition: an event in the rectangle without the keywords is outside;
 - events of an object are ordered by (ts, event_id). One that is older than the newest of an earlier batch is late: it
   meets subscriptions on `inside` as usual, and neither begins nor ends a stay;
 - a stay belongs to a subscription's id. A `replace` continues it, and so does a `cancel` with a `register` if the
   object sent nothing between them; a subscription that was on `inside` before has no stays to continue;
 - a subscription that is cancelled or has expired gets no more notices, not even of the exit;
 - an object without events for `window` intervals is forgotten: no exit, and a new enter.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.flow.keyed.columns import sum_groups
from geoswarm.flow.keyed.operator import KEY, Answer, Operator, StateRows, Turn
from geoswarm.flow.keyed.transition_kernels import (
    Interests,
    ObjectEvents,
    PriorStays,
    follow,
    notices_inside,
    number_subs,
)
from geoswarm.model import OBJECT, SUB_IDS, TIMESTAMP

Lookup = Callable[[SubIds], Ints]
"""Takes ascending ids of subscriptions, and returns what each is on, as the numbers of `model.py`; INSIDE if no live
subscription has the id. `View.on` in `store/subscriptions/view.py` is one."""

_LONGS = pa.list_(pa.int64())


class Transitions(Operator):
    """Rows are events, each with `sub_ids`: all subscriptions that it met, also if there are none (it may be an exit).
    Gives the events that are reported to some subscription, with these as `sub_ids`, ascending."""

    name = "transitions"
    order = ("ts", "event_id")

    def __init__(self, lookup: Lookup, window: int = 1) -> None:
        """`lookup` travels to workers, so it must be picklable, such as a method of `BatchState`."""
        self.lookup, self.window = lookup, window

    @property
    def kept(self) -> pa.Schema:
        """One row for each object and batch, of which only the newest counts."""
        return pa.schema(
            [
                pa.field("seen_us", pa.int64(), nullable=False),  # of its newest event
                pa.field("subs", _LONGS, nullable=False),  # that it is inside of
                pa.field("since_us", _LONGS, nullable=False),  # the ts of each stay's first event; NEVER_US: has dwelt
            ]
        )

    def given(self, fed: pa.Schema) -> pa.Schema:
        return pa.schema([field.with_name(_swap_name(field.name)) for field in fed])

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """`rows` have a column `object_id`, which becomes the key."""
        return rows.rename_columns([_swap_name(name) for name in rows.schema.names])

    def aside(self, fed: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Events without an object have no stays, and go out at once."""
        keys = fed.column(KEY)
        if not keys.null_count:
            return fed, None
        passing, given = without_object(fed.filter(keys.is_null()), self.lookup), self.given(fed.schema)
        return fed.filter(keys.is_valid()), passing.rename_columns(given.names).cast(given)

    def update(self, turn: Turn) -> Answer:
        subs, offsets = _lists(turn.rows.column(SUB_IDS.name))
        newest = turn.held_starts[1:][np.diff(turn.held_starts) > 0] - 1  # the last row of each key that has some
        held = turn.held.take(pa.array(newest))
        held_subs, held_offsets = _lists(held.column("subs"))
        numbers, interests = _look_up_interests(np.concatenate([subs, held_subs]), self.lookup)
        stays = PriorStays(
            np.diff(turn.held_starts) > 0,
            held.column("seen_us").to_numpy(),
            held_offsets,
            numbers[len(subs) :],
            _lists(held.column("since_us"))[0],
        )
        ts_us = turn.rows.column("ts").cast(TIMESTAMP).cast(pa.int64()).to_numpy()
        events = ObjectEvents(turn.starts, ts_us, offsets, numbers[: len(subs)])
        notices, kept, work = follow(events, stays, interests)
        lists = [pa.ListArray.from_arrays(pa.array(kept.offsets), pa.array(part), type=_LONGS) for part in kept[3:]]
        return Answer(
            pa.record_batch([pa.array(kept.seen_us), *lists], schema=self.kept),
            kept.groups,
            _notice_rows(turn.rows, notices.offsets, notices.subs, self.given(turn.rows.schema)),
            work,
            sum_groups(np.diff(notices.offsets) > 0, turn.starts),
        )

    def compact(self, held: StateRows) -> StateRows:
        """Keeps the newest row of each key."""
        newest = held.starts[1:] - 1
        return StateRows(held.rows.take(pa.array(newest)), np.arange(len(newest) + 1), held.batches[newest])


def without_object(rows: pa.RecordBatch, lookup: Lookup) -> pa.RecordBatch:
    """Events without an object, with only their subscriptions on `inside`, ascending."""
    subs, offsets = _lists(rows.column(SUB_IDS.name))
    notices = notices_inside(offsets, *_look_up_interests(subs, lookup))
    return _notice_rows(rows, notices.offsets, notices.subs, rows.schema)


def _swap_name(name: str) -> str:
    """The object becomes the key; a user's column `key` has the name of the object column meanwhile."""
    names: dict[str, str] = {OBJECT.name: KEY, KEY: OBJECT.name}
    return names.get(name, name)


def _look_up_interests(subs: SubIds, lookup: Lookup) -> tuple[Ints, Interests]:
    """Subscriptions as numbers, and what each number is on. Each is looked up once."""
    numbers, ids = number_subs(subs)
    order = np.argsort(ids)
    on = np.empty(len(ids), np.int64)
    on[order] = lookup(ids[order])
    return numbers, Interests(ids, on)


def _lists(column: pa.ListArray) -> tuple[Ints, Ints]:
    """The values of all lists, and where each begins."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    return column.flatten().to_numpy(), offsets - offsets[0]


def _notice_rows(rows: pa.RecordBatch, offsets: Ints, subs: SubIds, schema: pa.Schema) -> pa.RecordBatch:
    """One row for each event that is reported to some subscription, with these."""
    left = np.flatnonzero(np.diff(offsets))
    place = rows.schema.get_field_index(SUB_IDS.name)
    columns = rows.drop_columns([SUB_IDS.name])
    columns = (columns if len(left) == len(rows) else columns.take(pa.array(left))).columns
    ends = np.append(offsets[left], offsets[-1]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(subs), type=SUB_IDS.type)
    return pa.record_batch([*columns[:place], lists, *columns[place:]], schema=schema)
