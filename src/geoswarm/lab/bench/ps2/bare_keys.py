"""All queries of a world as bare (cell, term) keys: ten million fit where a hundred thousand did with their texts.

Counts, and draws no plan: `bare_queries.py` draws the queries, `key_worlds.py` has the worlds. What a plan makes of the
queries is counted by three rules (PS2Stream §IV-C, §IV-D):

    worker   a query is on the lists of a worker for every cell of its index in which they meet the worker's part
    list     (worker, cell of the index, term): events are compared with the queries on it
    H2       (leaf of the plan, term): an event is sent to the worker of each of its terms that its leaf has (§IV-C,
             where leaves decide the cells of the dispatchers); layouts by words alone have one leaf, the map

The grid that plans cut is finer than that of the index, so two workers may share a cell of the index. Each then has
the queries that meet its part of it: those in both are entered twice, those in one are compared with fewer events.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.control.balance.tally import PlanArrays, plan_arrays, slot_of
from geoswarm.control.layout.text_sample import Lists, TextSample, distinct_counts
from geoswarm.core.arrays.jit import Array, Bools, Floats, Ints, kernel
from geoswarm.core.space.plan import Plan
from geoswarm.lab.bench.ps2.bare_queries import BareQueries, Boxes, word_pairs

INDEX_SIDE = 64
"""Cells on each side of a worker's index (§VI-B)."""
EMPTY_KEY = -1
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class CellPlaces(NamedTuple):
    """The rectangles of a plan that meet each cell of the index, and the cells of the plan's grid that they share."""

    offsets: Ints
    places: Ints
    """The first slot of each rectangle, as in `Plan.slot_of_cell`."""
    boxes: Ints
    """(4, m)"""
    number_of_place: Ints
    """By slot: rectangles are numbered from 0."""


def cell_places(plan: Plan) -> CellPlaces:
    step = plan.grid.rows // INDEX_SIDE
    firsts = np.unique(plan.slot_of_cell)
    sides = np.array([(p.row0, p.col0, p.row1, p.col1) for p in (plan.partitions[i] for i in firsts)]).T
    numbers = np.full(len(plan.partitions), -1, np.int64)
    numbers[firsts] = np.arange(len(firsts))
    return CellPlaces(*_cell_places(sides.astype(np.int64), firsts.astype(np.int64), step), numbers)


@kernel
def _cell_places(sides: Ints, firsts: Ints, step: int) -> tuple[Ints, Ints, Ints]:
    counts = np.zeros(INDEX_SIDE * INDEX_SIDE + 1, np.int64)
    for n in range(len(firsts)):
        for row in range(sides[0, n] // step, sides[2, n] // step + 1):
            for column in range(sides[1, n] // step, sides[3, n] // step + 1):
                counts[row * INDEX_SIDE + column + 1] += 1
    offsets = np.cumsum(counts)
    at, places, boxes = offsets[:-1].copy(), np.empty(offsets[-1], np.int64), np.empty((4, offsets[-1]), np.int64)
    for n in range(len(firsts)):
        for row in range(sides[0, n] // step, sides[2, n] // step + 1):
            for column in range(sides[1, n] // step, sides[3, n] // step + 1):
                cell = row * INDEX_SIDE + column
                k = at[cell]
                places[k] = firsts[n]
                boxes[0, k], boxes[1, k] = max(sides[0, n], row * step), max(sides[1, n], column * step)
                boxes[2, k] = min(sides[2, n], row * step + step - 1)
                boxes[3, k] = min(sides[3, n], column * step + step - 1)
                at[cell] += 1
    return offsets, places, boxes


class KeyTable(NamedTuple):
    """A hash table of the lists that events ask for, with the number of queries on each."""

    keys: Ints
    counts: Ints


def key_table(keys: Ints) -> KeyTable:
    size = 1 << max(4, int(2 * len(keys)).bit_length())
    table = KeyTable(np.full(size, EMPTY_KEY, np.int64), np.zeros(size, np.int64))
    _fill(table, keys)
    return table


@kernel
def _place_of(key: np.int64, keys: Ints) -> np.int64:
    """Where a key is, or the empty place where it would be."""
    mask = len(keys) - 1
    at = np.int64((np.uint64(key) * _SPREAD) >> np.uint64(24)) & mask
    while keys[at] != EMPTY_KEY and keys[at] != key:
        at = (at + 1) & mask
    found: np.int64 = at
    return found


@kernel
def _fill(table: KeyTable, keys: Ints) -> None:
    for key in keys:
        table.keys[_place_of(key, table.keys)] = key


class Counted(NamedTuple):
    """What a plan makes of the queries and events of a world. By worker where nothing else is said."""

    checks: Ints
    """By pair of an event and one of its terms: the queries on its list."""
    is_sent: Bools
    """By pair: whether the dispatcher sends the event to the worker of the term."""
    workers: Ints
    """By pair: the worker of the term there."""
    visits: Floats
    """Events that are sent to the worker."""
    compared: Floats
    """Queries that these are compared with."""
    entries: Floats
    """Entries (cell, term) of all queries."""
    requests: Floats
    """Queries that the worker has."""


def count_under(plan: Plan, sample: TextSample, queries: BareQueries) -> Counted:
    """Counts all queries under a plan. `sample.said` has the events' terms; ANYTHING is left out."""
    grid, step = plan.grid, plan.grid.rows // INDEX_SIDE
    ways, at, terms = plan_arrays(plan, sample.hashes), cell_places(plan), sample.terms
    pairs = word_pairs(sample)
    places = plan.slot_of_cell[sample.rows * grid.columns + sample.columns].astype(np.int64)[pairs.rows]
    workers = _workers_of(places, pairs.terms, ways)
    cells = ((sample.rows // step) * INDEX_SIDE + sample.columns // step)[pairs.rows]
    keys = (workers * INDEX_SIDE**2 + cells) * terms + pairs.terms
    table = key_table(keys)
    marks = np.zeros((int(at.number_of_place.max()) + 1, terms), np.bool_)
    entries, requests = np.zeros(plan.executors), np.zeros(plan.executors)
    _count_queries(queries.boxes, queries.postings, step, at, ways, table, marks, entries, requests)
    checks = _counts_of(keys, table)
    is_sent = marks[at.number_of_place[places], pairs.terms]
    sent_to, _ = distinct_counts(pairs.rows[is_sent] * plan.executors + workers[is_sent])
    visits = np.bincount(sent_to % plan.executors, minlength=plan.executors).astype(np.float64)
    compared = np.bincount(workers, checks, minlength=plan.executors).astype(np.float64)
    return Counted(checks, is_sent, workers, visits, compared, entries, requests)


@kernel
def _workers_of(places: Ints, terms: Ints, ways: PlanArrays) -> Ints:
    found = np.empty(len(places), np.int64)
    for i in range(len(places)):
        found[i] = ways.executor_of_slot[slot_of(places[i], terms[i], ways)]
    return found


@kernel
def _counts_of(keys: Ints, table: KeyTable) -> Ints:
    found = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        found[i] = table.counts[_place_of(keys[i], table.keys)]
    return found


@kernel
def _count_queries(
    boxes: Boxes,
    postings: Lists,
    step: int,
    at: CellPlaces,
    ways: PlanArrays,
    table: KeyTable,
    marks: Array,
    entries: Floats,
    requests: Floats,
) -> None:
    terms = marks.shape[1]
    last_of, last_entry = np.full(len(entries), -1, np.int64), np.full(len(entries), -1, np.int64)
    number = 0
    for i in range(boxes.shape[1]):
        row0, col0 = np.int64(boxes[0, i]), np.int64(boxes[1, i])
        row1, col1 = np.int64(boxes[2, i]), np.int64(boxes[3, i])
        for row in range(row0 // step, row1 // step + 1):
            for column in range(col0 // step, col1 // step + 1):
                cell = row * INDEX_SIDE + column
                for p in range(postings.offsets[i], postings.offsets[i + 1]):
                    term = np.int64(postings.terms[p])
                    number += 1
                    for k in range(at.offsets[cell], at.offsets[cell + 1]):
                        if (
                            at.boxes[0, k] > row1
                            or at.boxes[2, k] < row0
                            or at.boxes[1, k] > col1
                            or at.boxes[3, k] < col0
                        ):
                            continue
                        place = at.places[k]
                        marks[at.number_of_place[place], term] = True
                        worker = ways.executor_of_slot[slot_of(place, term, ways)]
                        if last_entry[worker] == number:  # by another of its rectangles in the cell
                            continue
                        last_entry[worker] = number
                        entries[worker] += 1
                        if last_of[worker] != i:
                            last_of[worker] = i
                            requests[worker] += 1
                        key = (worker * INDEX_SIDE * INDEX_SIDE + cell) * terms + term
                        found = _place_of(key, table.keys)
                        if table.keys[found] == key:
                            table.counts[found] += 1
