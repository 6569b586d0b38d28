"""Of each of some subscriptions its newest matches among kept events, as many of them as all together may have.

A subscription that takes effect may ask for the past; those of one batch are matched together, run by run, and what
there are too many of is given up on the way, so that memory is bounded. All of them get equally many: one that matches
the world must not leave the others without.

    matches of a, b, c     5  2  9      at most 10 in all: 4 each, so      4  2  4      left out 1  0  5
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.flow.match.match import MatchRun
from geoswarm.flow.merge import OUTPUT_BYTES_MAX


class NewestMatches:
    def __init__(self, ids: SubIds, since_us: Ints, most: int) -> None:
        """`ids` ascend; `since_us` is from when on each wants its matches; `most` is how many all may have. It is quick
        if the newest come first."""
        self._ids, self._since_us, self._most = ids, since_us, most
        self._found = np.zeros(len(ids), np.int64)
        self._floor_us = since_us.copy()
        """The time before which no match of a subscription is given."""
        self._events: pa.Table | None = None
        self._rows, self._subs = np.empty(0, np.int64), np.empty(0, np.int64)
        """The pairs that are held: rows of the events, and positions in the ids."""

    def add(self, met: MatchRun) -> None:
        rows = np.repeat(np.arange(len(met.events)), np.diff(met.offsets))
        subs = np.searchsorted(self._ids, met.subs)
        times = times_us(met.events)[rows]
        self._found += np.bincount(subs[times >= self._since_us[subs]], minlength=len(self._ids))
        wanted = times >= self._floor_us[subs]
        rows, subs = rows[wanted], subs[wanted]
        if not len(rows):
            return
        used, places = _renumber(rows, len(met.events))
        fresh, held = pa.Table.from_batches([met.events.take(pa.array(used))]), self._events
        first = 0 if held is None else len(held)
        self._events = fresh if held is None else pa.concat_tables([held, fresh])
        self._rows, self._subs = np.append(self._rows, first + places), np.append(self._subs, subs)
        if len(self._rows) > 2 * self._most:
            self._drop_oldest()

    @property
    def left_out(self) -> int:
        """Matches that were found and are not given."""
        return int((self._found - np.minimum(self._found, share_of_each(self._found, self._most))).sum())

    def read(self) -> Iterator[MatchRun]:
        """The matches, the oldest events first."""
        if self._events is None:
            return
        self._drop_oldest()
        order = _by_time(self._events)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        by_event = np.lexsort((self._subs, place[self._rows]))
        subs = self._ids[self._subs[by_event]]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(place[self._rows], minlength=len(order)))])
        at_once = max(1, len(order) * OUTPUT_BYTES_MAX // max(OUTPUT_BYTES_MAX, self._events.nbytes))
        for first in range(0, len(order), at_once):
            chosen = order[first : first + at_once]
            (events,) = self._events.take(pa.array(chosen)).combine_chunks().to_batches()
            ends = offsets[first : first + len(chosen) + 1]
            yield MatchRun(events, ends - ends[0], subs[ends[0] : ends[-1]])

    def _drop_oldest(self) -> None:
        """What is dropped would be dropped at the end, too: the share of each only becomes less with every match."""
        assert self._events is not None
        if self._found.sum() <= self._most:
            return
        age = np.empty(len(self._events), np.int64)
        age[_by_time(self._events)] = np.arange(len(self._events), 0, -1)
        order = np.lexsort((age[self._rows], self._subs))
        counts = np.bincount(self._subs, minlength=len(self._ids))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        share = share_of_each(self._found, self._most)
        kept, last = order[rank < share], order[rank == share - 1]
        self._floor_us[self._subs[last]] = times_us(self._events)[self._rows[last]]
        used, self._rows = _renumber(self._rows[kept], len(self._events))
        self._subs = self._subs[kept]
        self._events = self._events.take(pa.array(used)).combine_chunks()


def share_of_each(counts: Ints, most: int) -> int:
    """The largest share of each such that all have at most `most` together; those that have less need no more."""
    ascending = np.sort(counts)
    others = np.arange(len(counts))[::-1]  # that have as many, or more
    below = np.cumsum(ascending) - ascending
    fits = below + ascending * (others + 1) <= most
    if fits.all():
        return int(ascending[-1]) if len(counts) else 0
    first = int(np.argmin(fits))
    return int((most - below[first]) // (others[first] + 1))


def _renumber(rows: Ints, count: int) -> tuple[Ints, Ints]:
    """The rows that occur, of so many, and each as its place among these."""
    occurs = np.zeros(count, np.bool_)
    occurs[rows] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[rows]


def times_us(events: pa.RecordBatch | pa.Table) -> Ints:
    return np.asarray(events.column("ts").cast(pa.int64()), np.int64)


def _by_time(events: pa.Table) -> Ints:
    """The rows, the oldest first; those of one time by their ids."""
    ids = events.column("event_id")
    if pa.types.is_string(ids.type):
        by = [("ts", "ascending"), ("event_id", "ascending")]
        order: Ints = pc.sort_indices(events, sort_keys=by).to_numpy().astype(np.int64)
        return order
    return np.lexsort((np.asarray(ids, np.int64), times_us(events)))
