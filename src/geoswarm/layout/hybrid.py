"""Space where it is cheaper, words where they are: PS2Stream's hybrid partitioning (§IV-B, Algorithm 1).

Phase 1 cuts the map until each part speaks alike: where what events say is unlike what subscriptions are entered
under (cosine below δ), terms will be divided (N_t), elsewhere whichever of space and terms makes less load (N_s).
Phase 2 divides the parts until there are enough for all executors, then the heaviest again and again, until the
executors' loads are within σ of each other or there are θ leaves.

Where this departs from the print, or fills it:

- Similarity takes the terms that subscriptions are entered under, not all their keywords: only those decide who is
  sent what.
- The print leaves δ, σ, θ and "≈ 0" open; the constants below say what was found.
- A node of N_s that was divided by terms is of N_t from then on: the tree has terms only below space.
- A partition without any leaf makes L_max / L_min infinite, so a leaf goes to an empty one as long as there is one.
- If θ is reached, the best deal seen on the way is taken, that with the least L_max.
- Of this tree, a kd-tree and a division of all terms, that with the least L_max is taken (`_uniform`).
- Where phase 1 finds anything to cut, phase 2 is also run on the whole map as one node of N_s, and the tree with the
  lower L_max is taken: a cosine knows nothing of how large rectangles are and what a copy costs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from geoswarm.jit import Floats, Ints, kernel
from geoswarm.layout.kd_cuts import kd_parts
from geoswarm.layout.kdt_tree import Cut, Node
from geoswarm.layout.load_model import COSTS, Costs
from geoswarm.layout.places import expect
from geoswarm.layout.text_sample import ANYTHING, TextSample
from geoswarm.layout.unit import Unit, tally
from geoswarm.space.grid import Grid
from geoswarm.space.plan import Plan

DELTA = 0.5
"""Below a half they hardly share words. Queries that ask as people speak have 1.0, Q2 of `workload/queries.py` 0.9."""
ALIKE = 0.02
"""Similarities that differ less are equal: what chance does to some thousand posts."""
FEW = 500
"""Events, or subscriptions, whose similarity is mostly chance: such a part is not cut further in phase 1."""
SIGMA = 1.2
"""The paper's σ: "a small constant value being larger than 1"."""
LEAVES_PER_EXECUTOR_MAX = 8
"""The paper's θ, per executor: balance comes from small leaves, and each costs copies."""


def hybrid(
    grid: Grid,
    executors: int,
    sample: TextSample,
    *,
    costs: Costs = COSTS,
    sigma: float = SIGMA,
    delta: float = DELTA,
    leaves_max: int | None = None,
) -> Plan:
    """Epoch 0."""
    expect(grid, executors, sample)
    tree = kdt_tree(executors, sample, costs=costs, sigma=sigma, delta=delta, leaves_max=leaves_max)
    return tree.to_plan(executors)


def kdt_tree(
    executors: int,
    sample: TextSample,
    *,
    costs: Costs = COSTS,
    sigma: float = SIGMA,
    delta: float = DELTA,
    leaves_max: int | None = None,
) -> Node:
    """Algorithm 1: the tree, each leaf with its executor."""
    limit = leaves_max or LEAVES_PER_EXECUTOR_MAX * executors
    whole = Unit.whole(sample)
    root, plain = (Node(whole, whole.load(costs)) for _ in range(2))
    nodes = _phase_1(root, delta, limit, costs)
    tree, worst = _phase_2(root, nodes, executors, costs, sigma, limit)
    found = [(worst, tree)]
    if any(node.by_text for node in nodes):
        found.append(_phase_2(plain, [plain], executors, costs, sigma, limit)[::-1])
    return min([*found, *_uniform(executors, whole, costs)], key=lambda pair: pair[0])[1]


def _uniform(executors: int, whole: Unit, costs: Costs) -> Iterator[tuple[float, Node]]:
    """Space alone, and words alone: a leaf for each executor, and L_max. Algorithm 1 makes the sum small, so its worst
    executor may be worse than theirs."""
    by_text = Node(whole, whole.load(costs))
    trees = [kd_parts(whole, executors, costs)]
    if by_text.divide(executors, costs):
        trees.append(by_text)
    for tree in trees:
        for executor, leaf in enumerate(tree.leaves()):
            leaf.executor = executor
        yield max(leaf.load for leaf in tree.leaves()), tree


def _phase_1(root: Node, delta: float, limit: int, costs: Costs) -> list[Node]:
    """Lines 1 to 12: N_t and N_s. An inner node has its cut and children."""
    undecided, decided = [root], []
    while undecided:
        node = undecided.pop(0)
        similarity = _similarity(node.unit)
        if similarity >= delta:
            decided.append(node)
            continue
        node.by_text = True
        few = min(len(node.unit.events), len(node.unit.queries)) < FEW
        cuts = [] if few or len(undecided) + len(decided) + 2 > limit else _medians(node.unit)
        halves = [(cut, [node.unit.within(box) for box in cut.halves(node.unit.box)]) for cut in cuts]
        ranked = sorted((min(map(_similarity, pair)), cut, pair) for cut, pair in halves) if halves else []
        if not ranked or abs(ranked[0][0] - similarity) < ALIKE:
            decided.append(node)
            continue
        _, node.cut, pair = ranked[0]
        node.by_text = False
        node.children = [Node(unit, unit.load(costs)) for unit in pair]
        undecided += node.children
    return decided


def _similarity(unit: Unit) -> float:
    """The cosine between how often each term is said and how often it is entered under.

    Of n sightings of a term, n·(n - 1) pairs stand in for the square: n² would count each with itself, so that two
    samples of one language seem the less alike the smaller they are."""
    sample = unit.sample
    inside = np.flatnonzero(
        (sample.rows >= unit.box.row0)
        & (sample.rows <= unit.box.row1)
        & (sample.columns >= unit.box.col0)
        & (sample.columns <= unit.box.col1)
    )
    said = tally(inside, sample.said.offsets, sample.said.terms, sample.terms)
    entered = tally(unit.queries, sample.postings.offsets, sample.postings.terms, sample.terms)
    said[ANYTHING] = entered[ANYTHING] = 0.0
    squares = float(said @ np.maximum(said - 1, 0)) * float(entered @ np.maximum(entered - 1, 0))
    return min(1.0, float(said @ entered) / math.sqrt(squares)) if squares > 0 else 0.0


def _medians(unit: Unit) -> list[Cut]:
    """Where a kd-tree would cut: at the middle event of each axis."""
    box, found = unit.box, []
    for axis, (side, first, last) in enumerate(
        ((unit.sample.rows, box.row0, box.row1), (unit.sample.columns, box.col0, box.col1))
    ):
        if last > first:
            found.append(Cut(axis, min(int(np.median(side[unit.events])), last - 1)))
    return found


def _partition(node: Node, parts: int, costs: Costs) -> bool:
    """PartitionNode: gives the node children, or says that it cannot."""
    if parts < 2:
        return False
    if node.by_text:
        return node.divide(parts, costs)
    grown = kd_parts(node.unit, parts, costs, or_terms=True)
    node.cut, node.children = grown.cut, grown.children
    return bool(node.children)


def _numbers_of_parts(nodes: list[Node], executors: int, costs: Costs) -> list[int]:
    """ComputeNumberPartitions: how many parts of each node make the least load in all.

    L[i, j] is the least for the first i nodes in j parts, C[i, k] that of node i in k parts."""
    count, most = len(nodes), executors - len(nodes) + 1
    if count == 1:
        return [executors]
    least = np.full((count + 1, executors + 1), np.inf)
    choice = np.zeros((count + 1, executors + 1), np.int64)
    least[0, 0] = 0.0
    for i, node in enumerate(nodes, start=1):
        totals = [np.inf, *(_total_in_parts(node, k, costs) for k in range(1, most + 1))]
        for j in range(i, executors + 1):
            for k in range(1, min(most, j - i + 1) + 1):
                total = least[i - 1, j - k] + totals[k]
                if total < least[i, j]:
                    least[i, j], choice[i, j] = total, k
    numbers, j = [], executors
    for i in range(count, 0, -1):
        numbers.append(int(choice[i, j]))
        j -= numbers[-1]
    return numbers[::-1]


def _total_in_parts(node: Node, parts: int, costs: Costs) -> float:
    trial = Node(node.unit, node.load, node.by_text)
    return trial.total if parts == 1 or _partition(trial, parts, costs) else node.load


@dataclass(frozen=True)
class _Deal:
    executors: Ints
    loads: Floats

    @property
    def imbalance(self) -> float:
        return float(self.loads.max() / max(self.loads.min(), 1e-9))


def _phase_2(
    root: Node, nodes: list[Node], executors: int, costs: Costs, sigma: float, limit: int
) -> tuple[Node, float]:
    """Lines 13 to 27: the tree, and L_max. Leaves that were split for a deal that is not taken are joined again."""
    if len(nodes) < executors:
        for node, parts in zip(nodes, _numbers_of_parts(nodes, executors, costs), strict=True):
            _partition(node, parts, costs)
    splits: list[Node] = []
    stuck: set[int] = set()
    best: tuple[float, int, _Deal] | None = None
    while True:
        leaves = list(root.leaves())
        deal = _merged(leaves, executors, costs)
        worst = float(deal.loads.max())
        if best is None or worst < best[0] or deal.imbalance <= sigma:
            best = (worst, len(splits), deal)
        open_leaves = [leaf for leaf in leaves if id(leaf) not in stuck]
        if deal.imbalance <= sigma or len(leaves) >= limit or not open_leaves:
            break
        heaviest = max(open_leaves, key=lambda leaf: leaf.load)
        if _partition(heaviest, 2, costs):
            splits.append(heaviest)
        else:
            stuck.add(id(heaviest))
    _, kept, deal = best
    for node in reversed(splits[kept:]):
        node.cut, node.children = None, []
    for leaf, executor in zip(root.leaves(), deal.executors.tolist(), strict=True):
        leaf.executor = executor
    return root, float(deal.loads.max())


def _merged(leaves: list[Node], executors: int, costs: Costs) -> _Deal:
    """MergeNodesIntoPartitions."""
    order = np.argsort([-leaf.load for leaf in leaves], kind="stable")
    sample = leaves[0].unit.sample
    events, queries = _chained([leaf.unit.events for leaf in leaves]), _chained([leaf.unit.queries for leaf in leaves])
    checks, sizes = np.array([leaf.unit.checks for leaf in leaves]), (sample.events, sample.queries)
    return _Deal(*_deal(order, *events, *queries, checks, sizes, executors, costs.coefficients(sample)))


def _chained(lists: list[Ints]) -> tuple[Ints, Ints]:
    """One behind the other, and where each begins."""
    return np.cumsum([0, *map(len, lists)]), np.concatenate(lists)


@kernel
def _deal(
    order: Ints,
    event_offsets: Ints,
    events: Ints,
    query_offsets: Ints,
    queries: Ints,
    checks: Floats,
    sizes: tuple[int, int],
    executors: int,
    coefficients: Floats,
) -> tuple[Ints, Floats]:
    """Heaviest first: to where the load grows least; if that makes L_max / L_min larger, to the least loaded."""
    event_there, query_there = np.zeros((executors, sizes[0]), np.bool_), np.zeros((executors, sizes[1]), np.bool_)
    n_events, n_queries, n_checks, loads = (
        np.zeros(executors),
        np.zeros(executors),
        np.zeros(executors),
        np.zeros(executors),
    )
    both, event, query, entry = coefficients
    after, owners, held = np.empty(executors), np.empty(len(order), np.int64), np.zeros(executors, np.int64)
    more_events, more_queries = np.empty(executors), np.empty(executors)
    for leaf in order:
        mine = events[event_offsets[leaf] : event_offsets[leaf + 1]]
        asks = queries[query_offsets[leaf] : query_offsets[leaf + 1]]
        for x in range(executors):
            more_events[x] = len(mine) - event_there[x][mine].sum()
            more_queries[x] = len(asks) - query_there[x][asks].sum()
            o, q = n_events[x] + more_events[x], n_queries[x] + more_queries[x]
            after[x] = both * o * q + event * o + query * q + entry * (n_checks[x] + checks[leaf])
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
        n_checks[chosen] += checks[leaf]
        loads[chosen] = after[chosen]
        event_there[chosen][mine] = True
        query_there[chosen][asks] = True
    return owners, loads
