"""The arrays of `transition_kernels.py`: events, what was known before, what is kept, what goes out.

`transitions.py` makes them of rows, and rows of them.
"""

from typing import NamedTuple

from geoswarm.core.arrays.jit import Bools, Ints, SubIds

NO_PLACE = -1
OUTSIDE_US = -(1 << 62)
"""In place of the beginning of a stay: there is none."""
NO_PAUSE_US = -(1 << 62)
"""In place of the end of a pause: there is none."""


class ObjectEvents(NamedTuple):
    """The events of object i are starts[i]:starts[i + 1]; the subscriptions that event k met, as numbers, are
    subs[offsets[k]:offsets[k + 1]]."""

    starts: Ints
    ts_us: Ints
    vague: Bools
    offsets: Ints
    subs: Ints


class PriorStays(NamedTuple):
    """Where objects were before: for each `known` object, in order, its newest ts, the subscriptions it is in, and
    those about which something is open: a run that is not confirmed, or a pause after an alert."""

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


class Interests(NamedTuple):
    """The id of each numbered subscription, what it is on (`model.py`), and when a transition counts for it
    (`core/subscriptions/alert_rules.py`)."""

    ids: SubIds
    on: Ints
    confirm: Ints
    cooldown_us: Ints


class Notices(NamedTuple):
    """The subscriptions to which each event is reported."""

    offsets: Ints
    subs: SubIds


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


class Counts(NamedTuple):
    """What is not reported, as arrays of one number."""

    cooled: Ints
    vague: Ints


class CurrentStays(NamedTuple):
    """What is known of the present object and some subscriptions: the first `count` of each array but the last."""

    subs: Ints
    since_us: Ints  # when the stay began, OUTSIDE_US, or NEVER_US: has dwelt
    event: Ints  # the last event that was inside
    run_us: Ints  # the first fix of a run on the other side
    run_fixes: Ints  # how many fixes it has; 0: there is none
    quiet_us: Ints  # until when alerts are left out
    place: Ints  # by subscription: its place among these, or NO_PLACE
