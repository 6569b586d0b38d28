"""Thesis Fig. 6.3: numbers stored for statistics, over 1 to a million partitions of 1000 x 1000 cells.

TrioStat's best case is squares, its worst strips (`triostat_size.py`). The thesis: TrioStat stores less than AQWA until
partitions are a few cells each. `breakeven_partitions_best` and `_worst` say from where on it stores more.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geoswarm.core.stats.aqwa import STORED_PER_CELL
from geoswarm.core.stats.triostat import LINES
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.triostat.size import expected, storage

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Sizes:
    side: int = 1000
    counts: tuple[int, ...] = (1, 4, 25, 100, 400, 1000, 2500, 10_000, 40_000, 250_000, 1_000_000)
    """Of partitions; squares of divisors of the side, and the side itself."""
    made_max: int = 10_000
    """More partitions are computed, not made."""
    claim: int = 100


SIZES = {Scale.SMALL: Sizes(), Scale.FULL: Sizes(made_max=1_000_000)}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(SIZES[scale], seed, report)


def measure(sizes: Sizes, seed: int, report: Progress) -> Result:
    side = sizes.side
    rows: list[dict[str, Any]] = []
    for count in sizes.counts:
        report(f"{count:,} partitions")
        rows.append({"partitions": count, **storage(side, count, count <= sizes.made_max)})
    claim = next(r for r in rows if r["partitions"] == sizes.claim)
    best, worst = (expected(claim[case], sizes.claim).written_bytes for case in ("triostat_best", "triostat_worst"))
    rival = expected(claim["aqwa"]).written_bytes
    summary = {
        "bytes_vs_aqwa": best / rival,
        "bytes_vs_aqwa_worst": worst / rival,
        # where LINES * 2 * side * sqrt(k), and LINES * (side² + k), reach STORED_PER_CELL * side²
        "breakeven_partitions_best": (STORED_PER_CELL / LINES / 2 * side) ** 2,
        "breakeven_partitions_worst": (STORED_PER_CELL / LINES - 1) * side**2,
    }
    return Result(rows, summary, {"side": side, "claim_partitions": sizes.claim})


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    counts = [r["partitions"] for r in result.rows]
    labels = {"aqwa": "AQWA", "triostat_worst": "TrioStat, worst case", "triostat_best": "TrioStat, best case"}
    for key, label in labels.items():
        axes.plot(counts, [r[key] / 1e6 for r in result.rows], label=label)
    axes.set(
        title="Stored numbers over partitions (thesis Fig. 6.3)",
        xlabel=f"partitions of {result.config['side']} × {result.config['side']} cells",
        ylabel="numbers (millions)",
        xscale="log",
        ylim=(0, None),
    )
    axes.legend()
    return drawn
