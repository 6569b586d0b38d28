"""The arrays of `transition_kernels.py`: events, what was known before, what is kept, what goes out.

`transitions.py` makes them of rows, and rows of them.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Ints, SubIds, kernel

NO_PLACE = -1
OUTSIDE_US = -(1 << 62)
"""In place of the beginning of a stay: there is none."""
NO_PAUSE_US = -(1 << 62)
"""In place of the end of a pause: there is none."""
NO_SEQUENCE = -1
"""In place of how long sequences are kept: none is."""
INSERTION_SORT_MAX = 12
"""Lists up to this length are sorted by insertion."""


class ObjectEvents(NamedTuple):
    """The events of object i are starts[i]:starts[i + 1]; the subscriptions that event k met, as numbers, are
    subs[offsets[k]:offsets[k + 1]]."""

    starts: Ints
    ts_us: Ints
    vague: Bools
    offsets: Ints
    subs: Ints


class NotMet(NamedTuple):
    """Subscriptions that event k has not met: those that it stays in if it was (`nearby.py`),
    near[near_offsets[k]:near_offsets[k + 1]], and those that its way passes through (`ways.py`), crossed[...].
    Apart from `ObjectEvents`, since every array that is handed to a function takes time."""

    near_offsets: Ints
    near: Ints
    crossed_offsets: Ints
    crossed: Ints
    way_us: Ints
    """When the way to the event began."""


class PriorStays(NamedTuple):
    """Where objects were before: for each `known` object, in order, its newest ts, the subscriptions it is in, and
    those about which something is open: a run that is not confirmed, a pause after an alert, or a sequence."""

    known: Bools
    seen_us: Ints
    offsets: Ints
    subs: Ints
    since_us: Ints
    open_offsets: Ints
    open_subs: Ints
    run_us: Ints
    run_fixes: Ints
    quiet_us: Ints
    sequence: Ints
    told_us: Ints


class Interests(NamedTuple):
    """The id of each numbered subscription, what it is on (`model.py`), and when a transition counts for it
    (`core/subscriptions/alert_rules.py`, `core/subscriptions/exit_buffer.py`)."""

    ids: SubIds
    on: Ints
    confirm: Ints
    cooldown_us: Ints


class Notices(NamedTuple):
    """The subscriptions to which each event is reported, and what they are told (n, 3), as the
    numbers below say; no rows, if nobody asks."""

    offsets: Ints
    subs: SubIds
    told: Ints


KIND, SINCE_US, SEQUENCE = range(3)
"""The columns of what a subscription is told: what it is of (`model.ALERT_KINDS`), when the stay or the way began, or
NEVER_US, and the number in the sequence, or 0."""


class KeptStays(NamedTuple):
    """Where objects are now: as `PriorStays`, of these groups."""

    groups: Ints
    seen_us: Ints
    offsets: Ints
    subs: SubIds
    since_us: Ints
    open_offsets: Ints
    open_subs: SubIds
    run_us: Ints
    run_fixes: Ints
    quiet_us: Ints
    sequence: Ints
    told_us: Ints


class Counts(NamedTuple):
    """What is not reported, as arrays of one number."""

    cooled: Ints
    vague: Ints
    late: Ints


class CurrentStays(NamedTuple):
    """What is known of the present object and some subscriptions: the first `count` of each array but the last."""

    subs: Ints
    since_us: Ints  # when the stay began, OUTSIDE_US, or NEVER_US: has dwelt
    event: Ints  # the last event that was inside, or near enough
    run_us: Ints  # the first fix of a run on the other side
    run_fixes: Ints  # how many fixes it has; 0: there is none
    quiet_us: Ints  # until when alerts are left out
    told: Ints  # (.., 2): the number of the last alert, 0: there was none; its ts
    place: Ints  # by subscription: its place among these, or NO_PLACE


@kernel
def room_for_notices(events: int, most: int, tells: bool) -> Notices:
    return Notices(
        np.zeros(events + 1, np.int64), np.empty(most, np.int64), np.empty((most if tells else 0, 3), np.int64)
    )


@kernel
def first_notices(notices: Notices, n: int) -> Notices:
    return Notices(notices.offsets, notices.subs[:n], notices.told[:n])


@kernel
def room_to_keep(objects: int, most: int) -> KeptStays:
    lists = np.empty((8, most), np.int64)
    return KeptStays(
        np.empty(objects, np.int64),
        np.empty(objects, np.int64),
        np.zeros(objects + 1, np.int32),
        lists[0],
        lists[1],
        np.zeros(objects + 1, np.int32),
        lists[2],
        lists[3],
        lists[4],
        lists[5],
        lists[6],
        lists[7],
    )


@kernel
def first_kept(kept: KeptStays, m: int) -> KeptStays:
    """What was kept of the first m objects."""
    end, end_open = kept.offsets[m], kept.open_offsets[m]
    return KeptStays(
        kept.groups[:m],
        kept.seen_us[:m],
        kept.offsets[: m + 1],
        kept.subs[:end],
        kept.since_us[:end],
        kept.open_offsets[: m + 1],
        kept.open_subs[:end_open],
        kept.run_us[:end_open],
        kept.run_fixes[:end_open],
        kept.quiet_us[:end_open],
        kept.sequence[:end_open],
        kept.told_us[:end_open],
    )


@kernel
def sort_told(notices: Notices, begin: int, end: int) -> None:
    """By subscription, with what they are told."""
    if end - begin < 2:
        return
    order = begin + np.argsort(notices.subs[begin:end])
    notices.subs[begin:end], notices.told[begin:end] = notices.subs[order], notices.told[order]


@kernel
def sort_subs(values: SubIds, begin: int, end: int) -> None:
    if end - begin > INSERTION_SORT_MAX:
        values[begin:end].sort()
        return
    for i in range(begin + 1, end):
        value, k = values[i], i - 1
        while k >= begin and values[k] > value:
            values[k + 1] = values[k]
            k -= 1
        values[k + 1] = value
