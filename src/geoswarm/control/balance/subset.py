"""Choose the best subset of whole partitions to move from the costliest executor to the cheapest.

`split.py` is tried when this finds nothing. SWARM §4.3.2, Algorithm 3 (greedy subset sum, largest first; at least half
as good as the best subset).

The paper also takes partitions that cost nothing, so it may "find" a subset that relieves no executor, and the split
search never starts. Here such partitions stay where they are.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Subset(NamedTuple):
    partitions: tuple[int, ...]
    """Ids, largest cost first; empty if no partition with a cost fits."""
    cost: float
    cost_max: float
    """C_max: moving more would overload the cheapest."""


def find_subset(costs: Mapping[int, float], cost_high: float, cost_low: float) -> Subset:
    """`costs` are those of the costliest executor's partitions; `cost_high` and `cost_low` of the two executors."""
    room = (cost_high - cost_low) / 2
    chosen: list[int] = []
    moved = 0.0
    for partition, cost in largest_first(costs):
        if cost > 0 and moved + cost <= room:
            moved += cost
            chosen.append(partition)
            if moved == room:
                break
    return Subset(tuple(chosen), moved, room)


def largest_first(costs: Mapping[int, float]) -> list[tuple[int, float]]:
    """Ties go to the older partition."""
    return sorted(costs.items(), key=lambda item: (-item[1], item[0]))
