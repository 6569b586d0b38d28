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
- When σ or θ is reached, the best deal seen on the way is taken, that with the least L_max.
- Phase 1 makes no more parts than there are executors, whatever θ is.
- Algorithm 1 makes the sum of loads small, so its worst executor may be worse than that of plain space or plain words;
  and a cosine knows nothing of how large rectangles are and what a copy costs. So four trees are candidates: that of
  the print, the same without phase 1, a kd-tree, and a division of all terms. A tree of many leaves fits the sample it
  was drawn from better than what comes after it. So each candidate is drawn from half of the events and judged by the
  other half, both ways round, and the one whose worst executor does best is drawn again from all.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from geoswarm.control.layout.kd_cuts import kd_parts
from geoswarm.control.layout.kdt_tree import Node, SpaceCut
from geoswarm.control.layout.load_model import COSTS, Costs, worst_us
from geoswarm.control.layout.node_merging import Deal, merge_nodes
from geoswarm.control.layout.places import expect
from geoswarm.control.layout.text_sample import ANYTHING, TextSample
from geoswarm.control.layout.unit import Unit, count_terms
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan

DELTA = 0.5
"""Below a half they hardly share words. Queries that ask as people speak have 1.0, Q2 of `lab/workload/queries.py`
0.9."""
ALIKE = 0.02
"""Similarities that differ less are equal: what chance does to some thousand posts."""
FEW = 500
"""Events, or subscriptions, whose similarity is mostly chance: such a part is not cut further in phase 1."""
SIGMA = 1.05
"""The paper's σ: "a small constant value being larger than 1". What is out of balance is lost; 1.2 cost up to 7 %."""
LEAVES_PER_EXECUTOR_MAX = 16
"""The paper's θ, per executor: balance comes from small leaves, and each costs copies."""
JUDGED_EVENTS_MIN = 4000
"""With fewer, half of them says less than the whole says of itself: then candidates are judged by all."""


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
    if not trees:  # terms enough for a half of the events, and not for the whole: never seen
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
    """Without δ, the whole map is one node of N_s: phase 2 alone. None if phase 1 comes to the same."""
    root = Node(whole, whole.load(costs))
    nodes = [root] if delta is None else _phase_1(root, delta, executors, costs)
    if delta is not None and not any(node.by_text for node in nodes):
        return None
    return _phase_2(root, nodes, executors, costs, sigma, limit)


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
    said = count_terms(inside, sample.said.offsets, sample.said.terms, sample.terms)
    entered = count_terms(unit.queries, sample.postings.offsets, sample.postings.terms, sample.terms)
    said[ANYTHING] = entered[ANYTHING] = 0.0
    squares = float(said @ np.maximum(said - 1, 0)) * float(entered @ np.maximum(entered - 1, 0))
    return min(1.0, float(said @ entered) / math.sqrt(squares)) if squares > 0 else 0.0


def _medians(unit: Unit) -> list[SpaceCut]:
    """Where a kd-tree would cut: at the middle event of each axis."""
    box, found = unit.box, []
    for axis, (side, first, last) in enumerate(
        ((unit.sample.rows, box.row0, box.row1), (unit.sample.columns, box.col0, box.col1))
    ):
        if last > first:
            found.append(SpaceCut(axis, min(int(np.median(side[unit.events])), last - 1)))
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


def _phase_2(root: Node, nodes: list[Node], executors: int, costs: Costs, sigma: float, limit: int) -> Node:
    """Lines 13 to 27. Leaves that were split for a deal that is not taken are joined again."""
    if len(nodes) < executors:
        for node, parts in zip(nodes, _numbers_of_parts(nodes, executors, costs), strict=True):
            _partition(node, parts, costs)
    splits: list[Node] = []
    stuck: set[int] = set()
    best: tuple[float, int, Deal] | None = None
    while True:
        leaves = list(root.leaves())
        deal = merge_nodes(leaves, executors, costs)
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
