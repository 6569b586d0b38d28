"""Least-Load Fit Decreasing: empty what is overloaded, largest key first into the least loaded executor that takes it.

Decides nothing about the table before (`mixed.py`) and knows no keys: items are keys, or vectors of alike keys
(`compact.py`), each standing for `count` units of one load. Mixed §III-A, Algorithm 1 with `Adjust`, and Phase II.

Where the print is silent or slips:
- Line 12 needs `<=`, and loads are the running estimates: the example of Figure 4 does not come out otherwise.
- A key that no executor takes, even for an exchangeable set, stays in C for ever in the print. Here it goes where the
  load that cannot make way for it is least, and what is smaller makes way. This is the step of the Simple algorithm.

No sorting. Units leave C in descending order of load, and only smaller ones enter it, so what was once too large to be
exchanged is too large for ever: per executor one heap by ψ is enough, from which units are taken or dropped for good.

    at d:   [ heap by ψ: may still be exchanged ] + [ dropped: stays ] + [ placed: stays ]
"""

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.keys.hashing import Owners

SLACK = 1e-9
"""Sums of floats differ by their order; a load above its bound by less than this share is within it."""


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
def by_executor(at: Owners, executors: int) -> tuple[Ints, Ints]:
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
def loads_of(load: Floats, count: Ints, at: Owners, executors: int) -> Floats:
    loads = np.zeros(executors)
    for i in range(len(load)):
        loads[at[i]] += load[i] * count[i]
    return loads


@kernel
def llfd(load: Floats, rank: Floats, count: Ints, at: Owners, loads: Floats, load_max: float) -> tuple[Ints, Owners]:
    """Units that were taken up and put down: (item, executor) in the order of placing. `loads` is brought up to date.

    `rank` is ψ, largest first. A unit may be put down where it was; nothing else moves.
    """
    executors = len(loads)
    bound = load_max * (1.0 + SLACK)
    heap, starts = by_executor(at, executors)
    size = starts[1:] - starts[:-1]
    left = count.copy()  # units of an item that are still in the heap, or dropped: not taken up
    held, least = np.zeros(executors), np.full(executors, np.inf)  # load in the heap; smallest load in it at first
    for i in range(len(load)):
        held[at[i]] += load[i] * count[i]
        if load[i] > 0.0:
            least[at[i]] = min(least[at[i]], load[i])
    built = np.zeros(executors, np.bool_)
    queue, queued, waiting = np.empty(len(load), np.int64), 0, np.zeros(len(load), np.int64)  # C, by load
    room = 1024
    items, targets, placed = np.empty(room, np.int64), np.empty(room, np.int32), 0
    taken, taken_units = np.empty(1024, np.int64), np.empty(1024, np.int64)

    turn, d, unit = 0, 0, -1
    order = np.empty(0, np.int64)
    preparing, forced = True, False
    while True:
        # Who is to lose how much? First each overloaded executor in turn (Phase II), then who shall take a unit.
        if preparing:
            if turn == executors:
                preparing = False
                continue
            d, turn = turn, turn + 1
            need, below = loads[d] - bound, np.inf
        else:
            if unit < 0:
                if queued == 0:
                    break
                unit = queue[0]
                waiting[unit] -= 1
                if waiting[unit] == 0:
                    queued -= 1
                    queue[0] = queue[queued]
                    _sink(queue, 0, queued, 0, load)
                turn = 0
            if turn == 0:
                d = int(np.argmin(loads))
            elif turn == 1:
                order = np.argsort(loads, kind="mergesort")
                d = order[1] if executors > 1 else 0
            forced = turn >= executors
            if forced:
                d = _last_resort(load[unit], at[unit], loads, held, least, load_max)
            elif turn > 1:
                d = order[turn]
            turn += 1
            need, below = loads[d] + load[unit] - bound, load[unit]
        # Take units by ψ from d, smaller than `below`, until it has lost enough. (Adjust, the exchangeable set E.)
        got = 0
        enough = need <= 0.0
        possible = need <= held[d] * (1.0 + SLACK) and below > least[d]
        if not enough and (possible or preparing or (forced and below > least[d])):
            if not built[d]:
                for hole in range(size[d] // 2 - 1, -1, -1):
                    _sink(heap, starts[d], size[d], hole, rank)
                built[d] = True
            while need > 0.0 and size[d] > 0:
                top = heap[starts[d]]
                units = 0
                if 0.0 < load[top] < below:
                    units = min(left[top], int(np.ceil(need / load[top])))
                    need -= units * load[top]
                    if got == len(taken):
                        taken = np.concatenate((taken, np.empty_like(taken)))
                        taken_units = np.concatenate((taken_units, np.empty_like(taken_units)))
                    taken[got], taken_units[got] = top, units
                    got += 1
                    left[top] -= units
                    held[d] -= units * load[top]
                    if left[top] > 0:
                        continue
                else:
                    held[d] -= left[top] * load[top]
                size[d] -= 1
                heap[starts[d]] = heap[starts[d] + size[d]]
                _sink(heap, starts[d], size[d], 0, rank)
            enough = need <= 0.0
        if not (enough or preparing or forced):
            for n in range(got):  # not enough: they stay
                item = taken[n]
                if left[item] == 0:
                    heap[starts[d] + size[d]] = item
                    size[d] += 1
                    _rise(heap, starts[d], size[d] - 1, rank)
                left[item] += taken_units[n]
                held[d] += taken_units[n] * load[item]
            continue
        for n in range(got):
            item = taken[n]
            loads[d] -= taken_units[n] * load[item]
            if waiting[item] == 0:
                queue[queued] = item
                queued += 1
                _rise(queue, 0, queued - 1, load)
            waiting[item] += taken_units[n]
        if not preparing:
            if placed == room:
                room *= 2
                items = np.concatenate((items, np.empty_like(items)))
                targets = np.concatenate((targets, np.empty_like(targets)))
            items[placed], targets[placed] = unit, d
            placed += 1
            loads[d] += load[unit]
            unit = -1
    return items[:placed], targets[:placed]


@kernel
def _last_resort(load: float, place: int, loads: Floats, held: Floats, least: Floats, load_max: float) -> int:
    """Where what cannot make way is least; where the unit was, if that is as good."""
    stuck = np.where(load > least, loads - held, loads)
    best = int(np.argmin(stuck))
    return place if stuck[place] <= stuck[best] + 1e-6 * load_max else best
