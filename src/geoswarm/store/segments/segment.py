"""A segment that is open: an immutable set of subscriptions, and the index by which events find them.

    NAME.records   the truth: ids, and the arrays of all attributes of subscriptions
    (`core/subscriptions/attributes.py`),
                   in Z-order of the rectangles' top left corners (`write.py`)
    NAME.index     derived from it (`build_index.py`); rebuilt when lost or damaged (`open.py`)

Cancelled subscriptions stay in their segment until it is merged; the bitmap that hides them belongs to a version of the
store, not to the segment (`dead_bits.py`, `store/subscriptions/`). This is PS2Stream's lazy deletion (§IV-D).
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, Ordinals, SubIds
from geoswarm.core.index.cells import CellIndex
from geoswarm.core.index.demands import Demands
from geoswarm.core.index.kernels import NONE_DEAD, Records
from geoswarm.core.index.regions import Regions
from geoswarm.core.index.searchable import RestIndex, Searchable
from geoswarm.core.index.word_kernels import TextIndex
from geoswarm.core.index.words import conditions_of
from geoswarm.core.subscriptions.attribute_kind import Attribute
from geoswarm.core.subscriptions.attributes import (
    AGGREGATE,
    ATTRIBUTES,
    EXPIRY,
    KEYWORDS,
    MAX_EVENTS,
    OBJECTS,
    ON,
    REGION,
)
from geoswarm.core.subscriptions.keywords import alternatives
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.model import CROSS, NEVER_US

SEGMENTS_FOLDER = "subscriptions"
V = TypeVar("V")
S = TypeVar("S")


@dataclass(frozen=True)
class SegmentEntry:
    """A segment in a manifest."""

    name: str
    subs: int
    dead: int
    bytes: int
    stale_us: int = NEVER_US
    """When enough of its subscriptions will have expired that it is worth rewriting."""
    transitions: int = 0
    """The number of its subscriptions that are not cancelled and not on `inside`."""
    aggregates: int = 0
    """The number of its subscriptions that are not cancelled and have an aggregate."""
    conditions: int = 0
    """The number of its subscriptions that have a condition on columns, cancelled ones among them."""
    limited: int = 0
    """The number of its subscriptions that are not cancelled and end after `max_events`."""

    def without(self, dead: int, held: "Segment", ordinals: Ints) -> "SegmentEntry":
        """The entry after so many more of its subscriptions have been cancelled, which are those at `ordinals`."""
        transitions = self.transitions - held.count_among(held[ON].ids, ordinals)
        aggregates = self.aggregates - held.count_among(held[AGGREGATE].ids, ordinals)
        limited = self.limited - held.count_among(held[MAX_EVENTS].ids, ordinals)
        return replace(self, dead=self.dead + dead, transitions=transitions, aggregates=aggregates, limited=limited)


@dataclass(frozen=True)
class Segment:
    """`segment[USER]` is what the segment stores of an attribute; as in `Subs`, attributes are the keys."""

    ids: SubIds
    ids_sorted: SubIds
    order_by_id: Ordinals
    stored: dict[str, Any]
    index: CellIndex | None  # None: no subscription is a rectangle without words
    text: TextIndex | None  # None: no subscription asks for words
    regions: Regions | None  # None: every region is its rectangle
    demands: Demands | None = None  # None: no subscription asks for more than a place and words
    rest: RestIndex = field(default_factory=RestIndex, compare=False)

    def __getitem__(self, attribute: Attribute[V, S]) -> S:
        stored: S = self.stored[attribute.name]
        return stored

    @property
    def rects(self) -> Floats:
        return self[REGION].rects

    @property
    def expires_us(self) -> Ints:
        """When each subscription expires; empty if none does."""
        return self[EXPIRY]

    @property
    def is_plain(self) -> bool:
        """Whether all its regions are rectangles, and none of its subscriptions asks for more than a place."""
        return self.text is None and self.merges_in_pieces

    @property
    def merges_in_pieces(self) -> bool:
        """Whether all its regions are rectangles, and its subscriptions ask for places and words only."""
        return self.regions is None and self.demands is None

    def searchable(self, dead: Bytes = NONE_DEAD) -> Searchable:
        words = self[KEYWORDS]
        conditions = conditions_of(words) if words is not None else None
        return Searchable(self.records(dead), self.index, self.text, conditions, self.regions, self.rest, self.demands)

    @cached_property
    def on_cross(self) -> Ints:
        """The ordinals of those on `cross`, ascending, also of those that are not live."""
        asking = self[ON]
        return np.sort(asking.ordinals[asking.codes == CROSS].astype(np.int64))

    def records(self, dead: Bytes = NONE_DEAD) -> Records:
        return Records.of(self.rects, self.ids, self.expires_us, dead)

    def find(self, wanted: SubIds) -> Ints:
        """The ordinal of each id, or -1."""
        place = places(self.ids_sorted, wanted)
        return np.where(place >= 0, self.order_by_id[place].astype(np.int64), -1)

    def live(self, dead: Bytes, now_us: int) -> Bools:
        """Whether each subscription is neither cancelled nor expired."""
        alive = np.ones(len(self.ids), np.bool_)
        if len(dead):
            alive = np.unpackbits(dead, count=len(self.ids), bitorder="little") == 0
        if len(self.expires_us):
            alive &= self.expires_us > now_us
        return alive

    def live_at(self, ordinals: Ints, dead: Bytes, now_us: int) -> Bools:
        """The same for some subscriptions only."""
        alive = np.ones(len(ordinals), np.bool_)
        if len(dead):
            alive = dead[ordinals >> 3] >> (ordinals & 7).astype(np.uint8) & 1 == 0
        if len(self.expires_us):
            alive &= self.expires_us[ordinals] > now_us
        return alive

    def count_among(self, asking: SubIds, ordinals: Ints) -> int:
        """How many of some subscriptions are among those with these ascending ids."""
        return int(np.count_nonzero(places(asking, self.ids[ordinals]) >= 0)) if len(asking) else 0

    def subs(self, ordinals: Ints) -> Subs:
        """Some of its subscriptions, with all their attributes."""
        values = {a.name: a.read(self.stored[a.name], ordinals) for a in ATTRIBUTES}
        return Subs(self.ids[ordinals], values)

    def keywords(self, ordinal: int) -> str | None:
        """An expression equivalent to the keywords of a subscription; None if it asks for no words."""
        words = self[KEYWORDS]
        asked = words.expression(ordinal) if words is not None else None
        return None if asked is None else str(asked)

    def alternatives(self, ordinals: Ints) -> Ints:
        """The number of alternatives of words, and of objects, that each of some subscriptions asks for."""
        asked = [values for values in (self[KEYWORDS], self[OBJECTS]) if values is not None]
        return sum((alternatives(values, ordinals) for values in asked), np.zeros(len(ordinals), np.int64))


def places(ascending: SubIds, wanted: SubIds) -> Ints:
    """The position of each wanted id among ascending ids (at least one), or -1. Faster if `wanted` ascends, too."""
    place = np.searchsorted(ascending, wanted)
    place[place == len(ascending)] = 0
    return np.where(ascending[place] == wanted, place, -1)
