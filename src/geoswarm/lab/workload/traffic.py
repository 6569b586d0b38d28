"""A stream and the users who register and cancel along it: what a party of users is, and several of them as one.

The parties themselves are elsewhere: `crowds.py` has those of an ordinary day, `attack.py` the others. A party
decides who does what when; a row depends on nothing but the parameters and its number, so any stretch of time can be
asked for again.

    Traffic ─┬─ stream       events: tweets, perhaps with hotspots
             └─ parties ─┬─ standing()               what they have before the stream starts
                         └─ changes(since, until)    what they register and cancel, in order
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.lab.workload.draw import Key, uniform
from geoswarm.lab.workload.hotspots import Hotspots
from geoswarm.lab.workload.tweets import Tweets

PARTY_IDS = 1 << 40
"""The number of subscription ids of one party; the next party's follow."""

EventStream = Tweets | Hotspots


class Changes(NamedTuple):
    """Changes of one party, in order. Ids and users are the party's own numbers, from 0."""

    at_s: Floats
    registers: Bools
    """Whether the change registers; else it cancels."""
    ids: Ints
    users: Ints
    """The user of the query."""
    x: Floats
    """The centre of the rectangle; NaN where it is cancelled."""
    y: Floats


class NamedChanges(NamedTuple):
    """Changes of all parties, in order of time. Ids are unique among the parties."""

    at_s: Floats
    registers: Bools
    ids: Ints
    users: pa.StringArray
    """The names of the users."""
    x: Floats
    y: Floats


class Party(Protocol):
    def standing(self) -> Changes:
        """What is registered before the stream starts."""

    def changes(self, since_s: float, until_s: float) -> Changes:
        """The changes from `since_s` to just before `until_s`."""

    def names(self, users: Ints) -> pa.StringArray: ...


@dataclass(frozen=True)
class Traffic:
    """A stream and its users. Operations of all parties, merged by time, as `columns.OPERATION`."""

    stream: EventStream
    parties: tuple[Party, ...]

    @property
    def tweets(self) -> Tweets:
        return tweets_of(self.stream)

    @property
    def events_per_s(self) -> float:
        return self.tweets.events_per_s

    def events(self, first_id: int, count: int) -> pa.RecordBatch:
        return self.stream.events(first_id, count)

    def standing(self) -> pa.RecordBatch:
        """What is registered before the stream starts, as operations."""
        return self._rows(self.named_standing())

    def operations(self, since_s: float, until_s: float) -> pa.RecordBatch:
        return self._rows(self.named_changes(since_s, until_s))

    def named_standing(self) -> NamedChanges:
        return self._in_order([party.standing() for party in self.parties])

    def named_changes(self, since_s: float, until_s: float) -> NamedChanges:
        return self._in_order([party.changes(since_s, until_s) for party in self.parties])

    def rectangles(self, x: Floats, y: Floats) -> list[Floats]:
        """xmin, ymin, xmax, ymax of the queries round these centres, of the size that the tweets' own have."""
        xmin, ymin, xmax, ymax = self.tweets.bounds
        half_x, half_y = ((high - low) * self.tweets.side_share / 2 for low, high in axes_of(self.tweets))
        low = [np.maximum(x - half_x, xmin), np.maximum(y - half_y, ymin)]
        return [*low, np.minimum(x + half_x, xmax), np.minimum(y + half_y, ymax)]

    def _in_order(self, parts: Sequence[Changes]) -> NamedChanges:
        """All parties' changes in order of time, with ids that are unique and with the users' names."""
        unique = [part._replace(ids=part.ids + i * PARTY_IDS) for i, part in enumerate(parts)]
        whole = Changes(*(np.concatenate(column) for column in zip(*unique, strict=True)))
        names = [party.names(part.users) for party, part in zip(self.parties, parts, strict=True)]
        order = np.argsort(whole.at_s, kind="stable")
        users = pa.chunked_array(names, pa.string()).take(pa.array(order)).combine_chunks()
        where = whole.x[order], whole.y[order]
        return NamedChanges(whole.at_s[order], whole.registers[order], whole.ids[order], users, *where)

    def _rows(self, whole: NamedChanges) -> pa.RecordBatch:
        gone = ~whole.registers
        empty = [pa.nulls(len(gone), OPERATION.field(name).type) for name in OPERATION.names[7:]]
        columns = [
            pa.array(["cancel", "register"]).take(pa.array(whole.registers.astype(np.int8))),
            pa.array(whole.ids),
            whole.users,
            *(pa.array(side, mask=gone) for side in self.rectangles(whole.x, whole.y)),
            *empty,
        ]
        return pa.record_batch(columns, schema=OPERATION)


def tweets_of(stream: EventStream) -> Tweets:
    return stream if isinstance(stream, Tweets) else stream.base


def nothing() -> Changes:
    return Changes(
        np.empty(0), np.empty(0, np.bool_), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0)
    )


def cancellations(at_s: Floats, ids: Ints, users: Ints) -> Changes:
    nowhere = np.full(len(ids), np.nan)
    return Changes(at_s, np.zeros(len(ids), np.bool_), ids, users, nowhere, nowhere)


def merge_changes(new: Changes, old: Changes) -> Changes:
    """One party's registrations and cancellations in order of time."""
    columns = [np.concatenate(column) for column in zip(new, old, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return Changes(*(column[order] for column in columns))


def in_time(since_s: float, until_s: float, first_s: float, pace: float, count: float = np.inf) -> Ints:
    """The numbers of what happens at first_s + number / pace, up to `count` of them, within a stretch of time."""
    low, high = (int(np.clip(np.ceil((t - first_s) * pace - 1e-9), 0, min(count, 2**62))) for t in (since_s, until_s))
    return np.arange(low, max(low, high))


def centres(tweets: Tweets, first_id: int, count: int) -> tuple[Floats, Floats]:
    """The centres of the tweets' own subscriptions: places by the average of the day."""
    rows = tweets.subscriptions(first_id, count)
    xmin, ymin, xmax, ymax = (rows.column(side).to_numpy() for side in ("xmin", "ymin", "xmax", "ymax"))
    return (xmin + xmax) / 2, (ymin + ymax) / 2


def axes_of(tweets: Tweets) -> tuple[tuple[float, float], tuple[float, float]]:
    xmin, ymin, xmax, ymax = tweets.bounds
    return (xmin, xmax), (ymin, ymax)


def within(ids: Ints, key: Key, n: int, middle: Floats, side_share: float, low: float, high: float) -> Floats:
    """Draw n of each id: evenly round the middle, within the world."""
    side = (high - low) * side_share
    placed: Floats = np.clip(middle + (uniforms(ids, key, n) - 0.5) * side, low, high)
    return placed


def names_by_number(prefix: str, users: Ints) -> pa.StringArray:
    return pa.compute.binary_join_element_wise(prefix, pa.array(users).cast(pa.string()), "")


def coprime_of(users: int) -> int:
    """A step that visits all users, since it has no small divisor in common with their number."""
    return next(step for step in (37, 41, 43, 47, 53, 1) if step == 1 or users % step)


@kernel
def uniforms(ids: Ints, key: Key, n: int) -> Floats:
    drawn = np.empty(len(ids))
    for i in range(len(ids)):
        drawn[i] = uniform(key, ids[i], n)
    return drawn
