"""Least-Load Fit Decreasing: move keys from overloaded executors, largest first, to the least loaded that accepts.

`mixed.py` decides about the table before. Items are keys, or vectors of similar keys (`compact.py`), each with `count`
units of one load. Mixed §III-A, Algorithm 1 with `Adjust`, and Phase II.

Where the paper is silent or wrong:
- Line 12 needs `<=`, and loads are the running estimates: only so does the example of Figure 4 come out.
- A key that no executor accepts, even for an exchangeable set, stays in C for ever in the paper. Here it goes where the
  load that cannot be exchanged for it is least, and smaller units leave. This is the step of the Simple algorithm.

Nothing is sorted. Units leave C in descending order of load, and only smaller ones enter it, so a unit that was once
too large to be exchanged stays so: one heap by ψ per executor is enough. Units are taken or dropped from it for good.

    at d:   [ heap by ψ: may still be exchanged ] + [ dropped: stays ] + [ placed: stays ]
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel
from geoswarm.core.keys.hashing import KeyOwners

SLACK = 1e-9
"""Sums of floats depend on their order, so a load above its bound by less than this share is within it."""
PLACED_AT_FIRST = 1024
"""The first length of the lists of placed units, which grow when they are full."""


@kernel
def _above(a: int, b: int, rank: Floats) -> bool:
    """Whether a has the higher rank; for ties, whether it comes first."""
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
    """Items grouped by executor, and the start of each group."""
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


class Placing(NamedTuple):
    """What each executor has while units are taken from one and placed at another; and C, the units to be placed."""

    load: Floats
    """The load of one unit of each item."""
    rank: Floats
    """ψ of each item, largest first."""
    left: Ints
    """Units of each item that were not taken: in a heap, or dropped from it."""
    loads: Floats
    """The present load of each executor."""
    heap: Ints
    """Items by executor, from `starts[d]` on; a heap by ψ once it `is_heap`."""
    starts: Ints
    size: Ints
    is_heap: Bools
    held: Floats
    """The load in each heap."""
    least: Floats
    """The smallest load above 0 that was ever in each heap."""
    queue: Ints
    """C: items with units to be placed, a heap by load."""
    waiting: Ints
    """Units of each item in C."""
    queued: Ints
    """The number of items in C, (1,)."""
    taken: Ints
    """Items taken from an executor in this step."""
    taken_units: Ints
    """The number of units taken of each."""


@kernel
def llfd(
    load: Floats, rank: Floats, count: Ints, at: KeyOwners, loads: Floats, load_max: float
) -> tuple[Ints, KeyOwners]:
    """The units that were moved, as items and executors in the order of placing. `loads` is updated in place.

    `rank` is ψ, largest first. A unit may be placed where it was; nothing else moves.
    """
    bound = load_max * (1.0 + SLACK)
    placing = _begin_placing(load, rank, count, at, loads)
    for d in range(len(loads)):  # Phase II
        _queue(d, _take(d, loads[d] - bound, np.inf, placing)[1], placing)
    items, targets, placed = np.empty(PLACED_AT_FIRST, np.int64), np.empty(PLACED_AT_FIRST, np.int32), 0
    while placing.queued[0] > 0:
        unit = _next_unit(placing)
        d = _accepting_executor(unit, bound, placing)
        if d < 0:
            d = _last_resort(load[unit], at[unit], placing, load_max)
            _force(unit, d, bound, placing)
        if placed == len(items):
            items, targets = np.concatenate((items, items)), np.concatenate((targets, targets))
        items[placed], targets[placed] = unit, d
        placed += 1
        loads[d] += load[unit]
    return items[:placed], targets[:placed]


@kernel
def _begin_placing(load: Floats, rank: Floats, count: Ints, at: KeyOwners, loads: Floats) -> Placing:
    executors, items = len(loads), len(load)
    heap, starts = by_executor(at, executors)
    held, least = np.zeros(executors), np.full(executors, np.inf)
    for i in range(items):
        held[at[i]] += load[i] * count[i]
        if load[i] > 0.0:
            least[at[i]] = min(least[at[i]], load[i])
    return Placing(
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
def _next_unit(placing: Placing) -> int:
    """Takes a unit of the largest load from C."""
    unit = int(placing.queue[0])
    placing.waiting[unit] -= 1
    if placing.waiting[unit] == 0:
        placing.queued[0] -= 1
        placing.queue[0] = placing.queue[placing.queued[0]]
        _sink(placing.queue, 0, placing.queued[0], 0, placing.load)
    return unit


@kernel
def _accepting_executor(unit: int, bound: float, placing: Placing) -> int:
    """The least loaded executor that accepts the unit, maybe for an exchangeable set, which goes to C; -1: none."""
    first = int(np.argmin(placing.loads))
    if _makes_way(unit, first, bound, placing):
        return first
    order = np.argsort(placing.loads, kind="mergesort")
    for d in order[1:]:
        if _makes_way(unit, d, bound, placing):
            return int(d)
    return -1


@kernel
def _makes_way(unit: int, d: int, bound: float, placing: Placing) -> bool:
    """`Adjust`: whether d accepts the unit. If so, its exchangeable set E of smaller units goes to C."""
    need, below = placing.loads[d] + placing.load[unit] - bound, placing.load[unit]
    if need <= 0.0:
        return True
    if need > placing.held[d] * (1.0 + SLACK) or below <= placing.least[d]:
        return False
    lacking, got = _take(d, need, below, placing)
    if lacking > 0.0:
        _give_back(d, got, placing)
        return False
    _queue(d, got, placing)
    return True


@kernel
def _force(unit: int, d: int, bound: float, placing: Placing) -> None:
    """Makes d accept the unit: as many smaller units as needed, or all of placing, go to C."""
    if placing.load[unit] > placing.least[d]:
        need = placing.loads[d] + placing.load[unit] - bound
        _queue(d, _take(d, need, placing.load[unit], placing)[1], placing)


@kernel
def _take(d: int, need: float, below: float, placing: Placing) -> tuple[float, int]:
    """Takes units smaller than `below` from d, by ψ, until it has lost `need`. Returns the load that is lacking and the
    number of entries in `taken`. Units that are not smaller, or have no load, are dropped from the heap for good."""
    got, start = 0, placing.starts[d]
    if need > 0.0 and not placing.is_heap[d]:
        for hole in range(placing.size[d] // 2 - 1, -1, -1):
            _sink(placing.heap, start, placing.size[d], hole, placing.rank)
        placing.is_heap[d] = True
    while need > 0.0 and placing.size[d] > 0:
        top = placing.heap[start]
        load = placing.load[top]
        if 0.0 < load < below:
            units = min(placing.left[top], int(np.ceil(need / load)))
            need -= units * load
            placing.taken[got], placing.taken_units[got] = top, units
            got += 1
            placing.left[top] -= units
            placing.held[d] -= units * load
            if placing.left[top] > 0:
                continue
        else:
            placing.held[d] -= placing.left[top] * load
        placing.size[d] -= 1
        placing.heap[start] = placing.heap[start + placing.size[d]]
        _sink(placing.heap, start, placing.size[d], 0, placing.rank)
    return need, got


@kernel
def _give_back(d: int, got: int, placing: Placing) -> None:
    """Returns to d what was taken, because it was not enough."""
    for n in range(got):
        item, units = placing.taken[n], placing.taken_units[n]
        if placing.left[item] == 0:
            placing.heap[placing.starts[d] + placing.size[d]] = item
            placing.size[d] += 1
            _rise(placing.heap, placing.starts[d], placing.size[d] - 1, placing.rank)
        placing.left[item] += units
        placing.held[d] += units * placing.load[item]


@kernel
def _queue(d: int, got: int, placing: Placing) -> None:
    """Moves to C what was taken from d."""
    for n in range(got):
        item, units = placing.taken[n], placing.taken_units[n]
        placing.loads[d] -= units * placing.load[item]
        if placing.waiting[item] == 0:
            placing.queue[placing.queued[0]] = item
            placing.queued[0] += 1
            _rise(placing.queue, 0, placing.queued[0] - 1, placing.load)
        placing.waiting[item] += units


@kernel
def _last_resort(load: float, place: int, placing: Placing, load_max: float) -> int:
    """The executor with the least load that cannot be exchanged for the unit; its own, if that is as good."""
    stuck = np.where(load > placing.least, placing.loads - placing.held, placing.loads)
    best = int(np.argmin(stuck))
    return place if stuck[place] <= stuck[best] + 1e-6 * load_max else best
