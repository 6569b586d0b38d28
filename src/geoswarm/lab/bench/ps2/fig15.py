"""PS2Stream Fig. 15: tuples below 100 ms, up to 1 s and above while cells migrate, at 5 M and 10 M queries.

What is measured, and how, is in `ps2_migration.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.ps2.migration import LATENCY, REST, SIZES, bars, config_of, contest
from geoswarm.lab.bench.ps2.worlds import Sizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES = (5_000_000, 10_000_000)


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(SIZES[scale], seed, report)


def measure(sizes: Sizes, seed: int, report: Progress, queries: tuple[int, ...] = QUERIES) -> Result:
    rows = contest(queries, REST, sizes, seed, report)
    summary = {f"delayed_pct_{row['way']}_{row['queries']}": 100.0 - row["below_100ms_pct"] for row in rows}
    return Result(rows, summary, config_of(sizes))


def plot(result: Result) -> "Figure":
    return bars(result.rows, LATENCY, "Latency while cells migrate (PS2Stream Fig. 15)")
