"""Which rows of state still count, and by which rules: those of the subscriptions that are live in the batch.

Of a subscription that is gone, has expired or has begun anew nothing is held: its rows are dropped where they are met.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from geoswarm.core.aggregates.spec import COUNTED, FUNCTIONS, SESSION, AggregateSpec
from geoswarm.core.arrays.jit import Array, Bools, Ints, SubIds
from geoswarm.core.subscriptions.aggregate import NO_SPEC, AggregateValues
from geoswarm.flow.aggregates.held_rows import HeldRows

LookUp = Callable[[SubIds], AggregateValues]
"""What each of ascending subscriptions counts."""

PANES, SESSIONS, EVENTS = range(3)
"""The kinds of state: panes of tumbling and sliding windows; parts of sessions; windows of so many events."""
_KINDS = {SESSION: SESSIONS, COUNTED: EVENTS}
CLASS_BITS = 2
"""Windows whose slides, or gaps, are within a factor of 2^CLASS_BITS of each other share files."""
_PLAIN, _CLASSES = 1, 64


@dataclass(frozen=True)
class Rules:
    """What the subscription of each row counts."""

    codes: Ints
    """Places in the other arrays."""
    specs: dict[int, AggregateSpec]
    kinds: Ints
    functions: Ints
    """Places in FUNCTIONS."""
    lengths: Ints
    slides: Ints
    """The slide of windows, the gap of sessions."""
    events: Ints
    parts: Ints
    """Which files have the rows (`part_of`)."""

    def of(self, column: Array) -> Array:
        """One of the columns, row by row."""
        return column[self.codes]

    def take(self, at: Ints | Bools) -> "Rules":
        return Rules(
            self.codes[at],
            self.specs,
            self.kinds,
            self.functions,
            self.lengths,
            self.slides,
            self.events,
            self.parts,
        )

    @classmethod
    def read(cls, values: AggregateValues, codes: Ints) -> "Rules":
        specs = {code: values.spec(code) for code in np.flatnonzero(np.bincount(codes)).tolist()}
        columns = np.zeros((6, len(values.texts)), np.int64)
        for code, spec in specs.items():
            window, function = spec.window, FUNCTIONS.index(spec.aggregate.function)
            slide_us = window.length_us if window.kind == SESSION else window.slide_us
            kind = _KINDS.get(window.kind, PANES)
            part = part_of(kind, slide_us, spec.aggregate.function == "count" and spec.group_by is None)
            columns[:, code] = kind, function, window.length_us, slide_us, window.events, part
        return cls(codes, specs, *columns)


def part_of(kind: int, slide_us: int, is_plain: bool) -> int:
    """A number for the files of rows that are due at like times, so that no row is read much more often than windows of
    its own end; plain counts are kept apart, since their files hold integers only."""
    return (kind * _CLASSES + slide_us.bit_length() // CLASS_BITS) * 2 + is_plain * _PLAIN


def kind_of_part(part: int) -> int:
    return part // (2 * _CLASSES)


def is_plain(part: int) -> bool:
    """Whether it has plain counts of panes only."""
    return kind_of_part(part) == PANES and part % 2 == _PLAIN


def distinct(subs: SubIds) -> tuple[SubIds, Ints]:
    """The subscriptions, ascending, and which of them each row has. Where they ascend, as they mostly do, nothing is
    sorted."""
    if len(subs) and (subs[1:] >= subs[:-1]).all():
        is_first = np.append(True, subs[1:] != subs[:-1])
        return subs[is_first], np.cumsum(is_first) - 1
    return np.unique(subs, return_inverse=True)


def find_live(rows: HeldRows, look_up: LookUp) -> tuple[Bools, Rules]:
    """Which rows count, and the rules for these."""
    ids, at = distinct(rows.subs)
    values = look_up(ids)
    codes = values.codes[at]
    lives: Bools = (codes != NO_SPEC) & (values.began[at] == rows.began)
    return lives, Rules.read(values, codes[lives])
