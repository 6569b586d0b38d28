"""Which objects enter, leave or stay: what becomes of an event's matches when a subscription is on more than `inside`.

Keyed by the object. Remembers where it is, no more: which of the subscriptions that ask it is inside of, and since
when. Whether it is inside was found before, by `match/`, which looks at every event for itself; `transition_kernels.py`
loops. Keyed state as Mixed §II has it; transitions themselves are in none of the papers.

    event            1       2       3       4       5       6
    ts               0 s     10 s    20 s    30 s    40 s    50 s
    subscription     ·    ┌──●───────●───────●──┐    ·    ┌──●──
    inside                   2       3       4               6      whatever the object
    enter                    2                               6
    dwell(15)                                4                      the first 15 s or more after event 2; once a stay
    exit                                             5

What is decided where the words leave room:
 - inside is all that the subscription asks for: an event in its rectangle that does not say its keywords is outside;
 - events of an object go by (ts, event_id). One that is older than the newest of an earlier batch is late: it meets
   subscriptions on `inside` as ever, and neither begins nor ends a stay;
 - a stay is of a subscription's id. A `replace` goes on with it, and so does a `cancel` with a `register` if the
   object sent nothing between them; what was on `inside` before has no stays to go on with;
 - a subscription that is cancelled or has expired is no longer told anything, nor of the exit;
 - an object that is not heard of for `window` intervals is forgotten: no exit, and a new enter.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints, SubIds
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
"""Ascending ids of subscriptions to what each is on, as the numbers of `model.py`; INSIDE if no live one has the id.
`store/subscriptions/view.py` has it (`View.on`)."""

_LONGS = pa.list_(pa.int64())


class Transitions(Operator):
    """Rows are events, each with `sub_ids`: all that it met, also if that is nothing, which may be an exit. Gives those
    that have something left to say, their `sub_ids` ascending."""

    name = "transitions"
    order = ("ts", "event_id")

    def __init__(self, lookup: Lookup, window: int = 1) -> None:
        """`lookup` travels to workers, so it must be picklable: a method of what a task knows of its batch."""
        self.lookup, self.window = lookup, window

    @property
    def kept(self) -> pa.Schema:
        """One row per object and batch: the newest is all that counts."""
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
        """`rows` have `object_id`, without nulls: those go through `without_object`."""
        return rows.rename_columns([_swap_name(name) for name in rows.schema.names])

    def aside(self, fed: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Events of nobody have nothing to follow."""
        keys = fed.column(KEY)
        if not keys.null_count:
            return fed, None
        nobody, given = without_object(fed.filter(keys.is_null()), self.lookup), self.given(fed.schema)
        return fed.filter(keys.is_valid()), nobody.rename_columns(given.names).cast(given)

    def update(self, turn: Turn) -> Answer:
        subs, offsets = _lists(turn.rows.column(SUB_IDS.name))
        newest = turn.held_starts[1:][np.diff(turn.held_starts) > 0] - 1  # the last row of each key that has some
        held = turn.held.take(pa.array(newest))
        held_subs, held_offsets = _lists(held.column("subs"))
        numbers, asked = _look_up_interests(np.concatenate([subs, held_subs]), self.lookup)
        stays = PriorStays(
            np.diff(turn.held_starts) > 0,
            held.column("seen_us").to_numpy(),
            held_offsets,
            numbers[len(subs) :],
            _lists(held.column("since_us"))[0],
        )
        ts_us = turn.rows.column("ts").cast(TIMESTAMP).cast(pa.int64()).to_numpy()
        events = ObjectEvents(turn.starts, ts_us, offsets, numbers[: len(subs)])
        told, kept, work = follow(events, stays, asked)
        lists = [pa.ListArray.from_arrays(pa.array(kept.offsets), pa.array(part), type=_LONGS) for part in kept[3:]]
        return Answer(
            pa.record_batch([pa.array(kept.seen_us), *lists], schema=self.kept),
            kept.groups,
            _notice_rows(turn.rows, told.offsets, told.subs, self.given(turn.rows.schema)),
            work,
        )

    def compact(self, held: StateRows) -> StateRows:
        """The newest row of each key."""
        newest = held.starts[1:] - 1
        return StateRows(held.rows.take(pa.array(newest)), np.arange(len(newest) + 1), held.batches[newest])


def without_object(rows: pa.RecordBatch, lookup: Lookup) -> pa.RecordBatch:
    """Events of nobody: what is left of them are the subscriptions on `inside`, ascending."""
    subs, offsets = _lists(rows.column(SUB_IDS.name))
    told = notices_inside(offsets, *_look_up_interests(subs, lookup))
    return _notice_rows(rows, told.offsets, told.subs, rows.schema)


def _swap_name(name: str) -> str:
    """The object is the key, and a column of the user's that has this name takes the other meanwhile."""
    names: dict[str, str] = {OBJECT.name: KEY, KEY: OBJECT.name}
    return names.get(name, name)


def _look_up_interests(subs: SubIds, lookup: Lookup) -> tuple[Ints, Interests]:
    """Subscriptions as numbers, and what these mean. Each is looked up once."""
    numbers, ids = number_subs(subs)
    order = np.argsort(ids)
    on = np.empty(len(ids), np.int64)
    on[order] = lookup(ids[order])
    return numbers, Interests(ids, on)


def _lists(column: pa.ListArray) -> tuple[Ints, Ints]:
    """What the lists hold, and where each begins."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    return column.flatten().to_numpy(), offsets - offsets[0]


def _notice_rows(rows: pa.RecordBatch, offsets: Ints, subs: SubIds, schema: pa.Schema) -> pa.RecordBatch:
    """The events that have something left, with that."""
    left = np.flatnonzero(np.diff(offsets))
    place = rows.schema.get_field_index(SUB_IDS.name)
    columns = rows.drop_columns([SUB_IDS.name])
    columns = (columns if len(left) == len(rows) else columns.take(pa.array(left))).columns
    ends = np.append(offsets[left], offsets[-1]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(subs), type=SUB_IDS.type)
    return pa.record_batch([*columns[:place], lists, *columns[place:]], schema=schema)
