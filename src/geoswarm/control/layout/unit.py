"""A unit of work for a layout: a rectangle of cells, some terms, and the part of a sample that belongs to it.

It can be cut by space, and divided by a given assignment of terms to shares (`terms.py`). It has no executor.
PS2Stream §IV-B: a node of the kd^t-tree.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geoswarm.control.layout.blocks import BLOCKS
from geoswarm.control.layout.load_model import Costs
from geoswarm.control.layout.text_sample import Lists, TextSample
from geoswarm.core.arrays.jit import Array, Bools, Floats, Ints, kernel
from geoswarm.core.stats.triostat import Box


@dataclass(frozen=True, eq=False)
class Unit:
    sample: TextSample
    box: Box
    terms: Ints | None
    """The unit's terms, ascending; None: all terms."""
    events: Ints
    """Events in the rectangle with one of the terms that some subscription asks for."""
    queries: Ints
    """Subscriptions that meet the rectangle and are indexed under one of the terms."""
    kept: Floats | None = None
    """By block, the share of its subscriptions that meet the rectangle; None: all (`TextSample.kept_shares`)."""

    @classmethod
    def whole(cls, sample: TextSample) -> "Unit":
        box = Box(0, 0, sample.grid.rows - 1, sample.grid.columns - 1)
        return cls(sample, box, None, np.flatnonzero(np.diff(sample.asked.offsets)), np.arange(sample.queries))

    def load(self, costs: Costs) -> float:
        sizes = (np.float64(len(self.events)), np.float64(len(self.queries)), np.float64(self.checks))
        return float(costs.load(self.sample, *sizes))

    @cached_property
    def checks(self) -> float:
        """The number of entries in its lists that its events meet."""
        if self.terms is None:
            checks = self.sample.event_checks[self.events]
            return float(checks.sum() if self.kept is None else checks @ self.kept[self.sample.blocks[self.events]])
        return float(self.checks_by_term()[self.terms].sum())

    @cached_property
    def block_checks(self) -> Floats:
        """By block, the entries that its events meet there if all subscriptions of the block are on their lists."""
        sample = self.sample
        checks = sample.event_checks[self.events]
        return np.bincount(sample.blocks[self.events], checks, minlength=BLOCKS * BLOCKS).astype(np.float64)

    def checks_with(self, other: "Unit") -> float:
        """The entries more that the events of both meet if one executor has both: where they share a block, it has
        lists for both parts of it."""
        if self.kept is None or other.kept is None or self.terms is not None or other.terms is not None:
            return 0.0
        both = (self.block_checks > 0) & (other.block_checks > 0)
        if not both.any():
            return 0.0
        alike = self.sample.shares_in_both(self.queries, other.queries, both)
        more = self.block_checks * (other.kept - alike) + other.block_checks * (self.kept - alike)
        return float(more[both].sum())

    def checks_by_term(self) -> Floats:
        """The number of entries that its events meet under each term of the sample, its own or not."""
        sample = self.sample
        if self.kept is None:
            return checks_of(self.events, sample.asked, sample.checks, sample.terms)
        weights = self.kept[sample.blocks]
        return weighted_checks_of(self.events, sample.asked, sample.checks, weights, sample.terms)

    def within(self, box: Box) -> "Unit":
        """The part of the unit in a part of its rectangle. Only for units with all terms."""
        sample, boxes = self.sample, self.sample.boxes
        queries = self.queries
        for low, high, first, last in (
            (boxes.row0, boxes.row1, box.row0, box.row1),
            (boxes.col0, boxes.col1, box.col0, box.col1),
        ):
            queries = queries[(low[queries] <= last) & (high[queries] >= first)]
        events = self.events
        for side, first, last in ((sample.rows, box.row0, box.row1), (sample.columns, box.col0, box.col1)):
            events = events[(side[events] >= first) & (side[events] <= last)]
        return Unit(sample, box, None, events, queries, sample.kept_shares(box, queries))

    def divide(self, share_of_term: Array, shares: int) -> list["Unit"]:
        """One unit for each share of its terms; -1 marks terms of other units."""
        sample = self.sample
        parts = []
        for share in range(shares):
            own = share_of_term == share
            events = self.events[has_any(self.events, sample.asked, own)]
            queries = self.queries[has_any(self.queries, sample.postings, own)]
            parts.append(Unit(sample, self.box, np.flatnonzero(own), events, queries, self.kept))
        return parts

    def relevant_terms(self) -> Ints:
        """Terms that subscriptions are indexed under here, or so near that events are sent for them."""
        found = terms_present(self.queries, self.sample.postings, self.sample.terms)
        found |= terms_present(self.events, self.sample.asked, self.sample.terms)
        if self.terms is not None:
            own = np.zeros(self.sample.terms, np.bool_)
            own[self.terms] = True
            found &= own
        return np.flatnonzero(found)


def counts_of(rows: Ints, lists: Lists, terms: int) -> Floats:
    """The number of rows with each term."""
    return count_terms(rows, lists.offsets, lists.terms, terms)


@kernel
def count_terms(rows: Ints, offsets: Ints, terms: Array, count: int) -> Floats:
    found = np.zeros(count)
    for i in rows:
        for p in range(offsets[i], offsets[i + 1]):
            found[terms[p]] += 1
    return found


@kernel
def checks_of(rows: Ints, lists: Lists, checks: Array, terms: int) -> Floats:
    """The number of entries that the rows meet under each term. `checks` has a number for each pair of the lists."""
    found = np.zeros(terms)
    for i in rows:
        for p in range(lists.offsets[i], lists.offsets[i + 1]):
            found[lists.terms[p]] += checks[p]
    return found


@kernel
def weighted_checks_of(rows: Ints, lists: Lists, checks: Array, weights: Floats, terms: int) -> Floats:
    """The same, where each row counts by its weight."""
    found = np.zeros(terms)
    for i in rows:
        for p in range(lists.offsets[i], lists.offsets[i + 1]):
            found[lists.terms[p]] += checks[p] * weights[i]
    return found


@kernel
def terms_present(rows: Ints, lists: Lists, terms: int) -> Bools:
    found = np.zeros(terms, np.bool_)
    for i in rows:
        for p in range(lists.offsets[i], lists.offsets[i + 1]):
            found[lists.terms[p]] = True
    return found


@kernel
def has_any(rows: Ints, lists: Lists, wanted: Bools) -> Bools:
    found = np.zeros(len(rows), np.bool_)
    for n in range(len(rows)):
        for p in range(lists.offsets[rows[n]], lists.offsets[rows[n] + 1]):
            if wanted[lists.terms[p]]:
                found[n] = True
                break
    return found
