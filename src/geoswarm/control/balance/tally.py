"""The events and queries of a sample that each partition of a plan receives: adjustments are judged by them.

`control/layout/load_model.py` counts the same by executor, for layouts of a few rectangles; this one also counts by
partition, and stays fast when every cell is a partition, as in the simulator (`run/sim/words.py`). PS2Stream
Definitions 1 and 3, §IV-C.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.control.layout.load_model import Costs
from geoswarm.control.layout.text_sample import ANYTHING, Lists, TextSample, distinct_counts
from geoswarm.core.arrays.jit import Array, Bools, Floats, Ints, kernel
from geoswarm.core.space.holders import Holders, holders
from geoswarm.core.space.overlap import Overlap, overlap
from geoswarm.core.space.plan import Plan

QUERY_BYTES, TERM_BYTES = 64, 12
"""The bytes of a query (a rectangle, an id, a user, the form of its expression) and of each of its keywords."""

ShareTable = npt.NDArray[np.int16]


class PlanArrays(NamedTuple):
    """A plan as arrays, which `slot_of(place, term)` reads in kernels."""

    holders: Holders
    share_of_term: ShareTable
    """The share of each term in each cut, (cuts, terms)."""
    executor_of_slot: Ints


class Tally(NamedTuple):
    """Counts by slot, or by executor where the name says so."""

    events: Floats
    """n_o: the events that are sent there."""
    checks: Floats
    """The entries of lists that these events are compared with."""
    queries: Floats
    """n_q: the queries that belong there."""
    sizes: Ints
    """The bytes of these queries."""
    events_of_executor: Floats
    queries_of_executor: Floats
    checks_of_executor: Floats

    def loads(self, sample: TextSample, costs: Costs, *, replicates: bool) -> Floats:
        """The load of each executor by Definition 1; without the costs of queries where executors keep none."""
        if replicates:
            return costs.load(sample, self.events_of_executor, self.queries_of_executor, self.checks_of_executor)
        return costs.c1_check * self.checks_of_executor + costs.c2_event * self.events_of_executor

    def weights(self, costs: Costs) -> Floats:
        """The weight of each slot, by which the time of the partition that it was cut from is divided."""
        return costs.c1_check * self.checks + costs.c2_event * self.events


def plan_arrays(plan: Plan, hashes: Array) -> PlanArrays:
    """`hashes` by term, the first of which is ANYTHING."""
    shares = np.zeros((len(plan.cuts), len(hashes)), np.int16)
    for i, cut in enumerate(plan.cuts):
        shares[i] = cut.shares_of(hashes)
        shares[i, ANYTHING] = 0
    return PlanArrays(holders(plan), shares, plan.executor_of_slot.astype(np.int64))


def tally(plan: Plan, sample: TextSample) -> Tally:
    """Counts a sample under a plan. What is spread counts for its first executor."""
    ways, met = plan_arrays(plan, sample.hashes), overlap(plan, sample.boxes)
    bytes_of_query = QUERY_BYTES + TERM_BYTES * np.diff(sample.keywords.offsets)
    queries, sizes, by_executor, keys = _queries(
        met, sample.postings, bytes_of_query, ways, plan.executors, sample.terms
    )
    wanted, _ = distinct_counts(keys)
    places = plan.slot_of_cell[sample.rows * plan.grid.columns + sample.columns].astype(np.int64)
    asked = sample.asked
    pairs = places[asked.rows] * sample.terms + asked.terms
    at = np.searchsorted(wanted, pairs).clip(max=max(len(wanted) - 1, 0))
    is_wanted: Bools = wanted[at] == pairs if len(wanted) else np.zeros(len(pairs), np.bool_)
    events, checks, events_of, checks_of = _events(places, asked, is_wanted, sample.checks, ways, plan.executors)
    return Tally(events, checks, queries, sizes, events_of, by_executor, checks_of)


@kernel
def slot_of(place: np.int64, term: np.int64, ways: PlanArrays) -> np.int64:
    cut = ways.holders.cut_of_slot[place]
    if cut < 0:
        return place
    found: np.int64 = ways.holders.slots[ways.holders.starts[place] + np.int64(ways.share_of_term[cut, term])]
    return found


@kernel
def slots_of(places: Ints, terms: Ints, ways: PlanArrays) -> Ints:
    """`slot_of` for arrays of places and terms."""
    found = np.empty(len(places), np.int64)
    for i in range(len(places)):
        found[i] = slot_of(places[i], terms[i], ways)
    return found


@kernel
def _queries(
    met: Overlap, postings: Lists, sizes: Ints, ways: PlanArrays, executors: int, terms: int
) -> tuple[Floats, Ints, Floats, Ints]:
    slots = len(ways.executor_of_slot)
    queries, bytes_of_slot, of_executor = np.zeros(slots), np.zeros(slots, np.int64), np.zeros(executors)
    last_slot, last_executor = np.full(slots, -1, np.int64), np.full(executors, -1, np.int64)
    room = 0
    for i in range(len(sizes)):
        room += (met.offsets[i + 1] - met.offsets[i]) * (postings.offsets[i + 1] - postings.offsets[i])
    keys = np.empty(room, np.int64)
    n = 0
    for i in range(len(sizes)):
        for m in range(met.offsets[i], met.offsets[i + 1]):
            place = np.int64(met.slots[m])
            for p in range(postings.offsets[i], postings.offsets[i + 1]):
                term = np.int64(postings.terms[p])
                keys[n] = place * terms + term
                n += 1
                slot = slot_of(place, term, ways)
                if last_slot[slot] != i:
                    last_slot[slot] = i
                    queries[slot] += 1
                    bytes_of_slot[slot] += sizes[i]
                executor = ways.executor_of_slot[slot]
                if last_executor[executor] != i:
                    last_executor[executor] = i
                    of_executor[executor] += 1
    return queries, bytes_of_slot, of_executor, keys


@kernel
def _events(
    places: Ints, asked: Lists, is_wanted: Bools, checks: Ints, ways: PlanArrays, executors: int
) -> tuple[Floats, Floats, Floats, Floats]:
    slots = len(ways.executor_of_slot)
    events, found, events_of, found_of = np.zeros(slots), np.zeros(slots), np.zeros(executors), np.zeros(executors)
    last_slot, last_executor = np.full(slots, -1, np.int64), np.full(executors, -1, np.int64)
    for i in range(len(places)):
        for p in range(asked.offsets[i], asked.offsets[i + 1]):
            if not is_wanted[p]:
                continue
            slot = slot_of(places[i], np.int64(asked.terms[p]), ways)
            executor = ways.executor_of_slot[slot]
            found[slot] += checks[p]
            found_of[executor] += checks[p]
            if last_slot[slot] != i:
                last_slot[slot] = i
                events[slot] += 1
            if last_executor[executor] != i:
                last_executor[executor] = i
                events_of[executor] += 1
    return events, found, events_of, found_of
