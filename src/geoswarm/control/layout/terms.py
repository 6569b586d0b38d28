"""Terms divided into shares: greedy, heaviest terms first, each to the share where it makes the least load.

The core of `by_metric.py` and of the text partitioning of `hybrid.py`; the other ways to divide terms are in
`by_frequency.py` and `by_hypergraph.py`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.control.layout.load_model import Costs
from geoswarm.control.layout.text_sample import Lists
from geoswarm.control.layout.unit import Unit, counts_of
from geoswarm.core.arrays.jit import Floats, Ints, kernel

Counts = npt.NDArray[np.int32]
TermShares = npt.NDArray[np.int16]
NO_SHARE = -1
"""The share of terms that no subscription is indexed under, or that belong to another unit."""
PASSES = 3
TOLERANCE = 0.02
"""How far above the average a share may grow to make the sum of loads smaller."""


def by_load(unit: Unit, shares: int, costs: Costs) -> TermShares:
    """The share of each term of the sample. Events and subscriptions that a share already has add nothing to its load,
    so words that occur together stay together, until the share is too heavy."""
    sample, posted = unit.sample, unit.relevant_terms()
    events, queries = (
        invert(rows, lists, posted, sample.terms)
        for rows, lists in ((unit.events, sample.asked), (unit.queries, sample.postings))
    )
    checks = unit.checks_by_term()[posted]
    said, indexed = (np.diff(rows.offsets).astype(np.float64) for rows in (events, queries))
    weights = costs.load(sample, said, indexed, checks)
    order = np.argsort(-weights, kind="stable")
    found = np.full(sample.terms, NO_SHARE, np.int16)
    held = _ShareContents(
        np.zeros((len(unit.events), shares), np.int32),
        np.zeros((len(unit.queries), shares), np.int32),
        np.zeros(shares),
        np.zeros(shares),
        np.zeros(shares),
    )
    found[posted] = _deal_terms(order, events, queries, checks, shares, held, costs.coefficients(sample))
    return found


def invert(rows: Ints, lists: Lists, posted: Ints, terms: int) -> Lists:
    """For each term of `posted`, the positions in `rows` of the rows that have it."""
    place = np.full(terms, -1, np.int64)
    place[posted] = np.arange(len(posted))
    counts = counts_of(rows, lists, terms)[posted].astype(np.int64)
    return Lists(*_invert(rows, lists, place, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])))


@kernel
def _invert(rows: Ints, lists: Lists, place: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    at, members = offsets[:-1].copy(), np.empty(offsets[-1], np.int64)
    for n in range(len(rows)):
        for p in range(lists.offsets[rows[n]], lists.offsets[rows[n] + 1]):
            t = place[lists.terms[p]]
            if t >= 0:
                members[at[t]] = n
                at[t] += 1
    return offsets, members


class _ShareContents(NamedTuple):
    """What each share has: the terms of each row, by row and share; rows and entries met, by share."""

    event_terms: Counts
    query_terms: Counts
    events: Floats
    queries: Floats
    checks: Floats


@kernel
def _deal_terms(
    order: Ints, events: Lists, queries: Lists, checks: Floats, shares: int, held: _ShareContents, coefficients: Floats
) -> TermShares:
    """Gives the terms, in this order, to the share with the least load after it; then, in some passes, to the share
    whose load grows least, among those within the tolerance."""
    found, loads, after = np.empty(len(order), np.int16), np.zeros(shares), np.empty(shares)
    for step in range(PASSES + 1):
        for t in order:
            if step > 0:
                old = found[t]
                _give(t, old, -1, events, queries, checks, held)
                loads[old] = _load(held.events[old], held.queries[old], held.checks[old], coefficients)
            for s in range(shares):
                more_events = _news(t, events, held.event_terms, s)
                more_queries = _news(t, queries, held.query_terms, s)
                more = (held.events[s] + more_events, held.queries[s] + more_queries, held.checks[s] + checks[t])
                after[s] = _load(more[0], more[1], more[2], coefficients)
            best, least = int(np.argmin(after)), np.inf
            bound = loads.mean() * (1.0 + TOLERANCE) if step > 0 else 0.0
            for s in range(shares):
                if after[s] <= bound and after[s] - loads[s] < least:
                    best, least = s, after[s] - loads[s]
            found[t] = best
            loads[best] = after[best]
            _give(t, best, 1, events, queries, checks, held)
    return found


@kernel
def _load(events: float, queries: float, checks: float, coefficients: Floats) -> float:
    both, event, query, entry = coefficients
    load: float = both * events * queries + event * events + query * queries + entry * checks
    return load


@kernel
def _news(term: int, lists: Lists, held: Counts, share: int) -> int:
    """Rows with the term that the share does not have yet."""
    fresh = 0
    for p in range(lists.offsets[term], lists.offsets[term + 1]):
        fresh += held[lists.terms[p], share] == 0
    return fresh


@kernel
def _give(
    term: int, share: int, sign: int, events: Lists, queries: Lists, checks: Floats, held: _ShareContents
) -> None:
    """Gives a term to a share, or takes it away with sign -1."""
    held.checks[share] += sign * checks[term]
    if sign > 0:
        held.events[share] += _news(term, events, held.event_terms, share)
        held.queries[share] += _news(term, queries, held.query_terms, share)
    for p in range(events.offsets[term], events.offsets[term + 1]):
        held.event_terms[events.terms[p], share] += sign
    for p in range(queries.offsets[term], queries.offsets[term + 1]):
        held.query_terms[queries.terms[p], share] += sign
    if sign < 0:
        held.events[share] -= _news(term, events, held.event_terms, share)
        held.queries[share] -= _news(term, queries, held.query_terms, share)
