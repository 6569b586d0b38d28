"""Finds objects that enter, leave or stay, for subscriptions that are on more than `inside`.

Keyed by the object. The state is where the object is: its last place, the subscriptions that it is inside of, and since
when. `match/` found before whether each event is inside; `transition_kernels.py` loops, and `flow/objects.py` answers
who is where. Keyed state is as in Mixed §II; transitions are in none of the papers.

    event            1       2       3       4       5       6
    ts               0 s     10 s    20 s    30 s    40 s    50 s
    subscription     ·    ┌──●───────●───────●──┐    ·    ┌──●──
    inside                   2       3       4               6      whatever the object
    enter                    2                               6
    dwell(15)                                4                      the first 15 s or more after event 2; once a stay
    exit                                             5

The exact rules. An event of an object is a fix of it here:
 - inside means the whole condition: an event in the rectangle without the keywords is outside;
 - fixes of an object are ordered by (ts, event_id). One that is older than the newest of an earlier batch is late and
   counted (`late_fixes`): it meets subscriptions on `inside` as usual, and neither begins nor ends a stay, nor counts
   in a run or breaks one. With `reorder_s`, fixes come here in order from batch to batch (`reorder.py`);
 - a run are consecutive fixes on the other side than the object counts as. With `confirm` the object changes sides with
   the fix with which its run has so many fixes, or is so long from its first one; without, with the first. A fix on
   the old side breaks the run, and nothing is left of it;
 - a stay begins, by `since`, with the first fix of the run that confirmed it, and dwells from there; a dwell is
   reported of a fix inside, at the earliest of the confirming one. A stay ends with the fix that confirms the run
   outside;
 - with `exit_buffer_m` a fix outside of the region counts as inside for an object that is inside, unless it is further
   outside than so many metres, on the sphere; the place alone decides then, not the words. An area is measured by its
   `x` and `y`. For an object that is outside, the region ends at its border;
 - `cross` is of ways (`ways.py`): the straight line from one fix to the next touches the region, and does not begin in
   it; and the fix at its end has the object, the words and the columns that the subscription asks for, wherever it is.
   So who comes in has crossed; who goes on inside, or goes out, has not. A way longer than `cross_way_m_max` is a gap,
   and to the first fix of an object there is no way. Areas go their way by their `x` and `y`. There are neither stays
   nor runs of it;
 - an alert begins a pause of `cooldown`: what the subscription would be told of the object at a `ts` before its end is
   left out, not put off, and counted (`cooled`). Stays and runs go on meanwhile;
 - a vague fix (`Vagueness`) is passed over and counted: it is neither inside nor outside, yet the newest fix;
 - a stay, a run and a pause belong to a subscription's id. A `replace` continues them, and so does a `cancel` with a
   `register` if the object sent nothing between them; a subscription that was on `inside` before has none to continue.
   What a run has by then is measured by the new `confirm` at the next fix; a pause keeps its end, unless the new
   subscription has no `cooldown`;
 - a subscription that is cancelled or has expired gets no more notices, not even of the exit. Who asks for it is told
   who is inside when it begins (`initial.py`), and who was inside when it was forgotten (`forgotten.py`);
 - an object without events for `window` intervals is forgotten, with its runs, pauses and sequences: no exit, and a
   new enter.

For alerts (`flow/stages/alerts.py`), each transition also says:
 - `since`, when its stay began; of an exit it is not known if the subscription was on dwell before a `replace`;
 - `sequence`, its number among the alerts of the subscription about the object, from 1. It begins again when the last
   one is longer than `sequence_us` ago.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints, SubIds
from geoswarm.core.subscriptions.trigger import FollowRules, RulesLookup
from geoswarm.flow.keyed.columns import sum_groups, swap_key
from geoswarm.flow.keyed.life_work import LifeWork
from geoswarm.flow.keyed.nearby import RegionLookup, find_near
from geoswarm.flow.keyed.operator import KEY, Answer, Operator, StateRows, Turn
from geoswarm.flow.keyed.state_lists import LONGS, flat_lists, lists_beside, to_lists
from geoswarm.flow.keyed.told_rows import TOLD, Telling
from geoswarm.flow.keyed.transition_arrays import NO_SEQUENCE, Interests, Notices, NotMet, ObjectEvents, PriorStays
from geoswarm.flow.keyed.transition_kernels import follow, notices_inside, number_subs
from geoswarm.flow.keyed.turn_ways import ways_of
from geoswarm.flow.keyed.ways import Crossings
from geoswarm.flow.keyed.work import ExecutorWork
from geoswarm.model import ACCURACY, INSIDE, SUB_IDS, TIMESTAMP


class Vagueness(NamedTuple):
    """Which fixes are too inaccurate to decide by."""

    accuracy_max_m: float | None = None
    """Those whose accuracy is a larger number of metres; None: no fix is vague."""
    is_needed: bool = False
    """Whether those of unknown accuracy are vague, too: null, NaN or below 0."""

    def find(self, rows: pa.RecordBatch) -> Bools:
        if self.accuracy_max_m is None:
            return np.zeros(len(rows), np.bool_)
        metres = rows.column(ACCURACY.name).cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        vague: Bools = np.where(metres >= 0.0, metres > self.accuracy_max_m, self.is_needed)
        return vague


NEVER_VAGUE = Vagueness()


class Transitions(Operator):
    """Rows are events, each with `sub_ids`: all subscriptions that it met, also if there are none (it may be an exit).
    Gives the events that are reported to some subscription, with these as `sub_ids`, ascending."""

    name = "transitions"
    order = ("ts", "event_id")

    def __init__(
        self,
        lookup: RulesLookup,
        window: int = 1,
        vagueness: Vagueness = NEVER_VAGUE,
        sequence_us: int | None = None,
        regions: RegionLookup | None = None,
        crossings: Crossings | None = None,
        telling: Telling | None = None,
    ) -> None:
        """`lookup` and `regions` travel to workers, so they must be picklable, such as methods of `BatchState`. With
        `sequence_us`, rows have what alerts need (`TOLD`); without `regions`, no subscription has an exit buffer, and
        without `crossings`, none is on cross; without `telling`, none is told of objects that send nothing."""
        self.lookup, self.regions, self.crossings = lookup, regions, crossings
        self.window, self.vagueness, self.telling = window, vagueness, telling
        self.sequence_us = NO_SEQUENCE if sequence_us is None else sequence_us

    @property
    def kept(self) -> pa.Schema:
        """One row for each object and batch, of which only the newest counts."""
        *_, before = self.kept_before
        return pa.schema(
            [
                *before,
                pa.field("sequence", LONGS),  # the number of the last alert, 0: none
                pa.field("told_us", LONGS),  # its ts
                pa.field("from_us", pa.int64()),  # ts of its newest fix that was not vague, where its next way begins
                pa.field("from_x", pa.float64()),
                pa.field("from_y", pa.float64()),
            ]
        )

    @property
    def kept_before(self) -> tuple[pa.Schema, ...]:
        """Version 0.1 kept no places, the first of 0.2 neither runs nor pauses, and the next neither sequences nor
        where ways begin."""
        first = pa.schema(
            [
                pa.field("seen_us", pa.int64(), nullable=False),  # of its newest event
                pa.field("subs", LONGS, nullable=False),  # that it is inside of
                pa.field("since_us", LONGS, nullable=False),  # ts of a stay's first event; NEVER_US: has dwelt
            ]
        )
        places = [pa.field("x", pa.float64()), pa.field("y", pa.float64())]  # of its newest event
        runs = [
            pa.field("open_subs", LONGS),  # about which something is kept in the lists after this one
            pa.field("run_us", LONGS),  # ts of the first fix of a run
            pa.field("run_fixes", LONGS),  # 0: there is no run
            pa.field("quiet_us", LONGS),  # the end of a pause, or NO_PAUSE_US
        ]
        return first, pa.schema([*first, *places]), pa.schema([*first, *places, *runs])

    def given(self, fed: pa.Schema) -> pa.Schema:
        named = [field.with_name(swap_key(field.name)) for field in fed]
        if self.sequence_us == NO_SEQUENCE:
            return pa.schema(named)
        return pa.schema(
            [*(field if field.name in ("ts", SUB_IDS.name) else field.with_nullable(True) for field in named), *TOLD]
        )

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """`rows` have a column `object_id`, which becomes the key."""
        return rows.rename_columns([swap_key(name) for name in rows.schema.names])

    def aside(self, fed: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Events without an object have no stays, and go out at once."""
        keys = fed.column(KEY)
        if not keys.null_count:
            return fed, None
        return fed.filter(keys.is_valid()), self.give_inside(fed.filter(keys.is_null()))

    def give_inside(self, fed: pa.RecordBatch) -> pa.RecordBatch:
        """What goes out of events for subscriptions on `inside`."""
        passing, given = without_object(fed, self.lookup, self.sequence_us != NO_SEQUENCE), self.given(fed.schema)
        return passing.rename_columns(given.names).cast(given)

    def work(self) -> type[ExecutorWork] | None:
        return None if self.telling is None else LifeWork

    def update(self, turn: Turn) -> Answer:
        rows, (subs, offsets) = turn.rows, flat_lists(turn.rows.column(SUB_IDS.name))
        known = np.diff(turn.held_starts) > 0
        held = turn.held.take(pa.array(turn.held_starts[1:][known] - 1))  # the last row of each key that has some
        ts_us = rows.column("ts").cast(TIMESTAMP).cast(pa.int64()).to_numpy()
        vague, seen_us = self.vagueness.find(rows), held.column("seen_us").to_numpy()
        ways = ways_of(turn, held, ts_us, vague, self.crossings)
        (held_subs, held_offsets), (open_subs, open_offsets) = (
            flat_lists(held.column(c)) for c in ("subs", "open_subs")
        )
        asked = [subs, held_subs, open_subs, ways.crossed]
        numbers, interests, buffer_mm = _look_up_interests(np.concatenate(asked), self.lookup)
        met, held_subs, open_subs, crossed = np.split(numbers, np.cumsum([len(part) for part in asked[:-1]]))
        since_us, *runs = (flat_lists(held.column(c))[0] for c in ("since_us", "run_us", "run_fixes", "quiet_us"))
        runs += (lists_beside(held.column(c), open_offsets) for c in ("sequence", "told_us"))
        stays = PriorStays(known, seen_us, held_offsets, held_subs, since_us, open_offsets, open_subs, *runs)
        events = ObjectEvents(turn.starts, ts_us, vague, offsets, met)
        near = np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.int64)
        if buffer_mm.any():
            assert self.regions is not None, "somebody has an exit buffer"
            x, y = (rows.column(axis).to_numpy() for axis in ("x", "y"))
            near = find_near(events, x, y, stays, interests.ids, buffer_mm, self.regions)
        not_met = NotMet(*near, ways.crossed_offsets, crossed, ways.began_us)
        notices, kept, work, counts = follow(events, not_met, stays, interests, self.sequence_us)
        newest_rows = pa.array(turn.starts[kept.groups + 1] - 1)
        columns = [
            pa.array(kept.seen_us),
            *(to_lists(kept.offsets, part) for part in (kept.subs, kept.since_us)),
            *(rows.column(axis).take(newest_rows) for axis in ("x", "y")),
            *(to_lists(kept.open_offsets, part) for part in kept[6:]),
            *(column.take(pa.array(kept.groups)) for column in ways.next_begins),
        ]
        return Answer(
            pa.record_batch(columns, schema=self.kept),
            kept.groups,
            _notice_rows(rows, notices, self.given(rows.schema)),
            work,
            sum_groups(np.diff(notices.offsets) > 0, turn.starts),
            counts={
                "cooled": int(counts.cooled[0]),
                "vague": int(counts.vague[0]),
                "gaps": ways.gaps,
                "reported": _count_transitions(notices.subs, interests),
                "late_fixes": int(counts.late[0]),
            },
        )

    def compact(self, held: StateRows) -> StateRows:
        """Keeps the newest row of each key."""
        newest = held.starts[1:] - 1
        return StateRows(held.rows.take(pa.array(newest)), np.arange(len(newest) + 1), held.batches[newest])


def without_object(rows: pa.RecordBatch, lookup: RulesLookup, tells: bool = False) -> pa.RecordBatch:
    """Events as if they had no object: with their subscriptions on `inside`, ascending; and what these are told."""
    subs, offsets = flat_lists(rows.column(SUB_IDS.name))
    numbers, interests, _ = _look_up_interests(subs, lookup)
    notices = notices_inside(offsets, numbers, interests, tells)
    return _notice_rows(rows, notices, pa.schema([*rows.schema, *(TOLD if tells else ())]))


def all_inside(sub_ids: SubIds) -> FollowRules:
    """The `RulesLookup` where no subscription follows objects."""
    return FollowRules.inside(len(sub_ids))


def _look_up_interests(subs: SubIds, lookup: RulesLookup) -> tuple[Ints, Interests, Ints]:
    """Subscriptions as numbers, and the rules and the exit buffer of each number. Each is looked up once."""
    numbers, ids = number_subs(subs)
    order = np.argsort(ids)
    places = np.empty(len(ids), np.int64)
    places[order] = np.arange(len(ids))
    *rules, buffer_mm = (rule[places] for rule in lookup(ids[order]))
    return numbers, Interests(ids, *rules), buffer_mm


def _count_transitions(subs: SubIds, interests: Interests) -> int:
    """Of what was reported, what is of subscriptions on anything else than `inside`."""
    inside = interests.ids[interests.on == INSIDE]
    return len(subs) - int(np.isin(subs, inside).sum()) if len(inside) else len(subs)


def _notice_rows(rows: pa.RecordBatch, notices: Notices, schema: pa.Schema) -> pa.RecordBatch:
    """One row for each event that is reported to some subscription, with these, and with what they are told if the
    schema has it."""
    left = np.flatnonzero(np.diff(notices.offsets))
    place = rows.schema.get_field_index(SUB_IDS.name)
    columns = rows.drop_columns([SUB_IDS.name])
    columns = (columns if len(left) == len(rows) else columns.take(pa.array(left))).columns
    ends = np.append(notices.offsets[left], notices.offsets[-1]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(notices.subs), type=SUB_IDS.type)
    told = [to_lists(ends, values) for values in notices.told.T] if len(schema) > len(rows.schema) else []
    return pa.record_batch([*columns[:place], lists, *columns[place:], *told], schema=schema)
