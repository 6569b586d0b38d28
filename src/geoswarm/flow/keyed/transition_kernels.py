"""The loops of `transitions.py`: one object after the other, each through its events in order.

Subscriptions are numbered from 0 within a turn, so that "is the object inside it" is a look-up in an array and not a
search: an event costs as much as its own list and the list before it are long.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, Ints, SubIds, kernel
from geoswarm.core.keys.hashing import scramble
from geoswarm.model import ENTER, EXIT, INSIDE, NEVER_US

INSERTION_SORT_MAX = 12
"""Lists up to this length are sorted by insertion."""
NO_STAY = -1


class ObjectEvents(NamedTuple):
    """The events of object i are starts[i]:starts[i + 1]; the subscriptions that event k met, as numbers, are
    subs[offsets[k]:offsets[k + 1]]."""

    starts: Ints
    ts_us: Ints
    offsets: Ints
    subs: Ints


class PriorStays(NamedTuple):
    """Where objects were before: for each `known` object, in order, its newest ts and the subscriptions it is in."""

    known: Bools
    seen_us: Ints
    offsets: Ints
    subs: Ints
    since_us: Ints


class Interests(NamedTuple):
    """The id of each numbered subscription, and what it is on (`model.py`)."""

    ids: SubIds
    on: Ints


class Notices(NamedTuple):
    """The subscriptions to which each event is reported."""

    offsets: Ints
    subs: SubIds


class KeptStays(NamedTuple):
    """Where objects are now."""

    groups: Ints
    seen_us: Ints
    offsets: Ints
    subs: SubIds
    since_us: Ints


class CurrentStays(NamedTuple):
    """The stays of the present object: the first `count` of each array but the last."""

    subs: Ints
    since_us: Ints
    event: Ints  # the last event that was inside
    place: Ints  # by subscription: its place among the stays, or NO_STAY


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
def follow(events: ObjectEvents, stays: PriorStays, interests: Interests) -> tuple[Notices, KeptStays, Floats]:
    """The notices, the stays to keep, and the work for each object: its events and the subscriptions looked at."""
    objects, most = len(events.starts) - 1, len(interests.ids)
    # Each match is reported at most once, and each earlier stay once more, when it ends.
    notices = Notices(np.zeros(len(events.ts_us) + 1, np.int64), np.empty(len(events.subs) + len(stays.subs), np.int64))
    kept = KeptStays(
        np.empty(objects, np.int64),
        np.empty(objects, np.int64),
        np.zeros(objects + 1, np.int32),
        np.empty(len(events.subs), np.int64),
        np.empty(len(events.subs), np.int64),
    )
    scratch = np.empty((3, most), np.int64)
    here = CurrentStays(scratch[0], scratch[1], scratch[2], np.full(most, NO_STAY, np.int64))
    work = np.empty(objects)
    known = n = m = int(np.int64(0))  # no literal: what they are given to would be compiled for 0 alone, too
    for i in range(objects):
        count, first, last = 0, events.starts[i], events.starts[i + 1]
        looked = last - first + events.offsets[last] - events.offsets[first]
        if stays.known[i]:
            count = _recall(stays, known, interests, here)
            looked += stays.offsets[known + 1] - stays.offsets[known]
            while first < last and events.ts_us[first] < stays.seen_us[known]:  # late
                n = _write_inside(events, first, interests, notices, n)
                first += 1
            known += 1
        for event in range(first, last):
            begin = n
            count, n = _begin_stays(events, event, interests, here, count, notices, n)
            looked += count
            count, n = _end_stays(event, interests, here, count, notices, n)
            _sort(notices.subs, begin, n)
            notices.offsets[event + 1] = n
        work[i] = looked
        if first < last:
            kept.groups[m], kept.seen_us[m] = i, events.ts_us[last - 1]
            kept.offsets[m + 1] = kept.offsets[m] + count
            m += 1
        for at in range(count):
            here.place[here.subs[at]] = NO_STAY
            if first < last:
                end = kept.offsets[m - 1] + at
                kept.subs[end], kept.since_us[end] = interests.ids[here.subs[at]], here.since_us[at]
    end = kept.offsets[m]
    now = KeptStays(kept.groups[:m], kept.seen_us[:m], kept.offsets[: m + 1], kept.subs[:end], kept.since_us[:end])
    return Notices(notices.offsets, notices.subs[:n]), now, work


@kernel
def _recall(stays: PriorStays, known: int, interests: Interests, here: CurrentStays) -> int:
    """Load the earlier stays of subscriptions that are live and not on `inside`; returns how many."""
    count = 0
    for k in range(stays.offsets[known], stays.offsets[known + 1]):
        sub = stays.subs[k]
        if interests.on[sub] != INSIDE:
            here.subs[count], here.since_us[count], here.event[count] = sub, stays.since_us[k], -1
            here.place[sub] = count
            count += 1
    return count


@kernel
def _begin_stays(
    events: ObjectEvents, event: int, interests: Interests, here: CurrentStays, count: int, notices: Notices, n: int
) -> tuple[int, int]:
    """Begin or continue the stays of the subscriptions that the event is inside of."""
    ts_us = events.ts_us[event]
    for k in range(events.offsets[event], events.offsets[event + 1]):
        sub = events.subs[k]
        on, at = interests.on[sub], here.place[sub]
        reports = on == INSIDE
        if not reports:
            if at == NO_STAY:
                at = count
                here.place[sub], here.subs[at], here.since_us[at] = at, sub, ts_us
                count += 1
                reports = on == ENTER
            here.event[at] = event
            if on >= 0 and here.since_us[at] != NEVER_US and ts_us - here.since_us[at] >= on:
                here.since_us[at], reports = NEVER_US, True
        if reports:
            notices.subs[n] = interests.ids[sub]
            n += 1
    return count, n


@kernel
def _end_stays(
    event: int, interests: Interests, here: CurrentStays, count: int, notices: Notices, n: int
) -> tuple[int, int]:
    """End the stays that the event did not continue."""
    stayed = 0
    for at in range(count):
        sub = here.subs[at]
        if here.event[at] == event:
            here.subs[stayed], here.since_us[stayed], here.event[stayed] = sub, here.since_us[at], event
            here.place[sub] = stayed
            stayed += 1
        else:
            here.place[sub] = NO_STAY
            if interests.on[sub] == EXIT:
                notices.subs[n] = interests.ids[sub]
                n += 1
    return stayed, n


@kernel
def notices_inside(offsets: Ints, subs: Ints, interests: Interests) -> Notices:
    """The notices of events without an object: subscriptions on `inside`."""
    notices = Notices(np.zeros(len(offsets), np.int64), np.empty(len(subs), np.int64))
    events, n = ObjectEvents(offsets[:0], offsets[:0], offsets, subs), int(np.int64(0))
    for event in range(len(offsets) - 1):
        n = _write_inside(events, event, interests, notices, n)
    return Notices(notices.offsets, notices.subs[:n])


@kernel
def _write_inside(events: ObjectEvents, event: int, interests: Interests, notices: Notices, n: int) -> int:
    begin = n
    for k in range(events.offsets[event], events.offsets[event + 1]):
        if interests.on[events.subs[k]] == INSIDE:
            notices.subs[n] = interests.ids[events.subs[k]]
            n += 1
    _sort(notices.subs, begin, n)
    notices.offsets[event + 1] = n
    return n


@kernel
def _sort(values: SubIds, begin: int, end: int) -> None:
    if end - begin > INSERTION_SORT_MAX:
        values[begin:end].sort()
        return
    for i in range(begin + 1, end):
        value, k = values[i], i - 1
        while k >= begin and values[k] > value:
            values[k + 1] = values[k]
            k -= 1
        values[k + 1] = value
