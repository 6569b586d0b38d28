"""MergeNodesIntoPartitions of PS2Stream's Algorithm 1 (§IV-B, "node merging"): the leaves of a tree go to executors.

`hybrid.py` makes the leaves. Each leaf, heaviest first, goes to where the load grows least; if that makes L_max / L_min
larger, to the least loaded executor. An event or a subscription that an executor already has adds nothing. An executor
without leaves makes L_max / L_min infinite, so leaves go to such executors first.
"""

from dataclasses import dataclass

import numpy as np

from geoswarm.control.layout.kdt_tree import Node
from geoswarm.control.layout.load_model import Costs
from geoswarm.core.arrays.jit import Floats, Ints, kernel


@dataclass(frozen=True)
class Deal:
    executors: Ints
    loads: Floats

    @property
    def imbalance(self) -> float:
        return float(self.loads.max() / max(self.loads.min(), 1e-9))


PairChecks = dict[tuple[int, int], float]
"""By the ids of two leaves: the entries more that their events meet if one executor has both."""


def merge_nodes(leaves: list[Node], executors: int, costs: Costs, known: PairChecks | None = None) -> Deal:
    """`known` keeps what pairs of leaves have in common for the next deal of mostly the same leaves."""
    order = np.argsort([-leaf.load for leaf in leaves], kind="stable")
    sample = leaves[0].unit.sample
    events, queries = (
        _concatenate([leaf.unit.events for leaf in leaves]),
        _concatenate([leaf.unit.queries for leaf in leaves]),
    )
    checks, sizes = np.array([leaf.unit.checks for leaf in leaves]), (sample.events, sample.queries)
    pairs = _pair_checks(leaves, {} if known is None else known)
    return Deal(*_deal(order, *events, *queries, checks, pairs, sizes, executors, costs.coefficients(sample)))


def _pair_checks(leaves: list[Node], known: PairChecks) -> Floats:
    found = np.zeros((len(leaves), len(leaves)))
    cut = [i for i, leaf in enumerate(leaves) if leaf.unit.kept is not None and leaf.unit.terms is None]
    for n, i in enumerate(cut):
        for j in cut[:n]:
            key = (id(leaves[i]), id(leaves[j]))
            if key not in known:
                known[key] = leaves[i].unit.checks_with(leaves[j].unit)
            found[i, j] = found[j, i] = known[key]
    return found


def _concatenate(lists: list[Ints]) -> tuple[Ints, Ints]:
    """The offset of each list, and all lists as one."""
    return np.cumsum([0, *map(len, lists)]), np.concatenate(lists)


@kernel
def _deal(
    order: Ints,
    event_offsets: Ints,
    events: Ints,
    query_offsets: Ints,
    queries: Ints,
    checks: Floats,
    pair_checks: Floats,
    sizes: tuple[int, int],
    executors: int,
    coefficients: Floats,
) -> tuple[Ints, Floats]:
    event_there, query_there = np.zeros((executors, sizes[0]), np.bool_), np.zeros((executors, sizes[1]), np.bool_)
    n_events, n_queries, n_checks, loads = (
        np.zeros(executors),
        np.zeros(executors),
        np.zeros(executors),
        np.zeros(executors),
    )
    both, event, query, entry = coefficients
    after, owners, held = np.empty(executors), np.empty(len(order), np.int64), np.zeros(executors, np.int64)
    more_events, more_queries, more_checks = np.empty(executors), np.empty(executors), np.empty(executors)
    owners[:] = -1
    for leaf in order:
        mine = events[event_offsets[leaf] : event_offsets[leaf + 1]]
        asks = queries[query_offsets[leaf] : query_offsets[leaf + 1]]
        for x in range(executors):
            more_events[x] = len(mine) - event_there[x][mine].sum()
            more_queries[x] = len(asks) - query_there[x][asks].sum()
            more_checks[x] = checks[leaf] + pair_checks[leaf][owners == x].sum()
            o, q = n_events[x] + more_events[x], n_queries[x] + more_queries[x]
            after[x] = both * o * q + event * o + query * q + entry * (n_checks[x] + more_checks[x])
        chosen, least = np.argmin(after - loads), np.argmin(loads)
        if held.min() == 0:
            chosen = np.argmin(held)
        else:
            before = loads.max() / max(loads.min(), 1e-9)
            loads_then = loads.copy()
            loads_then[chosen] = after[chosen]
            if loads_then.max() / max(loads_then.min(), 1e-9) > before:
                chosen = least
        owners[leaf] = chosen
        held[chosen] += 1
        n_events[chosen] += more_events[chosen]
        n_queries[chosen] += more_queries[chosen]
        n_checks[chosen] += more_checks[chosen]
        loads[chosen] = after[chosen]
        event_there[chosen][mine] = True
        query_there[chosen][asks] = True
    return owners, loads
