"""Maps of one row for tables of loads: what each cell holds goes in, what each executor holds comes out."""

from collections.abc import Mapping, Sequence

import numpy as np

from geoswarm.control.strategy import RoundReport
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.flow.observe import LoadReport

Loads = Sequence[Sequence[Sequence[int]]]
"""By executor, by partition, by cell."""


def line(loads: Loads) -> tuple[Plan, dict[int, TrioStat]]:
    """One query, of the last round, covers the map, and all points are older: a load is N·1·1, and adds up."""
    flat = [(executor, cells) for executor, parts in enumerate(loads) for cells in parts]
    columns = sum(len(cells) for _, cells in flat)
    partitions, stats, start = [], {}, 0
    for i, (executor, cells) in enumerate(flat):
        partition = Partition(i, 0, start, 0, start + len(cells) - 1, executor)
        stat = TrioStat.empty(partition)
        points = np.repeat(np.arange(start, start + len(cells)), np.array(cells) * 2)  # half of them fade
        stat.add_points(np.zeros_like(points), points)
        stat.close_round()
        stat.add_queries(CellBox(*np.array([[0], [0], [0], [columns - 1]])))
        stat.close_round()
        partitions.append(partition)
        stats[i] = stat
        start += len(cells)
    grid = Grid(0.0, 0.0, 1.0, 1.0, columns=columns, rows=1)
    return Plan(0, grid, len(loads), tuple(partitions), len(partitions)), stats


def report_of(stats: Mapping[int, TrioStat], number: int = 1) -> RoundReport:
    return RoundReport(number, 15.0 * number, LoadReport(), stats)
