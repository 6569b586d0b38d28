"""Least-Load Fit Decreasing: empty what is overloaded, largest key first into the least loaded executor that takes it.

Decides nothing about the table before (`mixed.py`) and knows no keys: items are keys, or vectors of alike keys
(`compact.py`), each standing for `count` units of one load. Mixed §III-A, Algorithm 1 with `Adjust`, and Phase II.

Where the paper is silent or slips:
- Line 12 needs `<=`, and loads are the running estimates: the example of Figure 4 does not come out otherwise.
- A key that no executor takes, even for an exchangeable set, stays in C for ever in the paper. Here it goes where the
  load that cannot make way for it is least, and what is smaller makes way. This is the step of the Simple algorithm.

No sorting. Units leave C in descending order of load, and only smaller ones enter it, so what was once too large to be
exchanged is too large for ever: per executor one heap by ψ is enough, from which units are taken or dropped for good.

    at d:   [ heap by ψ: may still be exchanged ] + [ dropped: stays ] + [ placed: stays ]
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel
from geoswarm.core.keys.hashing import KeyOwners

SLACK = 1e-9
"""Sums of floats differ by their order; a load above its bound by less than this share is within it."""
PLACED_AT_FIRST = 1024
"""Units that there is room for before the lists of what was placed are made longer."""


@kernel
def _above(a: int, b: int, rank: Floats) -> bool:
    """Ties go to the item that comes first."""
    return rank[a] > rank[b] or (rank[a] == rank[b] and a < b)


@kernel
def _sink(heap: Ints, start: int, size: int, hole: int, rank: Floats) -> None:
    item = heap[start + hole]
    while 2 * hole + 1 < size:
        child = 2 * hole + 1
        if child + 1 < size and _above(heap[start + child + 1], heap[start + child], rank):
            child += 1
        if not _above(heap[start + child], item, rank):
            break
        heap[start + hole] = heap[start + child]
        hole = child
    heap[start + hole] = item


@kernel
def _rise(heap: Ints, start: int, hole: int, rank: Floats) -> None:
    item = heap[start + hole]
    while hole > 0 and _above(item, heap[start + (hole - 1) // 2], rank):
        heap[start + hole] = heap[start + (hole - 1) // 2]
        hole = (hole - 1) // 2
    heap[start + hole] = item


@kernel
def by_executor(at: KeyOwners, executors: int) -> tuple[Ints, Ints]:
    """(items grouped by executor, where each group starts)."""
    starts = np.zeros(executors + 1, np.int64)
    for i in range(len(at)):
        starts[at[i] + 1] += 1
    for d in range(executors):
        starts[d + 1] += starts[d]
    heap, filled = np.empty(len(at), np.int64), starts.copy()
    for i in range(len(at)):
        heap[filled[at[i]]] = i
        filled[at[i]] += 1
    return heap, starts


@kernel
def loads_of(load: Floats, count: Ints, at: KeyOwners, executors: int) -> Floats:
    loads = np.zeros(executors)
    for i in range(len(load)):
        loads[at[i]] += load[i] * count[i]
    return loads


class Executors(NamedTuple):
    """What each executor has while units are taken up and put down; and C, the units that are to be put down."""

    load: Floats
    """Of one unit of each item."""
    rank: Floats
    """ψ of each item, largest first."""
    left: Ints
    """Units of each item that nobody has taken up: in a heap, or dropped from it."""
    loads: Floats
    """Of each executor, as units come and go."""
    heap: Ints
    """Items by executor, from `starts[d]` on; a heap by ψ once it `is_heap`."""
    starts: Ints
    size: Ints
    is_heap: Bools
    held: Floats
    """Load in each heap."""
    least: Floats
    """The smallest load above 0 that was ever in it."""
    queue: Ints
    """C: items of which some units wait, a heap by load."""
    waiting: Ints
    """Units of each item in C."""
    queued: Ints
    """(1,): items in C."""
    taken: Ints
    """Items taken from an executor in this step, and..."""
    taken_units: Ints
    """...how many units of each."""


@kernel
def llfd(
    load: Floats, rank: Floats, count: Ints, at: KeyOwners, loads: Floats, load_max: float
) -> tuple[Ints, KeyOwners]:
    """Units that were taken up and put down: (item, executor) in the order of placing. `loads` is brought up to date.

    `rank` is ψ, largest first. A unit may be put down where it was; nothing else moves.
    """
    bound = load_max * (1.0 + SLACK)
    them = _executors(load, rank, count, at, loads)
    for d in range(len(loads)):  # Phase II
        _queue(d, _take(d, loads[d] - bound, np.inf, them)[1], them)
    items, targets, placed = np.empty(PLACED_AT_FIRST, np.int64), np.empty(PLACED_AT_FIRST, np.int32), 0
    while them.queued[0] > 0:
        unit = _next_unit(them)
        d = _willing(unit, bound, them)
        if d < 0:
            d = _last_resort(load[unit], at[unit], them, load_max)
            _force(unit, d, bound, them)
        if placed == len(items):
            items, targets = np.concatenate((items, items)), np.concatenate((targets, targets))
        items[placed], targets[placed] = unit, d
        placed += 1
        loads[d] += load[unit]
    return items[:placed], targets[:placed]


@kernel
def _executors(load: Floats, rank: Floats, count: Ints, at: KeyOwners, loads: Floats) -> Executors:
    executors, items = len(loads), len(load)
    heap, starts = by_executor(at, executors)
    held, least = np.zeros(executors), np.full(executors, np.inf)
    for i in range(items):
        held[at[i]] += load[i] * count[i]
        if load[i] > 0.0:
            least[at[i]] = min(least[at[i]], load[i])
    return Executors(
        load,
        rank,
        count.copy(),
        loads,
        heap,
        starts,
        starts[1:] - starts[:-1],
        np.zeros(executors, np.bool_),
        held,
        least,
        np.empty(items, np.int64),
        np.zeros(items, np.int64),
        np.zeros(1, np.int64),
        np.empty(items, np.int64),
        np.empty(items, np.int64),
    )


@kernel
def _next_unit(them: Executors) -> int:
    """A unit of the largest load in C, which leaves it."""
    unit = int(them.queue[0])
    them.waiting[unit] -= 1
    if them.waiting[unit] == 0:
        them.queued[0] -= 1
        them.queue[0] = them.queue[them.queued[0]]
        _sink(them.queue, 0, them.queued[0], 0, them.load)
    return unit


@kernel
def _willing(unit: int, bound: float, them: Executors) -> int:
    """The least loaded executor that takes the unit, if need be for an exchangeable set, which goes to C; -1: none."""
    first = int(np.argmin(them.loads))
    if _makes_way(unit, first, bound, them):
        return first
    order = np.argsort(them.loads, kind="mergesort")
    for d in order[1:]:
        if _makes_way(unit, d, bound, them):
            return int(d)
    return -1


@kernel
def _makes_way(unit: int, d: int, bound: float, them: Executors) -> bool:
    """`Adjust`: whether d takes the unit. Its exchangeable set E, of units that are smaller, is in C then."""
    need, below = them.loads[d] + them.load[unit] - bound, them.load[unit]
    if need <= 0.0:
        return True
    if need > them.held[d] * (1.0 + SLACK) or below <= them.least[d]:
        return False
    lacking, got = _take(d, need, below, them)
    if lacking > 0.0:
        _give_back(d, got, them)
        return False
    _queue(d, got, them)
    return True


@kernel
def _force(unit: int, d: int, bound: float, them: Executors) -> None:
    """d will take the unit; as much of what is smaller as must, or all of it, goes to C."""
    if them.load[unit] > them.least[d]:
        need = them.loads[d] + them.load[unit] - bound
        _queue(d, _take(d, need, them.load[unit], them)[1], them)


@kernel
def _take(d: int, need: float, below: float, them: Executors) -> tuple[float, int]:
    """Take units by ψ from d, smaller than `below`, until it has lost `need`: (what is lacking, entries in `taken`).
    Units that are not smaller, or have no load, are dropped from the heap for good."""
    got, start = 0, them.starts[d]
    if need > 0.0 and not them.is_heap[d]:
        for hole in range(them.size[d] // 2 - 1, -1, -1):
            _sink(them.heap, start, them.size[d], hole, them.rank)
        them.is_heap[d] = True
    while need > 0.0 and them.size[d] > 0:
        top = them.heap[start]
        load = them.load[top]
        if 0.0 < load < below:
            units = min(them.left[top], int(np.ceil(need / load)))
            need -= units * load
            them.taken[got], them.taken_units[got] = top, units
            got += 1
            them.left[top] -= units
            them.held[d] -= units * load
            if them.left[top] > 0:
                continue
        else:
            them.held[d] -= them.left[top] * load
        them.size[d] -= 1
        them.heap[start] = them.heap[start + them.size[d]]
        _sink(them.heap, start, them.size[d], 0, them.rank)
    return need, got


@kernel
def _give_back(d: int, got: int, them: Executors) -> None:
    """What was taken from d was not enough: it stays there."""
    for n in range(got):
        item, units = them.taken[n], them.taken_units[n]
        if them.left[item] == 0:
            them.heap[them.starts[d] + them.size[d]] = item
            them.size[d] += 1
            _rise(them.heap, them.starts[d], them.size[d] - 1, them.rank)
        them.left[item] += units
        them.held[d] += units * them.load[item]


@kernel
def _queue(d: int, got: int, them: Executors) -> None:
    """What was taken from d goes to C."""
    for n in range(got):
        item, units = them.taken[n], them.taken_units[n]
        them.loads[d] -= units * them.load[item]
        if them.waiting[item] == 0:
            them.queue[them.queued[0]] = item
            them.queued[0] += 1
            _rise(them.queue, 0, them.queued[0] - 1, them.load)
        them.waiting[item] += units


@kernel
def _last_resort(load: float, place: int, them: Executors, load_max: float) -> int:
    """Where what cannot make way is least; where the unit was, if that is as good."""
    stuck = np.where(load > them.least, them.loads - them.held, them.loads)
    best = int(np.argmin(stuck))
    return place if stuck[place] <= stuck[best] + 1e-6 * load_max else best
