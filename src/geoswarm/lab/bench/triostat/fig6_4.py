"""Thesis Fig. 6.4: numbers stored for statistics, over grids of 100 to 6400 cells a side, with 1000 partitions.

TrioStat grows with the side, AQWA with its square. The thesis: TrioStat stores less in all cases, and its best and
worst case are close while the side is below the number of partitions.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.triostat.size import expected, storage

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Sizes:
    sides: tuple[int, ...] = (100, 200, 400, 800, 1000, 1600, 3200, 6400)
    partitions: int = 1000
    made_side_max: int = 1000
    """AQWA's tables of larger grids are computed, not made: at 6400 a side they take 3.3 GB."""
    claim: int = 1000


SIZES = {Scale.SMALL: Sizes(), Scale.FULL: Sizes(made_side_max=3200)}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(SIZES[scale], seed, report)


def measure(sizes: Sizes, seed: int, report: Progress) -> Result:
    count = sizes.partitions
    rows: list[dict[str, Any]] = []
    for side in sizes.sides:
        report(f"{side} x {side} cells")
        rows.append({"side": side, **storage(side, count, side <= sizes.made_side_max)})
    claim = next(r for r in rows if r["side"] == sizes.claim)
    best, worst = (expected(claim[case], count).written_bytes for case in ("triostat_best", "triostat_worst"))
    rival = expected(claim["aqwa"]).written_bytes
    summary = {
        "bytes_vs_aqwa": best / rival,
        "bytes_vs_aqwa_worst": worst / rival,
        "numbers_vs_aqwa_max": max(r["triostat_worst"] / r["aqwa"] for r in rows),
    }
    return Result(rows, summary, {"partitions": count, "claim_side": sizes.claim})


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    sides = [r["side"] for r in result.rows]
    labels = {"aqwa": "AQWA", "triostat_worst": "TrioStat, worst case", "triostat_best": "TrioStat, best case"}
    for key, label in labels.items():
        axes.plot(sides, [r[key] for r in result.rows], label=label)
    axes.set(
        title="Stored numbers over grids (thesis Fig. 6.4)",
        xlabel=f"cells per side of the grid, in {result.config['partitions']} partitions",
        ylabel="numbers",
        xscale="log",
        yscale="log",
    )
    axes.set_xticks(sides, [str(side) for side in sides], rotation=45)
    axes.minorticks_off()
    axes.legend()
    return drawn
