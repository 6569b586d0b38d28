"""The loops of `words.py`: the time of each tuple on each worker, latencies, and what a new plan moves.

They take and return arrays; `words.py` explains the model.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.control.layout.text_sample import Lists
from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel


class ListRouting(NamedTuple):
    """A plan by lists, with the number of queries on each list that follow it."""

    slot_of_list: Ints
    executor_of_slot: Ints
    counts: Ints


class ServedTuples(NamedTuple):
    """Tuples by worker: tuple i goes to workers[offsets[i]:offsets[i + 1]]."""

    offsets: Ints
    workers: Ints
    us: Floats
    waits: Bools
    """Whether the tuple waits for a cell that is being moved."""
    slot_us: Floats
    slot_events: Floats


@kernel
def serve_events(
    rows: Ints,
    lists: Lists,
    new: ListRouting,
    old: ListRouting,
    both: bool,
    moving: Bools,
    is_sent: Bools,
    costs_us: tuple[float, float],
    workers: int,
) -> ServedTuples:
    """Serves events, which meet the lists of both plans that are not empty, and visit the workers of those that they
    are sent for. Time under the older plan counts for no slot."""
    check_us, event_us = costs_us
    slots = len(new.executor_of_slot)
    slot_us, slot_events = np.zeros(slots), np.zeros(slots)
    last_slot = np.full(slots, -1, np.int64)
    offsets = np.zeros(len(rows) + 1, np.int64)
    out_workers, out_us = np.empty(len(rows) * workers, np.int64), np.empty(len(rows) * workers)
    out_waits = np.zeros(len(rows) * workers, np.bool_)
    us, is_reached, waits = np.zeros(workers), np.zeros(workers, np.bool_), np.zeros(workers, np.bool_)
    n = 0
    for i in range(len(rows)):
        us[:] = 0.0
        is_reached[:] = False
        waits[:] = False
        for p in range(lists.offsets[rows[i]], lists.offsets[rows[i] + 1]):
            at = lists.terms[p]
            if new.counts[at] > 0 or is_sent[at]:
                slot = new.slot_of_list[at]
                worker = new.executor_of_slot[slot]
                took = check_us * new.counts[at]
                if not is_reached[worker]:
                    is_reached[worker] = True
                    took += event_us
                us[worker] += took
                slot_us[slot] += took
                waits[worker] |= moving[at]
                if last_slot[slot] != i:
                    last_slot[slot] = i
                    slot_events[slot] += 1
            if both and old.counts[at] > 0:
                worker = old.executor_of_slot[old.slot_of_list[at]]
                us[worker] += check_us * old.counts[at] + (0.0 if is_reached[worker] else event_us)
                is_reached[worker] = True
        for worker in range(workers):
            if is_reached[worker]:
                out_workers[n], out_us[n], out_waits[n] = worker, us[worker], waits[worker]
                n += 1
        offsets[i + 1] = n
    return ServedTuples(offsets, out_workers[:n].copy(), out_us[:n].copy(), out_waits[:n].copy(), slot_us, slot_events)


@kernel
def serve_changes(
    rows: Ints,
    lists: Lists,
    new: ListRouting,
    old: ListRouting,
    is_old: Bools,
    costs_us: tuple[float, float],
    workers: int,
) -> ServedTuples:
    """Serves changes. Each goes once to every worker that has, or will have, the query. The costs are for each such
    visit, which the query's slots there share, and for each of its entries."""
    visit_us, entry_us = costs_us
    slots = len(new.executor_of_slot)
    slot_us, last_slot = np.zeros(slots), np.full(max(slots, len(old.executor_of_slot)), -1, np.int64)
    offsets = np.zeros(len(rows) + 1, np.int64)
    out_workers, out_us = np.empty(len(rows) * workers, np.int64), np.empty(len(rows) * workers)
    slots_there, entries_there = np.zeros(workers), np.zeros(workers)
    n = 0
    for i in range(len(rows)):
        way = old if is_old[rows[i]] else new
        slots_there[:] = 0.0
        entries_there[:] = 0.0
        for p in range(lists.offsets[rows[i]], lists.offsets[rows[i] + 1]):
            slot = way.slot_of_list[lists.terms[p]]
            entries_there[way.executor_of_slot[slot]] += 1
            if last_slot[slot] != i:
                last_slot[slot] = i
                slots_there[way.executor_of_slot[slot]] += 1
        for worker in range(workers):
            if slots_there[worker] > 0:
                out_workers[n], out_us[n] = worker, visit_us + entry_us * entries_there[worker]
                n += 1
        offsets[i + 1] = n
        if not is_old[rows[i]]:
            for p in range(lists.offsets[rows[i]], lists.offsets[rows[i] + 1]):
                slot = way.slot_of_list[lists.terms[p]]
                slot_us[slot] += entry_us
                if last_slot[slot] == i:  # each slot once
                    last_slot[slot] = -1
                    slot_us[slot] += visit_us / slots_there[way.executor_of_slot[slot]]
    waits = np.zeros(n, np.bool_)
    return ServedTuples(offsets, out_workers[:n].copy(), out_us[:n].copy(), waits, slot_us, np.zeros(slots))


@kernel
def latencies(
    at_s: Floats,
    served: ServedTuples,
    weights: Floats,
    backlog_s: Floats,
    growth: Floats,
    ready_s: float,
    bounds_s: Floats,
) -> Floats:
    """The number of tuples of each class of latency. `at_s` is when each comes; until then a machine's backlog has
    changed by its growth. The last machine is the dispatchers, which all tuples pass; the others are workers."""
    classes = np.zeros(len(bounds_s) + 1)
    last = len(backlog_s) - 1
    for i in range(len(at_s)):
        latency_s = 0.0
        for p in range(served.offsets[i], served.offsets[i + 1]):
            worker = served.workers[p]
            waits_s = max(0.0, backlog_s[worker] + growth[worker] * at_s[i])
            if served.waits[p]:
                waits_s = max(waits_s, ready_s - at_s[i])
            latency_s = max(latency_s, waits_s + served.us[p] * 1e-6)
        latency_s += max(0.0, backlog_s[last] + growth[last] * at_s[i])
        at = 0
        while at < len(bounds_s) and latency_s >= bounds_s[at]:
            at += 1
        classes[at] += weights[i]
    return classes


@kernel
def count_moved(
    rows: Ints, lists: Lists, before: ListRouting, after: ListRouting, sizes: Ints, workers: int
) -> tuple[Floats, Floats, int, Bools]:
    """The queries that leave and that come to each worker, their bytes, and the lists that change their worker.

    The plans may number their slots differently. A query on several lists of a slot moves with it once; a query in
    several cells that move, moves with each (S_g is the size of all queries of a cell)."""
    out, came = np.zeros(workers), np.zeros(workers)
    last = np.full(len(after.executor_of_slot), -1, np.int64)
    is_moved = np.zeros(len(after.counts), np.bool_)
    size = 0
    for row in rows:
        for p in range(lists.offsets[row], lists.offsets[row + 1]):
            at = lists.terms[p]
            slot = after.slot_of_list[at]
            was, goes = before.executor_of_slot[before.slot_of_list[at]], after.executor_of_slot[slot]
            if was == goes:
                continue
            is_moved[at] = True
            if last[slot] != row:
                last[slot] = row
                out[was] += 1
                came[goes] += 1
                size += sizes[row]
    return out, came, size, is_moved
