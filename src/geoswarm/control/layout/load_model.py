"""The load of each executor under a plan, by a sample: PS2Stream's Definition 1, and its form on this engine.

    L = c1·|O|·|Q| + c2·|O| + c3·|Q| + c4·|Qd|

O are the events sent to an executor, Q the subscriptions that it inserts, Qd those that it deletes. By Definition 2 and
§IV-C an event goes to the executors of its cell and of those of its terms that have a list there, and to none if no
term has; a subscription goes, in each rectangle that it meets, to the executor of the rarest keyword of each of its
conjunctions. Lists are counted by blocks of the map, the same for all layouts (`TextSample.asked`).

On the paper's machines each worker keeps the subscriptions that it receives: `COSTS`. Here they are stored once, in
segments that all workers map and the driver writes, so no layout copies them. `ENGINE` counts the rest: the entries
that events are compared with, their visits, and what a plan that divides terms anywhere adds to every event
(`divided_event`): the router splits it into words and looks them up, and its matches pass the merger.

`lab/bench/ps2/costs.py` measures all of these; the layouts of this folder minimise the sum or the maximum of L.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from geoswarm.control.layout.text_sample import ANYTHING, TextSample, distinct_counts
from geoswarm.core.arrays.jit import Array, Floats, Ints
from geoswarm.core.space.grid import CellBox
from geoswarm.core.space.overlap import overlap
from geoswarm.core.space.plan import Plan


@dataclass(frozen=True)
class Costs:
    """Costs in microseconds. The defaults were measured by `lab/bench/ps2/costs.py`; only ratios matter."""

    c1_check: float = 0.015
    """Comparing an event with one more entry of a list, and reporting it if it matches, with 200 k subscriptions; it
    falls with the length of the lists (`c1_at`). The paper's c1 is this times the share of all pairs that the index
    compares (`TextSample.selectivity`), the same for all layouts."""
    c2_event: float = 2.2
    """A visit of an event to one more executor: the router's copy, packing and unpacking, splitting it into words,
    looking them up, and merging its matches there."""
    c3_insertion: float = 1.4
    """Registering a subscription, all its entries included."""
    c4_deletion: float = 0.65
    divided_event: float = 0.0
    """The cost added to every event if the plan divides terms anywhere. All executors share it."""
    by_lists: bool = False
    """Whether c1 counts each entry that the sample's events really meet. In Definition 1 it counts a fixed share of all
    pairs, so a part of the map with an eighth of both has a 64th of them; but an index compares the same pairs under
    every plan, and most of them are in few crowded cells."""
    c3_entry: float = 0.4
    """Entering a subscription into one more list, (cell, term): c3 by the entries that it was measured with."""

    def coefficients(self, sample: TextSample) -> Floats:
        """The coefficients of |O|·|Q|, |O|, |Q| and the entries that events meet."""
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
        """The load of so many events, subscriptions, and entries that the events meet."""
        both, event, query, entry = self.coefficients(sample)
        found: Floats = both * events * queries + event * events + query * queries + entry * checks
        return found


C1_US = ((50_000, 0.029), (200_000, 0.015), (800_000, 0.009))
"""c1 by the number of subscriptions, as `ps2-costs` measured it between a quarter of them and all; the median of US and
GB, Q1 and Q2. From 800 k to 3.2 M it falls no further: 0.005 and 0.008 in the US, 0.014 and 0.017 in GB."""


def c1_at(subscriptions: int) -> float:
    """c1 for an index with so many subscriptions, in microseconds; beyond what was measured, that of the end."""
    counts, found = zip(*C1_US, strict=True)
    return float(np.exp(np.interp(np.log(max(subscriptions, 1)), np.log(counts), np.log(found))))


COSTS = Costs()
"""The costs of machines that keep subscriptions of their own."""
ENGINE = Costs(c3_insertion=0.0, c4_deletion=0.0, divided_event=1.6, by_lists=True)
"""The costs of this engine."""
PAIRS_AT_ONCE_MAX = 8_000_000
"""The most pairs of a subscription and a rectangle that are counted at once: some hundred bytes each."""


class Destinations(NamedTuple):
    """Pairs (event, executor) and (subscription, executor), each once, as arrays of two rows."""

    events: Ints
    queries: Ints


def executor_loads(plan: Plan, sample: TextSample, costs: Costs = COSTS, *, replicates: bool = True) -> Floats:
    """The load of each executor, in microseconds."""
    sent = destinations(plan, sample)
    events = np.bincount(sent.events[1], minlength=plan.executors).astype(np.float64)
    met_by = _event_pairs(plan, sample, _TermSlots(plan, sample)).executors
    checks = np.bincount(met_by, _checks_under(plan, sample), minlength=plan.executors)
    if replicates:
        queries = np.bincount(sent.queries[1], minlength=plan.executors).astype(np.float64)
        return costs.load(sample, events, queries, checks)
    return costs.c1_check * checks + costs.c2_event * events


def worst_us(plan: Plan, sample: TextSample, costs: Costs = COSTS) -> float:
    """The time of the sample if each executor is a machine: that of the most loaded one."""
    shared = costs.divided_event * sample.events / plan.executors if plan.siblings else 0.0
    return float(executor_loads(plan, sample, costs).max()) + shared


def destinations(plan: Plan, sample: TextSample) -> Destinations:
    """Definition 2. In a partition that is spread, an event goes to one of its executors, and a subscription to all."""
    slots = _TermSlots(plan, sample)
    events = _distinct(*_event_pairs(plan, sample, slots), plan.executors)
    at_once = max(1, PAIRS_AT_ONCE_MAX // len(plan.partitions))
    parts = [
        _distinct(*_query_pairs(plan, sample, slots, first, min(first + at_once, sample.queries)), plan.executors)
        for first in range(0, sample.queries, at_once)
    ]
    return Destinations(events, np.concatenate([np.empty((2, 0), np.int64), *parts], axis=1))


def _checks_under(plan: Plan, sample: TextSample) -> Array:
    """The entries that each pair of `sample.asked` is compared with: fewer where a block is cut and executors have
    lists of their own."""
    if not sample.own_lists:
        return sample.checks
    places = plan.slot_of_cell[sample.rows * plan.grid.columns + sample.columns]
    shares = np.ones(sample.events)
    parts_of: dict[tuple[int, ...], list[int]] = {}
    for place in np.unique(places).tolist():
        owners = tuple(sorted({plan.partitions[slot].executor for slot in plan.siblings.get(place, (place,))}))
        parts_of.setdefault(owners, []).append(place)
    for some in parts_of.values():
        boxes = np.array([(p.row0, p.col0, p.row1, p.col1) for p in (plan.partitions[place] for place in some)])
        here = np.isin(places, some)
        shares[here] = sample.shares_met(boxes)[sample.blocks[here]]
    found: Floats = sample.checks * shares[sample.asked.rows]
    return found


class _Pairs(NamedTuple):
    rows: Ints
    executors: Ints


class _TermSlots:
    """The slot of each (rectangle, term); a rectangle is known by its first slot."""

    def __init__(self, plan: Plan, sample: TextSample) -> None:
        self._divided: dict[int, Ints] = {}
        for first, slots in plan.siblings.items():
            cut = plan.cuts[plan.partitions[first].cut or 0]
            slot_of_share = np.empty(cut.count, np.int64)
            for slot in slots:
                slot_of_share[list(plan.partitions[slot].shares)] = slot
            shares = cut.shares_of(sample.hashes)
            shares[ANYTHING] = 0
            self._divided[first] = slot_of_share[shares]

    def of(self, places: Array, terms: Array) -> Ints:
        found = places.astype(np.int64)
        for first, slot_of_term in self._divided.items():
            here = np.flatnonzero(places == first)
            found[here] = slot_of_term[terms[here]]
        return found


def _event_pairs(plan: Plan, sample: TextSample, term_slots: _TermSlots) -> _Pairs:
    """Events and executors, one for each pair of `sample.asked`."""
    events, turns = sample.asked.rows, plan.turns
    places = plan.slot_of_cell[sample.rows * plan.grid.columns + sample.columns][events]
    slots = term_slots.of(places, sample.asked.terms)
    return _Pairs(events, turns.owner[turns.first_of_slot[slots] + events % turns.counts[slots]].astype(np.int64))


def _query_pairs(plan: Plan, sample: TextSample, term_slots: _TermSlots, first: int, last: int) -> _Pairs:
    """Subscriptions and executors, for each rectangle they meet and each term they are indexed under."""
    met, postings = overlap(plan, CellBox(*(side[first:last] for side in sample.boxes))), sample.postings
    terms_per_query = np.diff(postings.offsets[first : last + 1])
    pairs_per_query = np.diff(met.offsets) * terms_per_query
    query = np.repeat(np.arange(last - first), pairs_per_query)
    nth = np.arange(len(query)) - np.repeat(np.cumsum(pairs_per_query) - pairs_per_query, pairs_per_query)
    place, term = np.divmod(nth, terms_per_query[query])
    terms = postings.terms[postings.offsets[first + query] + term]
    slots, turns = term_slots.of(met.slots[met.offsets[query] + place], terms), plan.turns
    counts = turns.counts[slots]
    each = np.repeat(turns.first_of_slot[slots] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    return _Pairs(first + np.repeat(query, counts), turns.owner[each].astype(np.int64))


def _distinct(rows: Ints, executors: Ints, count: int) -> Ints:
    keys, _ = distinct_counts(rows * count + executors)
    return np.stack(np.divmod(keys, count))
