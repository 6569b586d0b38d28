"""The loops of `transitions.py`: one object after the other, each through its events in order.

Subscriptions are numbered from 0 within a turn, so that "is the object inside it" is a look-up in an array and not a
search: an event costs as much as its own list and the list before it are long.
"""

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints, SubIds, kernel
from geoswarm.core.keys.hashing import scramble
from geoswarm.flow.keyed.transition_arrays import (
    NO_PAUSE_US,
    NO_PLACE,
    NO_SEQUENCE,
    OUTSIDE_US,
    Counts,
    CurrentStays,
    Interests,
    KeptStays,
    Notices,
    ObjectEvents,
    PriorStays,
    first_kept,
    first_notices,
    room_for_notices,
    room_to_keep,
    sort_notices,
)
from geoswarm.model import ENTER, EXIT, INSIDE, NEVER_US, OF_DWELL, OF_ENTER, OF_EXIT, OF_INSIDE


@kernel
def number_subs(ids: SubIds) -> tuple[Ints, SubIds]:
    """The number of each id, and the id of each number, in arrival order."""
    size = 16
    while size < 2 * len(ids):
        size *= 2
    slots = np.full(size, -1, np.int32)
    numbers, distinct = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    count = 0
    for i in range(len(ids)):
        slot = np.int64(scramble(ids[i]) & np.uint64(size - 1))
        while slots[slot] >= 0 and distinct[slots[slot]] != ids[i]:
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = count
            distinct[count] = ids[i]
            count += 1
        numbers[i] = slots[slot]
    return numbers, distinct[:count].copy()


@kernel
def follow(
    events: ObjectEvents, stays: PriorStays, interests: Interests, sequence_us: int
) -> tuple[Notices, KeptStays, Floats, Counts]:
    """The notices, the stays to keep, the work for each object (its events and the subscriptions looked at), and what
    was not reported. A sequence goes on for `sequence_us` after an alert; NO_SEQUENCE: none is kept, and only the
    subscriptions are told."""
    objects, most = len(events.starts) - 1, len(interests.ids)
    # Each match is reported at most once, and each earlier stay once more, when it ends.
    notices = room_for_notices(len(events.ts_us), len(events.subs) + len(stays.subs), sequence_us != NO_SEQUENCE)
    kept = room_to_keep(objects, len(events.subs) + len(stays.subs) + len(stays.open_subs))
    scratch = np.empty((8, most), np.int64)
    here = CurrentStays(
        scratch[0],
        scratch[1],
        scratch[2],
        scratch[3],
        scratch[4],
        scratch[5],
        scratch[6],
        scratch[7],
        np.full(most, NO_PLACE, np.int64),
    )
    counts = Counts(np.zeros(1, np.int64), np.zeros(1, np.int64))
    work = np.empty(objects)
    known = n = m = int(np.int64(0))  # no literal: what they are given to would be compiled for 0 alone, too
    for i in range(objects):
        count, first, last = 0, events.starts[i], events.starts[i + 1]
        looked = last - first + events.offsets[last] - events.offsets[first]
        if stays.known[i]:
            count = _recall(stays, known, interests, here, sequence_us)
            looked += stays.offsets[known + 1] - stays.offsets[known]
            looked += stays.open_offsets[known + 1] - stays.open_offsets[known]
            while first < last and events.ts_us[first] < stays.seen_us[known]:  # late
                n = _write_inside(events, first, interests, notices, n)
                first += 1
            known += 1
        for event in range(first, last):
            if events.vague[event]:
                counts.vague[0] += 1
                n = _write_inside(events, event, interests, notices, n)
                continue
            begin = n
            count, n = _see_inside(events, event, interests, here, count, notices, n, counts, sequence_us)
            looked += count
            count, n = _see_outside(events.ts_us[event], event, interests, here, count, notices, n, counts, sequence_us)
            sort_notices(notices, begin, n)
            notices.offsets[event + 1] = n
        work[i] = looked
        if first < last:
            kept.groups[m], kept.seen_us[m] = i, events.ts_us[last - 1]
            _keep(here, count, interests, kept, m, sequence_us)
            m += 1
        for at in range(count):
            here.place[here.subs[at]] = NO_PLACE
    return first_notices(notices, n), first_kept(kept, m), work, counts


@kernel
def _recall(stays: PriorStays, known: int, interests: Interests, here: CurrentStays, sequence_us: int) -> int:
    """Load what is known of subscriptions that are live and not on `inside`; returns of how many."""
    count = 0
    for k in range(stays.offsets[known], stays.offsets[known + 1]):
        if interests.on[stays.subs[k]] != INSIDE:
            count = _add(here, stays.subs[k], count)
            here.since_us[count - 1] = stays.since_us[k]
    for k in range(stays.open_offsets[known], stays.open_offsets[known + 1]):
        sub = stays.open_subs[k]
        if interests.on[sub] != INSIDE:
            if here.place[sub] == NO_PLACE:
                count = _add(here, sub, count)
            at = here.place[sub]
            here.run_us[at], here.run_fixes[at] = stays.run_us[k], stays.run_fixes[k]
            if interests.cooldown_us[sub]:
                here.quiet_us[at] = stays.quiet_us[k]
            if sequence_us != NO_SEQUENCE:
                here.sequence[at], here.told_us[at] = stays.sequence[k], stays.told_us[k]
    return count


@kernel
def _add(here: CurrentStays, sub: int, count: int) -> int:
    """Begin to know something of a subscription that the object is outside of; returns of how many it is known now."""
    here.place[sub], here.subs[count], here.since_us[count], here.event[count] = count, sub, OUTSIDE_US, -1
    here.run_us[count], here.run_fixes[count], here.quiet_us[count] = 0, 0, NO_PAUSE_US
    here.sequence[count], here.told_us[count] = 0, 0
    return count + 1


@kernel
def _see_inside(
    events: ObjectEvents,
    event: int,
    interests: Interests,
    here: CurrentStays,
    count: int,
    notices: Notices,
    n: int,
    counts: Counts,
    sequence_us: int,
) -> tuple[int, int]:
    """Begin or continue the stays of the subscriptions that the event is inside of. But for alerts, it calls with
    numbers only: to hand on arrays, for each subscription, would take longer than the rest."""
    ts_us = events.ts_us[event]
    for k in range(events.offsets[event], events.offsets[event + 1]):
        sub = events.subs[k]
        on, at = interests.on[sub], here.place[sub]
        if on != INSIDE:
            reports = False
            if at == NO_PLACE:
                at = count
                here.place[sub], here.subs[at], here.since_us[at] = at, sub, OUTSIDE_US
                here.run_fixes[at], here.quiet_us[at] = 0, NO_PAUSE_US
                here.sequence[at] = 0
                count += 1
            here.event[at] = event
            since_us = here.since_us[at]
            if since_us == OUTSIDE_US:
                if not here.run_fixes[at]:
                    here.run_us[at] = ts_us
                here.run_fixes[at] += 1
                if _is_confirmed(interests.confirm[sub], here.run_fixes[at], ts_us - here.run_us[at]):
                    since_us = here.since_us[at] = here.run_us[at]
                    here.run_fixes[at] = 0
                    reports = on == ENTER
            else:
                here.run_fixes[at] = 0
            if on >= 0 and since_us != OUTSIDE_US and since_us != NEVER_US and ts_us - since_us >= on:
                here.since_us[at], reports = NEVER_US, True
            if reports:
                kind = OF_ENTER if on == ENTER else OF_DWELL
                n = _alert(ts_us, kind, since_us, at, here, interests, notices, n, counts, sequence_us)
        else:
            notices.subs[n] = interests.ids[sub]
            if sequence_us != NO_SEQUENCE:
                notices.kinds[n], notices.since_us[n], notices.sequence[n] = OF_INSIDE, NEVER_US, 0
            n += 1
    return count, n


@kernel
def _see_outside(
    ts_us: int,
    event: int,
    interests: Interests,
    here: CurrentStays,
    count: int,
    notices: Notices,
    n: int,
    counts: Counts,
    sequence_us: int,
) -> tuple[int, int]:
    """End or continue the stays of the subscriptions that the event is outside of, and forget where nothing is left
    to know."""
    left = 0
    for at in range(count):
        sub = here.subs[at]
        if here.event[at] != event:
            if here.since_us[at] == OUTSIDE_US:
                here.run_fixes[at] = 0
            else:
                if not here.run_fixes[at]:
                    here.run_us[at] = ts_us
                here.run_fixes[at] += 1
                if _is_confirmed(interests.confirm[sub], here.run_fixes[at], ts_us - here.run_us[at]):
                    since_us = here.since_us[at]
                    here.since_us[at], here.run_fixes[at] = OUTSIDE_US, 0
                    if interests.on[sub] == EXIT:
                        n = _alert(ts_us, OF_EXIT, since_us, at, here, interests, notices, n, counts, sequence_us)
            counts_on = here.sequence[at] > 0 and ts_us - here.told_us[at] <= sequence_us
            if here.since_us[at] == OUTSIDE_US and here.quiet_us[at] <= ts_us and not counts_on:
                here.place[sub] = NO_PLACE
                continue
        if left != at:
            here.subs[left], here.since_us[left], here.event[left] = sub, here.since_us[at], here.event[at]
            here.run_us[left], here.run_fixes[left] = here.run_us[at], here.run_fixes[at]
            here.quiet_us[left], here.place[sub] = here.quiet_us[at], left
            here.sequence[left], here.told_us[left] = here.sequence[at], here.told_us[at]
        left += 1
    return left, n


@kernel
def _alert(
    ts_us: int,
    kind: int,
    since_us: int,
    at: int,
    here: CurrentStays,
    interests: Interests,
    notices: Notices,
    n: int,
    counts: Counts,
    sequence_us: int,
) -> int:
    """Report a transition, unless there is a pause; returns how many notices there are then."""
    sub = here.subs[at]
    if ts_us < here.quiet_us[at]:
        counts.cooled[0] += 1
        return n
    if interests.cooldown_us[sub]:
        here.quiet_us[at] = ts_us + interests.cooldown_us[sub]
    notices.subs[n] = interests.ids[sub]
    if sequence_us != NO_SEQUENCE:
        goes_on = here.sequence[at] > 0 and ts_us - here.told_us[at] <= sequence_us
        here.sequence[at], here.told_us[at] = here.sequence[at] + 1 if goes_on else 1, ts_us
        notices.kinds[n], notices.since_us[n], notices.sequence[n] = kind, since_us, here.sequence[at]
    return n + 1


@kernel
def _is_confirmed(confirm: int, fixes: int, lasts_us: int) -> bool:
    """Whether a run is as long as a subscription asks for."""
    return bool(fixes >= confirm if confirm >= 0 else lasts_us >= -confirm)


@kernel
def _keep(here: CurrentStays, count: int, interests: Interests, kept: KeptStays, m: int, sequence_us: int) -> None:
    end, end_open = kept.offsets[m], kept.open_offsets[m]
    for at in range(count):
        sub = interests.ids[here.subs[at]]
        if here.since_us[at] != OUTSIDE_US:
            kept.subs[end], kept.since_us[end] = sub, here.since_us[at]
            end += 1
        counts_on = here.sequence[at] > 0 and kept.seen_us[m] - here.told_us[at] <= sequence_us
        if here.run_fixes[at] or here.quiet_us[at] > kept.seen_us[m] or counts_on:
            kept.open_subs[end_open], kept.quiet_us[end_open] = sub, here.quiet_us[at]
            kept.run_us[end_open], kept.run_fixes[end_open] = here.run_us[at], here.run_fixes[at]
            kept.sequence[end_open], kept.told_us[end_open] = here.sequence[at], here.told_us[at]
            end_open += 1
    kept.offsets[m + 1], kept.open_offsets[m + 1] = end, end_open


@kernel
def notices_inside(offsets: Ints, subs: Ints, interests: Interests, tells: bool) -> Notices:
    """The notices of events without an object: subscriptions on `inside`."""
    notices = room_for_notices(len(offsets) - 1, len(subs), tells)
    events, n = ObjectEvents(offsets[:0], offsets[:0], np.zeros(0, np.bool_), offsets, subs), int(np.int64(0))
    for event in range(len(offsets) - 1):
        n = _write_inside(events, event, interests, notices, n)
    return first_notices(notices, n)


@kernel
def _write_inside(events: ObjectEvents, event: int, interests: Interests, notices: Notices, n: int) -> int:
    begin = n
    for k in range(events.offsets[event], events.offsets[event + 1]):
        if interests.on[events.subs[k]] == INSIDE:
            notices.subs[n] = interests.ids[events.subs[k]]
            if len(notices.kinds):
                notices.kinds[n], notices.since_us[n], notices.sequence[n] = OF_INSIDE, NEVER_US, 0
            n += 1
    sort_notices(notices, begin, n)
    notices.offsets[event + 1] = n
    return n
