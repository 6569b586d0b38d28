"""What a plan costs each executor, by a sample: PS2Stream's Definition 1, and what is left of it on this engine.

    L = c1·|O|·|Q| + c2·|O| + c3·|Q| + c4·|Qd|

O are the events that an executor is sent, Q the subscriptions that it is told to insert, Qd those to delete. By
Definition 2 and §IV-C an event goes to whoever holds its cell and one of its terms that have a list there, and to
nobody if none has; a subscription goes, in each rectangle that it meets, to whoever holds the rarest keyword of one of
its conjunctions. Lists are counted by blocks of the map, the same for all layouts (`TextSample.asked`).

On the paper's machines each worker keeps the subscriptions that it was sent: `COSTS`. Here they rest once, in segments
that all workers map, and are written by the driver: no layout can make copies of them, and `ENGINE` counts what is
left: the entries that events are compared with, their visits, and what a plan that divides terms anywhere adds to every
event (`divided_event`): the router cuts it into words and looks them up, and what it met passes the merger.

`lab/bench/ps2/costs.py` measures all of these; the layouts of this folder minimise the sum or the maximum of L.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from geoswarm.control.layout.text_sample import ANYTHING, TextSample, runs
from geoswarm.core.arrays.jit import Array, Floats, Ints
from geoswarm.core.space.grid import CellBox
from geoswarm.core.space.overlap import overlap
from geoswarm.core.space.partition import ALL_EXECUTORS
from geoswarm.core.space.plan import Plan


@dataclass(frozen=True)
class Costs:
    """In microseconds. The defaults were measured by `lab/bench/ps2/costs.py`; ratios matter, not units."""

    c1_check: float = 0.015
    """Comparing an event with one more entry of a list, and telling of it if it matches. The longer lists are, the less
    it is: 0.028 at 50 k subscriptions, 0.012 to 0.026 from 100 k to 300 k, 0.004 up to 1 M. The paper's c1 is this
    times the share of all pairs that the index looks at (`TextSample.selectivity`): the same for all layouts."""
    c2_event: float = 2.2
    """A visit of an event to one executor more: the router's copy, packing and unpacking it, cutting it into words,
    looking them up, and merging what it met there."""
    c3_insertion: float = 1.4
    c4_deletion: float = 0.65
    divided_event: float = 0.0
    """For every event, however it is sent, if the plan divides terms anywhere. All executors share it."""
    by_lists: bool = False
    """Whether c1 is for each entry that the sample's events really meet. By Definition 1 it is for a fixed share of all
    pairs, so that a part of the map with an eighth of both has a 64th of them; yet an index compares the same pairs
    wherever they are, and most of them are in few crowded cells."""

    def coefficients(self, sample: TextSample) -> Floats:
        """Of |O|·|Q|, |O|, |Q| and the entries that are met."""
        per_query = self.c3_insertion + self.c4_deletion * sample.deletions
        per_pair, per_entry = self.c1_check * sample.selectivity, self.c1_check
        return np.array([0.0 if self.by_lists else per_pair, self.c2_event, per_query, per_entry * self.by_lists])

    def load(
        self,
        sample: TextSample,
        events: Array | np.float64,
        queries: Array | np.float64,
        checks: Array | np.float64,
    ) -> Floats:
        """For numbers of events, of subscriptions, and of entries that the events meet."""
        both, event, query, entry = self.coefficients(sample)
        found: Floats = both * events * queries + event * events + query * queries + entry * checks
        return found


COSTS = Costs()
"""Of machines that keep subscriptions of their own."""
ENGINE = Costs(c3_insertion=0.0, c4_deletion=0.0, divided_event=1.6, by_lists=True)
"""Of this engine."""
MEETINGS_MAX = 8_000_000
"""Of a subscription and a rectangle, looked at together: some hundred bytes each."""


class Sent(NamedTuple):
    """Who gets what: two rows, (event, executor) or (subscription, executor), each pair once."""

    events: Ints
    queries: Ints


def loads(plan: Plan, sample: TextSample, costs: Costs = COSTS, *, replicates: bool = True) -> Floats:
    """The load of each executor, in microseconds."""
    sent = destinations(plan, sample)
    events = np.bincount(sent.events[1], minlength=plan.executors).astype(np.float64)
    checks = np.bincount(_asked(plan, sample, _Owners(plan, sample)).executors, sample.checks, minlength=plan.executors)
    if replicates:
        queries = np.bincount(sent.queries[1], minlength=plan.executors).astype(np.float64)
        return costs.load(sample, events, queries, checks)
    return costs.c1_check * checks + costs.c2_event * events


def worst_us(plan: Plan, sample: TextSample, costs: Costs = COSTS) -> float:
    """What the sample takes if each executor is a machine: as long as the most loaded one."""
    shared = costs.divided_event * sample.events / plan.executors if plan.siblings else 0.0
    return float(loads(plan, sample, costs).max()) + shared


def destinations(plan: Plan, sample: TextSample) -> Sent:
    """Definition 2. An event of a partition that is everybody's goes to one executor in turn, a subscription to all."""
    owners = _Owners(plan, sample)
    events = _distinct(*_asked(plan, sample, owners), plan.executors)
    at_once = max(1, MEETINGS_MAX // len(plan.partitions))
    parts = [
        _distinct(*_entered(plan, sample, owners, first, min(first + at_once, sample.queries)), plan.executors)
        for first in range(0, sample.queries, at_once)
    ]
    return Sent(events, np.concatenate([np.empty((2, 0), np.int64), *parts], axis=1))


class _Pairs(NamedTuple):
    rows: Ints
    executors: Ints


class _Owners:
    """The executor of each (rectangle, term); rectangles by their first slot."""

    def __init__(self, plan: Plan, sample: TextSample) -> None:
        self._plan = plan
        self._divided: dict[int, Ints] = {}
        for first, slots in plan.siblings.items():
            parts = [plan.partitions[slot] for slot in slots]
            cut = plan.cuts[parts[0].cut or 0]
            executor_of_share = np.empty(cut.count, np.int64)
            for part in parts:
                executor_of_share[list(part.shares)] = part.executor
            shares = cut.shares_of(sample.hashes)
            shares[ANYTHING] = 0
            self._divided[first] = executor_of_share[shares]

    def of(self, places: Array, terms: Array) -> Ints:
        owners = self._plan.executor_of_slot[places].astype(np.int64)
        for first, executor_of_term in self._divided.items():
            here = np.flatnonzero(places == first)
            owners[here] = executor_of_term[terms[here]]
        return owners


def _asked(plan: Plan, sample: TextSample, owners: _Owners) -> _Pairs:
    """Events and executors, one for each pair of `sample.asked`."""
    events = sample.asked.rows
    places = plan.slot_of_cell[sample.rows * plan.grid.columns + sample.columns][events]
    found = owners.of(places, sample.asked.terms)
    return _Pairs(events, np.where(found == ALL_EXECUTORS, events % plan.executors, found))


def _entered(plan: Plan, sample: TextSample, owners: _Owners, first: int, last: int) -> _Pairs:
    """Subscriptions and executors, by each rectangle they meet and each term they are entered under."""
    met, postings = overlap(plan, CellBox(*(side[first:last] for side in sample.boxes))), sample.postings
    terms_per_query = np.diff(postings.offsets[first : last + 1])
    pairs_per_query = np.diff(met.offsets) * terms_per_query
    query = np.repeat(np.arange(last - first), pairs_per_query)
    nth = np.arange(len(query)) - np.repeat(np.cumsum(pairs_per_query) - pairs_per_query, pairs_per_query)
    place, term = np.divmod(nth, terms_per_query[query])
    terms = postings.terms[postings.offsets[first + query] + term]
    found = owners.of(met.slots[met.offsets[query] + place], terms)
    everybody = found == ALL_EXECUTORS
    all_of_them = np.tile(np.arange(plan.executors), int(everybody.sum()))
    rows = first + np.concatenate([query[~everybody], np.repeat(query[everybody], plan.executors)])
    return _Pairs(rows, np.concatenate([found[~everybody], all_of_them]))


def _distinct(rows: Ints, executors: Ints, count: int) -> Ints:
    keys, _ = runs(rows * count + executors)
    return np.stack(np.divmod(keys, count))
