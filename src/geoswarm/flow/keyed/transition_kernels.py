"""The loops of `transitions.py`: one object after the other, each through its events in order.

Subscriptions are numbered from 0 within a turn, so that "is the object inside it" is a look-up in an array and not a
search: an event costs as much as its own list and the list before it are long.
"""

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints, SubIds, kernel
from geoswarm.core.keys.hashing import scramble
from geoswarm.flow.keyed.transition_arrays import (
    KIND,
    NO_PAUSE_US,
    NO_PLACE,
    NO_SEQUENCE,
    OUTSIDE_US,
    SEQUENCE,
    SINCE_US,
    Counts,
    CurrentStays,
    Interests,
    KeptStays,
    Notices,
    NotMet,
    ObjectEvents,
    PriorStays,
    first_kept,
    first_notices,
    room_for_notices,
    room_to_keep,
    sort_subs,
    sort_told,
)
from geoswarm.model import CROSS, ENTER, EXIT, INSIDE, NEVER_US, OF_CROSS, OF_DWELL, OF_ENTER, OF_EXIT, OF_INSIDE


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
    events: ObjectEvents, not_met: NotMet, stays: PriorStays, interests: Interests, sequence_us: int
) -> tuple[Notices, KeptStays, Floats, Counts]:
    """The notices, the stays to keep, the work for each object (its events and the subscriptions looked at), and what
    was not reported. A sequence goes on for `sequence_us` after an alert; NO_SEQUENCE: none is kept, and only the
    subscriptions are told."""
    objects, most = len(events.starts) - 1, len(interests.ids)
    # Each match is reported at most once, and each earlier stay once more, when it ends.
    met = len(events.subs) + len(not_met.crossed) + len(stays.subs)
    notices = room_for_notices(len(events.ts_us), met, sequence_us != NO_SEQUENCE)
    kept = room_to_keep(objects, met + len(stays.open_subs))
    scratch, told = np.empty((6, most), np.int64), np.empty((most, 2), np.int64)
    place = np.full(most, NO_PLACE, np.int64)
    here = CurrentStays(scratch[0], scratch[1], scratch[2], scratch[3], scratch[4], scratch[5], told, place)
    counts = Counts(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64))
    work = np.empty(objects)
    known = n = m = int(np.int64(0))  # no literal: what they are given to would be compiled for 0 alone, too
    for i in range(objects):
        count, first, last = 0, events.starts[i], events.starts[i + 1]
        looked = last - first + events.offsets[last] - events.offsets[first]
        if stays.known[i]:
            count = _recall(stays, known, interests, here, sequence_us)
            looked += stays.offsets[known + 1] - stays.offsets[known]
            looked += stays.open_offsets[known + 1] - stays.open_offsets[known]
            while first < last and events.ts_us[first] < stays.seen_us[known]:
                counts.late[0] += 1
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
            if not_met.near_offsets[event] < not_met.near_offsets[event + 1]:
                n = _see_near(events.ts_us[event], not_met, event, interests, here, notices, n, counts, sequence_us)
            if not_met.crossed_offsets[event] < not_met.crossed_offsets[event + 1]:
                count, n = _see_crossed(
                    events.ts_us[event], not_met, event, interests, here, count, notices, n, counts, sequence_us
                )
            count, n = _see_outside(events.ts_us[event], event, interests, here, count, notices, n, counts, sequence_us)
            if sequence_us == NO_SEQUENCE:
                sort_subs(notices.subs, begin, n)
            else:
                sort_told(notices, begin, n)
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
        if interests.on[stays.subs[k]] != INSIDE and interests.on[stays.subs[k]] != CROSS:
            count = _add(here, stays.subs[k], count)
            here.since_us[count - 1] = stays.since_us[k]
    for k in range(stays.open_offsets[known], stays.open_offsets[known + 1]):
        sub = stays.open_subs[k]
        if interests.on[sub] != INSIDE:
            if here.place[sub] == NO_PLACE:
                count = _add(here, sub, count)
            at = here.place[sub]
            if interests.on[sub] != CROSS:
                here.run_us[at], here.run_fixes[at] = stays.run_us[k], stays.run_fixes[k]
            if interests.cooldown_us[sub]:
                here.quiet_us[at] = stays.quiet_us[k]
            if sequence_us != NO_SEQUENCE:
                here.told[at, 0], here.told[at, 1] = stays.sequence[k], stays.told_us[k]
    return count


@kernel
def _add(here: CurrentStays, sub: int, count: int) -> int:
    """Begin to know something of a subscription that the object is outside of; returns of how many it is known now."""
    here.place[sub], here.subs[count], here.since_us[count], here.event[count] = count, sub, OUTSIDE_US, -1
    here.run_us[count], here.run_fixes[count], here.quiet_us[count] = 0, 0, NO_PAUSE_US
    here.told[count, 0], here.told[count, 1] = 0, 0
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
    """Begin or continue the stays of the subscriptions that the event is inside of. It calls with numbers only, and
    does by itself what `_report` would: to hand on many arrays, for each subscription, takes ten times as long."""
    ts_us = events.ts_us[event]
    for k in range(events.offsets[event], events.offsets[event + 1]):
        sub = events.subs[k]
        on, at = interests.on[sub], here.place[sub]
        reports, since_us = on == INSIDE, NEVER_US
        if on == CROSS:
            continue
        if on != INSIDE:
            if at == NO_PLACE:
                at = count
                here.place[sub], here.subs[at], here.since_us[at] = at, sub, OUTSIDE_US
                here.run_fixes[at], here.quiet_us[at] = 0, NO_PAUSE_US
                here.told[at, 0] = 0
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
            if reports and ts_us < here.quiet_us[at]:
                counts.cooled[0] += 1
                reports = False
            elif reports and interests.cooldown_us[sub]:
                here.quiet_us[at] = ts_us + interests.cooldown_us[sub]
        if reports:
            notices.subs[n] = interests.ids[sub]
            if sequence_us != NO_SEQUENCE:
                _tell(ts_us, on, since_us, at, here.told, notices.told, n, sequence_us)
            n += 1
    return count, n


@kernel
def _see_near(
    ts_us: int,
    not_met: NotMet,
    event: int,
    interests: Interests,
    here: CurrentStays,
    notices: Notices,
    n: int,
    counts: Counts,
    sequence_us: int,
) -> int:
    """Continue the stays of the subscriptions that the event is outside of, but not far enough to be out."""
    for k in range(not_met.near_offsets[event], not_met.near_offsets[event + 1]):
        sub = not_met.near[k]
        at = here.place[sub]
        if at == NO_PLACE or here.since_us[at] == OUTSIDE_US:
            continue
        here.event[at], here.run_fixes[at] = event, 0
        on, since_us = interests.on[sub], here.since_us[at]
        if on >= 0 and since_us != NEVER_US and ts_us - since_us >= on:
            here.since_us[at] = NEVER_US
            n = _report(ts_us, since_us, at, here, interests, notices, n, counts, sequence_us)
    return n


@kernel
def _see_crossed(
    ts_us: int,
    not_met: NotMet,
    event: int,
    interests: Interests,
    here: CurrentStays,
    count: int,
    notices: Notices,
    n: int,
    counts: Counts,
    sequence_us: int,
) -> tuple[int, int]:
    """Report to the subscriptions that the way to the event passes through."""
    for k in range(not_met.crossed_offsets[event], not_met.crossed_offsets[event + 1]):
        sub = not_met.crossed[k]
        if here.place[sub] == NO_PLACE:
            count = _add(here, sub, count)
        at, since_us = here.place[sub], not_met.way_us[event]
        n = _report(ts_us, since_us, at, here, interests, notices, n, counts, sequence_us)
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
                    if interests.on[sub] == EXIT and ts_us < here.quiet_us[at]:
                        counts.cooled[0] += 1
                    elif interests.on[sub] == EXIT:
                        if interests.cooldown_us[sub]:
                            here.quiet_us[at] = ts_us + interests.cooldown_us[sub]
                        if sequence_us != NO_SEQUENCE:
                            _tell(ts_us, EXIT, since_us, at, here.told, notices.told, n, sequence_us)
                        notices.subs[n] = interests.ids[sub]
                        n += 1
            counts_on = here.told[at, 0] > 0 and ts_us - here.told[at, 1] <= sequence_us
            if here.since_us[at] == OUTSIDE_US and here.quiet_us[at] <= ts_us and not counts_on:
                here.place[sub] = NO_PLACE
                continue
        if left != at:
            here.subs[left], here.since_us[left], here.event[left] = sub, here.since_us[at], here.event[at]
            here.run_us[left], here.run_fixes[left] = here.run_us[at], here.run_fixes[at]
            here.quiet_us[left], here.place[sub] = here.quiet_us[at], left
            here.told[left, 0], here.told[left, 1] = here.told[at, 0], here.told[at, 1]
        left += 1
    return left, n


@kernel
def _report(
    ts_us: int,
    since_us: int,
    at: int,
    here: CurrentStays,
    interests: Interests,
    notices: Notices,
    n: int,
    counts: Counts,
    sequence_us: int,
) -> int:
    """Report to a subscription, unless there is a pause; returns how many notices there are then."""
    sub = here.subs[at]
    if ts_us < here.quiet_us[at]:
        counts.cooled[0] += 1
        return n
    if interests.cooldown_us[sub]:
        here.quiet_us[at] = ts_us + interests.cooldown_us[sub]
    notices.subs[n] = interests.ids[sub]
    if sequence_us != NO_SEQUENCE:
        _tell(ts_us, interests.on[sub], since_us, at, here.told, notices.told, n, sequence_us)
    return n + 1


@kernel
def _tell(ts_us: int, on: int, since_us: int, at: int, before: Ints, told: Ints, n: int, sequence_us: int) -> None:
    """What the subscription of notice n is told. A function of its own, and called last: written out where stays are
    looked at, it would make all of that five times as slow."""
    if on == INSIDE:
        told[n, KIND], told[n, SINCE_US], told[n, SEQUENCE] = OF_INSIDE, NEVER_US, 0
        return
    goes_on = before[at, 0] > 0 and ts_us - before[at, 1] <= sequence_us
    before[at, 0], before[at, 1] = before[at, 0] + 1 if goes_on else 1, ts_us
    told[n, KIND] = OF_ENTER if on == ENTER else OF_EXIT if on == EXIT else OF_CROSS if on == CROSS else OF_DWELL
    told[n, SINCE_US], told[n, SEQUENCE] = since_us, before[at, 0]


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
        counts_on = here.told[at, 0] > 0 and kept.seen_us[m] - here.told[at, 1] <= sequence_us
        if here.run_fixes[at] or here.quiet_us[at] > kept.seen_us[m] or counts_on:
            kept.open_subs[end_open], kept.quiet_us[end_open] = sub, here.quiet_us[at]
            kept.run_us[end_open], kept.run_fixes[end_open] = here.run_us[at], here.run_fixes[at]
            kept.sequence[end_open], kept.told_us[end_open] = here.told[at, 0], here.told[at, 1]
            end_open += 1
    kept.offsets[m + 1], kept.open_offsets[m + 1] = end, end_open


@kernel
def notices_inside(offsets: Ints, subs: Ints, interests: Interests, tells: bool) -> Notices:
    """The notices of events without an object: subscriptions on `inside`."""
    notices = room_for_notices(len(offsets) - 1, len(subs), tells)
    none, n = offsets[:0], int(np.int64(0))
    events = ObjectEvents(none, none, np.zeros(0, np.bool_), offsets, subs)
    for event in range(len(offsets) - 1):
        n = _write_inside(events, event, interests, notices, n)
    return first_notices(notices, n)


@kernel
def _write_inside(events: ObjectEvents, event: int, interests: Interests, notices: Notices, n: int) -> int:
    begin = n
    for k in range(events.offsets[event], events.offsets[event + 1]):
        if interests.on[events.subs[k]] == INSIDE:
            notices.subs[n] = interests.ids[events.subs[k]]
            if len(notices.told):
                notices.told[n, KIND], notices.told[n, SINCE_US], notices.told[n, SEQUENCE] = OF_INSIDE, NEVER_US, 0
            n += 1
    if len(notices.told):
        sort_told(notices, begin, n)
    else:
        sort_subs(notices.subs, begin, n)
    notices.offsets[event + 1] = n
    return n
