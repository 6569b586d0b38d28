"""One partition of the whole map, whose events are dealt out among all executors. SWARM §6 (`replicated`)."""

from collections.abc import Sequence

from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan


def dealt(grid: Grid, executors: int, turns: Sequence[int] = ()) -> Plan:
    """Each executor has one turn, unless `turns` are given."""
    first, *others = turns or range(executors)
    whole = Partition(0, 0, 0, grid.rows - 1, grid.columns - 1, executor=first, others=tuple(others))
    return Plan(epoch=0, grid=grid, executors=executors, partitions=(whole,), next_partition_id=1)


def is_dealt(plan: Plan) -> bool:
    """Whether several executors share the whole map; some may have no turn, as when they have just come."""
    return len(plan.partitions) == 1 and len(plan.partitions[0].owners) > 1
