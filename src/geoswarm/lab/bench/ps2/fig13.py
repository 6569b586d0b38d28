"""PS2Stream Fig. 13: the time to choose cells to migrate at 5 M and 10 M queries, for GR, SI and RA.

DP is tried, too. In the print it ran out of memory; here it is refused where its table is larger than `DP_BYTES_MAX`, a
bit per entry, and `dp_refused` counts that. What is measured is in `ps2_migration.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.ps2.migration import SIZES, TIME, bars, choices, config_of, ratios
from geoswarm.lab.bench.ps2.worlds import Sizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES = (5_000_000, 10_000_000)


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(SIZES[scale], seed, report)


def measure(sizes: Sizes, seed: int, report: Progress, queries: tuple[int, ...] = QUERIES) -> Result:
    rows = choices(queries, sizes, seed, report)
    dearest = max(row["choose_ms"] for row in rows if row["way"] == "gr")
    summary = ratios(rows, "same_cells_mb", "bytes") | {"gr_choose_ms": dearest}
    summary["dp_refused"] = float(sum(row["choose_ms"] is None for row in rows if row["way"] == "dp"))
    return Result(rows, summary, config_of(sizes))


def plot(result: Result) -> "Figure":
    return bars(result.rows, TIME, "Choosing cells (PS2Stream Fig. 13)", log=True)
