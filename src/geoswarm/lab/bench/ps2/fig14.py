"""PS2Stream Fig. 14: how much migrates at once, and how long it takes, at 5 M and 10 M queries, for GR, SI and RA.

What is measured, and how, is in `ps2_migration.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.ps2.migration import COST, REST, SIZES, bars, config_of, contest, ratios
from geoswarm.lab.bench.ps2.worlds import Sizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES = (5_000_000, 10_000_000)


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(SIZES[scale], seed, report)


def measure(sizes: Sizes, seed: int, report: Progress, queries: tuple[int, ...] = QUERIES) -> Result:
    rows = contest(queries, REST, sizes, seed, report)
    summary = ratios(rows, "same_cells_mb", "bytes") | ratios(rows, "migrated_mb", "bytes", "_in_runs")
    summary |= ratios(rows, "migration_s", "time", "_in_runs")
    return Result(rows, summary, config_of(sizes))


def plot(result: Result) -> "Figure":
    return bars(result.rows, COST, "Migration (PS2Stream Fig. 14)")
