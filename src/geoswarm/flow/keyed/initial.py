"""Objects that are inside already when a subscription begins: they are told as `initial`, and their stays begin.

The rules, of a subscription that asks for `initial` and was registered or replaced since the batch before:
 - an object is inside if the last place that is known of it is, as a point; one that is forgotten is nowhere;
 - it is told once, with the subscription's first batch, before what its events of the batch say;
 - its stay begins with its last fix, by which `since` and a dwell are measured; it counts as inside at once, whatever
   `confirm` says, and a run that was open about it ends;
 - an object that counts as inside already, by a stay that a `replace` continues, is not told again;
 - it has the next number of its sequence. It begins no pause, and none leaves it out;
 - it does not prolong how long the object is remembered (`object_ttl_s`).
`life_work.py` calls this beside the turns of a batch, `run/oracle/following.py` has the same by brute force.
"""

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.core.index.searchable import Searchable
from geoswarm.flow.keep import sort_by_place
from geoswarm.flow.keyed.object_pairs import OpenPairs, PairCodes
from geoswarm.flow.keyed.operator import Turn
from geoswarm.flow.keyed.state_lists import flat_lists, to_lists
from geoswarm.flow.keyed.told_rows import Telling, ToldPairs
from geoswarm.flow.keyed.transition_arrays import NO_PAUSE_US
from geoswarm.flow.match.match import match
from geoswarm.model import EVENT, OBJECT

RUN_ROWS_MAX = 200_000
"""Objects looked up at once: an event of a dense place meets many subscriptions."""


def find_begun(turn: Turn, asked: Searchable, telling: Telling) -> tuple[ToldPairs, pa.RecordBatch] | None:
    """`turn` has objects without rows. Returns the stays that begin with the subscriptions `asked`, if any, and the
    newest state of every object with them."""
    newest = turn.held_starts[1:] - 1
    held = turn.held.take(pa.array(newest))
    groups, subs = _inside(turn, held, asked, telling)
    codes = PairCodes.of(subs)
    stays, stay_offsets = flat_lists(held.column("subs"))
    stay_groups = np.repeat(np.arange(len(newest)), np.diff(stay_offsets))
    fresh = ~np.isin(codes.of_pairs(groups, subs), codes.of_pairs(stay_groups, stays))
    groups, subs = groups[fresh], subs[fresh]
    if not len(subs):
        return None
    since_us, known = held.column("seen_us").to_numpy()[groups], OpenPairs.of(held)
    found = known.find(codes, groups, subs)
    number = known.next_numbers(found, since_us, telling.sequence_us)
    left, nothing = np.ones(len(known.subs), np.bool_), np.zeros(len(subs), np.int64)
    left[found[found >= 0]] = False
    quiet_us = np.where(found >= 0, np.append(known.quiet_us, 0)[found], NO_PAUSE_US)
    opened = OpenPairs(groups, subs, nothing, nothing, quiet_us, number, since_us)
    columns = {name: held.column(name) for name in held.schema.names}
    of, order = _join(stay_groups, groups, len(newest))
    for name, values, more in (("subs", stays, subs), ("since_us", flat_lists(held.column("since_us"))[0], since_us)):
        columns[name] = to_lists(of, np.concatenate([values, more])[order])
    of, order = _join(known.groups[left], groups, len(newest))
    for name, values, more in zip(("open_subs", *OpenPairs._fields[2:]), known[1:], opened[1:], strict=True):
        columns[name] = to_lists(of, np.concatenate([values[left], more])[order])
    return ToldPairs(groups, subs, since_us, number), pa.record_batch(list(columns.values()), schema=held.schema)


def _inside(turn: Turn, held: pa.RecordBatch, asked: Searchable, telling: Telling) -> tuple[Ints, SubIds]:
    """The objects whose last place is inside, and of which subscription."""
    known = np.flatnonzero(held.column("x").is_valid().to_numpy(zero_copy_only=False))
    rows = pa.array(known)
    columns = [rows, held.column("seen_us").take(rows).cast(EVENT.field("ts").type)]
    columns += [*(held.column(axis).take(rows) for axis in ("x", "y")), turn.keys.take(rows)]
    places = pa.record_batch(columns, schema=EVENT.append(pa.field(OBJECT.name, turn.keys.type)))
    groups, subs, by = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], (telling.grid, telling.now_us)
    for first in range(0, len(places), RUN_ROWS_MAX):
        run = sort_by_place(places.slice(first, RUN_ROWS_MAX), telling.grid)
        for met in match(run, [asked], *by, rows_max=RUN_ROWS_MAX, pairs_max=2 * RUN_ROWS_MAX):
            groups.append(np.repeat(met.events.column("event_id").to_numpy(), np.diff(met.offsets)))
            subs.append(met.subs)
    group, sub = np.concatenate(groups), np.concatenate(subs)
    order = np.lexsort((sub, group))
    return group[order], sub[order]


def _join(groups: Ints, more: Ints, count: int) -> tuple[Ints, Ints]:
    """The offsets of the lists of `count` groups that have values of both, and the order of these."""
    both = np.concatenate([groups, more])
    offsets = np.append(0, np.cumsum(np.bincount(both, minlength=count)))
    return offsets.astype(np.int32), np.argsort(both, kind="stable")
