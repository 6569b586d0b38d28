"""Choose cells to migrate: at least the wanted load, in as few bytes as possible. Four ways with one signature.

`adjust.py` decides who gives and who takes. A cell is anything that can be moved alone: a cell of the grid^t index
in the simulator, a partition in the engine. PS2Stream §V-A, Definition 4 (Minimum Cost Migration) and §VI-D:

    dp   the least bytes possible: O(n·P) time and memory, P the bytes that `gr` needs
    gr   by bytes per load, ascending; of all cells that would complete the load, the cheapest set is kept
    si   largest first
    ra   in random order

On the cells of simulated workers `gr` is within 1.5 % of the least, so the paper's scan is used as it is: what it saves
against `si` depends on the cells.

The paper's recurrence of A(i, j), §V-A-1, leaves out a cell whose size is exactly j, yet the least set fills its j to
the last byte. Here such a cell may be taken: only `j < S` keeps A(i - 1, j).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bytes, Floats, Ints, kernel
from geoswarm.errors import InputError

DP_BYTES_MAX = 1 << 28
"""The limit of `dp`'s table, one bit for each cell and size. The paper's workers ran out of memory at 5 M queries
(§VI-D); here it is refused before."""


class Choice(NamedTuple):
    cells: Ints
    """Positions of the chosen cells, ascending."""
    load: float
    size_bytes: int
    enough: bool
    """Whether the wanted load is reached. If not, all cells together have less, and all are chosen."""
    steps: int
    """Elementary steps: entries of the table for `dp`, cells for the others."""


CellChooser = Callable[[Floats, Ints, float, np.random.Generator], Choice]
"""(load of each cell, bytes of each cell, wanted load, random numbers) -> cells. Only `ra` is random."""


def gr(loads: Floats, sizes: Ints, wanted: float, rng: np.random.Generator) -> Choice:
    return _choose(loads, sizes, wanted, lambda some: some[_scan(loads[some], sizes[some], wanted)])


def si(loads: Floats, sizes: Ints, wanted: float, rng: np.random.Generator) -> Choice:
    return _choose(
        loads, sizes, wanted, lambda some: _prefix(loads, some[np.argsort(-sizes[some], kind="stable")], wanted)
    )


def ra(loads: Floats, sizes: Ints, wanted: float, rng: np.random.Generator) -> Choice:
    return _choose(loads, sizes, wanted, lambda some: _prefix(loads, rng.permutation(some), wanted))


def dp(loads: Floats, sizes: Ints, wanted: float, rng: np.random.Generator) -> Choice:
    bound = gr(loads, sizes, wanted, rng)
    if not bound.enough or not len(bound.cells):
        return bound
    # No least set has a cell larger than the bound, nor one without load and size.
    some = np.flatnonzero((loads > 0) & (sizes <= bound.size_bytes))
    room = bound.size_bytes
    table = len(some) * (room // 8 + 1)
    if table > DP_BYTES_MAX:
        raise InputError(
            f"choosing among {len(some)} cells with {bound.size_bytes} bytes to spend takes a table of {table} bytes, "
            f"limit {DP_BYTES_MAX}: use gr"
        )
    taken = np.zeros((len(some), room // 8 + 1), np.uint8)
    picked = some[_least(np.ascontiguousarray(loads[some]), sizes[some], room, wanted, taken)]
    found = _choice(loads, sizes, wanted, picked, len(some) * (room + 1))
    # Sums of floats depend on their order, so a load that is just reached here may be just missed there.
    return found if found.enough and found.size_bytes <= bound.size_bytes else bound._replace(steps=found.steps)


WAYS: Mapping[str, CellChooser] = {"dp": dp, "gr": gr, "si": si, "ra": ra}


def _choose(loads: Floats, sizes: Ints, wanted: float, choose: Callable[[Ints], Ints]) -> Choice:
    if loads.shape != sizes.shape or loads.ndim != 1:
        raise InputError(f"{loads.shape} loads and {sizes.shape} sizes: give one of each per cell")
    if len(loads) and (not np.isfinite(loads).all() or loads.min() < 0 or sizes.min() < 0):
        raise InputError("some cells have a negative load or size, or none that is a number: give 0 or more")
    some = np.flatnonzero(loads > 0)  # the others cost bytes and relieve no executor
    if wanted <= 0:
        return Choice(np.empty(0, np.int64), 0.0, 0, True, 0)
    if loads[some].sum() < wanted:
        return _choice(loads, sizes, wanted, some, len(some))
    return _choice(loads, sizes, wanted, choose(some), len(some))


def _choice(loads: Floats, sizes: Ints, wanted: float, cells: Ints, steps: int) -> Choice:
    cells = np.sort(cells)
    load = float(loads[cells].sum())
    return Choice(cells, load, int(sizes[cells].sum()), load >= wanted * (1 - 1e-12), steps)


def _prefix(loads: Floats, order: Ints, wanted: float) -> Ints:
    """The shortest beginning of `order` that has the wanted load."""
    reached: Ints = order[: int(np.searchsorted(np.cumsum(loads[order]), wanted)) + 1]
    return reached


def _scan(loads: Floats, sizes: Ints, wanted: float) -> Ints:
    """The cells GS 1..t and g' of the paper's Figure 5."""
    order = np.argsort(sizes / loads, kind="stable")
    small, last = _gs_and_gl(loads[order], sizes[order], wanted)
    if last < 0:  # rounding: the sum in this order stays just below
        return order
    found: Ints = order[np.append(small[small < last], last)]
    return found


@kernel
def _gs_and_gl(loads: Floats, sizes: Ints, wanted: float) -> tuple[Ints, int]:
    """All positions of GS, and that of the best g'; the GS before it belong to it."""
    small = np.empty(len(loads), np.int64)
    count, load, size = 0, 0.0, np.int64(0)
    best, least = -1, np.int64(0)
    for i in range(len(loads)):
        if load + loads[i] < wanted:
            small[count] = i
            count += 1
            load += loads[i]
            size += sizes[i]
        elif best < 0 or size + sizes[i] < least:
            best, least = i, size + sizes[i]
    return small[:count], best


@kernel
def _least(loads: Floats, sizes: Ints, room: int, wanted: float, taken: Bytes) -> Ints:
    """A(i, j), as one row that is overwritten from the right; a bit of `taken` marks that cell i is in H(i, j)."""
    most = np.zeros(room + 1)
    for i in range(len(loads)):
        size, load = sizes[i], loads[i]
        for j in range(room, size - 1, -1):  # an exact fit, j = size, counts
            if most[j - size] + load > most[j]:
                most[j] = most[j - size] + load
                taken[i, j >> 3] |= np.uint8(1 << (j & 7))
    at = 0
    while at < room and most[at] < wanted:
        at += 1
    found = np.empty(len(loads), np.int64)
    count = 0
    for i in range(len(loads) - 1, -1, -1):
        if taken[i, at >> 3] >> np.uint8(at & 7) & 1:
            found[count] = i
            count += 1
            at -= sizes[i]
    return found[:count]
