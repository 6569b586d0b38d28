"""PS2Stream Fig. 12: choosing cells to migrate by DP, GR, SI and RA at 1 M queries: time, bytes, delayed tuples.

What is measured, and how, is in `ps2_migration.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.control.balance.migration import WAYS
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.ps2.migration import COST, LATENCY, SIZES, TIME, bars, config_of, contest, ratios
from geoswarm.lab.bench.ps2.worlds import Sizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES = 1_000_000


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(SIZES[scale], seed, report)


def measure(sizes: Sizes, seed: int, report: Progress, queries: int = QUERIES) -> Result:
    rows = contest([queries], list(WAYS), sizes, seed, report)
    summary = ratios(rows, "same_cells_mb", "bytes") | ratios(rows, "migrated_mb", "bytes", "_in_runs")
    summary |= ratios(rows, "choose_ms", "time")
    return Result(rows, summary, config_of(sizes))


def plot(result: Result) -> "Figure":
    return bars(result.rows, TIME | COST | LATENCY, "1 M queries (PS2Stream Fig. 12)")
