"""PS2Stream's hybrid partitioning: by space where that is cheaper, elsewhere by words (§IV-B, Algorithm 1).

Phase 1 cuts the map until the words in each part are uniform. Where the terms of events differ from those that
subscriptions are indexed under (cosine below δ), terms will be divided (N_t), elsewhere space or terms, whichever makes
less load (N_s). Phase 2 divides the parts until there are enough for all executors, then the heaviest part repeatedly,
until the executors' loads are within σ of each other or there are θ leaves.

Where this departs from the paper, or completes it:

- Similarity uses the terms that subscriptions are indexed under, not all their keywords: only those decide the routing.
- The paper leaves δ, σ, θ and "≈ 0" open; the constants below give the values found by measuring.
- A node of N_s that was divided by terms belongs to N_t from then on: the tree has terms only below space.
- When σ or θ is reached, the best deal so far is taken, that with the least L_max.
- Phase 1 makes no more parts than there are executors, whatever θ is.
- Algorithm 1 makes the sum of loads small, so its worst executor may be worse than that of plain space or plain words;
  and a cosine does not depend on the size of rectangles or the cost of a copy. So four trees are candidates: the
  paper's, the same without phase 1, a kd-tree, and a division of all terms. A tree of many leaves fits its own sample
  better than later events. So each candidate is drawn from half of the events and judged by the other half, both ways
  round, and the one with the best worst executor is drawn again from all events.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from geoswarm.control.layout.kd_cuts import kd_parts
from geoswarm.control.layout.kdt_tree import Node, SpaceCut
from geoswarm.control.layout.load_model import COSTS, Costs, worst_us
from geoswarm.control.layout.node_merging import Deal, PairChecks, merge_nodes
from geoswarm.control.layout.places import expect
from geoswarm.control.layout.text_sample import ANYTHING, TextSample
from geoswarm.control.layout.unit import Unit, count_terms
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan

DELTA = 0.5
"""δ: below a half, events and queries hardly share words. Queries with the frequencies of events have 1.0, Q2 of
`lab/workload/queries.py` 0.9."""
ALIKE = 0.02
"""Similarities that differ less are equal: chance changes those of some thousand posts by as much."""
FEW = 500
"""With fewer events or subscriptions, similarity is mostly chance, and phase 1 does not cut a part further."""
SIGMA = 1.05
"""The paper's σ: "a small constant value being larger than 1". Imbalance costs throughput: 1.2 lost up to 7 %."""
LEAVES_PER_EXECUTOR_MAX = 16
"""The paper's θ, per executor: small leaves make balance possible, and each leaf costs copies."""
JUDGED_EVENTS_MIN = 4000
"""With fewer events, half of them is too small a test: then candidates are judged by all."""


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
    """A plan of epoch 0, from the best of four trees."""
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
    """The tree of Algorithm 1, or a better one, each leaf with its executor."""
    limit = leaves_max or LEAVES_PER_EXECUTOR_MAX * executors
    kinds: list[_Kind] = [
        partial(_algorithm_1, executors=executors, sigma=sigma, delta=delta, limit=limit),
        partial(_algorithm_1, executors=executors, sigma=sigma, delta=None, limit=limit),
        partial(_space, executors=executors),
        partial(_words, executors=executors),
    ]
    if sample.events >= JUDGED_EVENTS_MIN:
        first, second = (sample.of_events(np.arange(n, sample.events, 2)) for n in range(2))
        cheaper = replace(costs, c3_insertion=costs.c3_insertion / 2, c4_deletion=costs.c4_deletion / 2)
        prices = [
            sum(
                _price(kind(Unit.whole(a), cheaper), executors, b, cheaper)
                for a, b in ((first, second), (second, first))
            )
            for kind in kinds
        ]
        kinds = [kinds[int(np.argmin(prices))]]
    trees = [tree for tree in (kind(Unit.whole(sample), costs) for kind in kinds) if tree is not None]
    if not trees:  # enough terms for half of the events but not for all: never observed
        return _space(Unit.whole(sample), costs, executors)
    return min(trees, key=lambda tree: _price(tree, executors, sample, costs)) if len(trees) > 1 else trees[0]


_Kind = Callable[[Unit, Costs], Node | None]


def _price(tree: Node | None, executors: int, sample: TextSample, costs: Costs) -> float:
    return np.inf if tree is None else worst_us(tree.to_plan(executors), sample, costs)


def _space(whole: Unit, costs: Costs, executors: int) -> Node:
    return _one_each(kd_parts(whole, executors, costs))


def _words(whole: Unit, costs: Costs, executors: int) -> Node | None:
    node = Node(whole, whole.load(costs))
    return _one_each(node) if node.divide(executors, costs) else None


def _one_each(tree: Node) -> Node:
    for executor, leaf in enumerate(tree.leaves()):
        leaf.executor = executor
    return tree


def _algorithm_1(
    whole: Unit, costs: Costs, executors: int, sigma: float, delta: float | None, limit: int
) -> Node | None:
    """Without δ, the whole map is one node of N_s: phase 2 alone. None if phase 1 leads to the same tree."""
    root = Node(whole, whole.load(costs))
    nodes = [root] if delta is None else _phase_1(root, delta, executors, costs)
    if delta is not None and not any(node.by_text for node in nodes):
        return None
    return _phase_2(root, nodes, executors, costs, sigma, limit)


def _phase_1(root: Node, delta: float, limit: int, costs: Costs) -> list[Node]:
    """Lines 1 to 12: the nodes of N_t and N_s. Inner nodes get their cut and children."""
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
    """The cosine between the frequencies of terms in events and in the index of subscriptions.

    For n occurrences of a term, n·(n - 1) pairs replace the square: n² would count each with itself, so that two
    samples of one language would seem less similar the smaller they are."""
    sample = unit.sample
    inside = np.flatnonzero(
        (sample.rows >= unit.box.row0)
        & (sample.rows <= unit.box.row1)
        & (sample.columns >= unit.box.col0)
        & (sample.columns <= unit.box.col1)
    )
    said = count_terms(inside, sample.said.offsets, sample.said.terms, sample.terms)
    indexed = count_terms(unit.queries, sample.postings.offsets, sample.postings.terms, sample.terms)
    said[ANYTHING] = indexed[ANYTHING] = 0.0
    squares = float(said @ np.maximum(said - 1, 0)) * float(indexed @ np.maximum(indexed - 1, 0))
    return min(1.0, float(said @ indexed) / math.sqrt(squares)) if squares > 0 else 0.0


def _medians(unit: Unit) -> list[SpaceCut]:
    """The cuts of a kd-tree: at the median event of each axis."""
    box, found = unit.box, []
    for axis, (side, first, last) in enumerate(
        ((unit.sample.rows, box.row0, box.row1), (unit.sample.columns, box.col0, box.col1))
    ):
        if last > first:
            found.append(SpaceCut(axis, min(int(np.median(side[unit.events])), last - 1)))
    return found


def _partition(node: Node, parts: int, costs: Costs) -> bool:
    """PartitionNode: gives the node children; False if that is not possible."""
    if parts < 2:
        return False
    if node.by_text:
        return node.divide(parts, costs)
    grown = kd_parts(node.unit, parts, costs, or_terms=True)
    node.cut, node.children = grown.cut, grown.children
    return bool(node.children)


def _numbers_of_parts(nodes: list[Node], executors: int, costs: Costs) -> list[int]:
    """ComputeNumberPartitions: the number of parts of each node that makes the least load in all.

    L[i, j] is the least load of the first i nodes in j parts, C[i, k] that of node i in k parts."""
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


def _phase_2(root: Node, nodes: list[Node], executors: int, costs: Costs, sigma: float, limit: int) -> Node:
    """Lines 13 to 27. Leaves that were split for a deal that is not used are joined again."""
    if len(nodes) < executors:
        for node, parts in zip(nodes, _numbers_of_parts(nodes, executors, costs), strict=True):
            _partition(node, parts, costs)
    splits: list[Node] = []
    known: PairChecks = {}
    stuck: set[int] = set()
    best: tuple[float, int, Deal] | None = None
    while True:
        leaves = list(root.leaves())
        deal = merge_nodes(leaves, executors, costs, known)
        worst = float(deal.loads.max())
        if best is None or worst < best[0]:
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
    return root
