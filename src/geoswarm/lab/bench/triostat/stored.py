"""Thesis Figures 6.3 and 6.4: numbers stored for statistics by TrioStat and AQWA, over partitions and over grids.

The figures differ in what is varied (`FIGURES`). TrioStat's best case is squares, its worst strips (`size.py`). The
thesis: TrioStat stores less than AQWA until partitions are a few cells each, since it grows with the side of the grid
and AQWA with its square; its best and worst case are close while the side is below the number of partitions.

`breakeven_partitions_best` and `_worst` say from how many partitions on it stores more than AQWA.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.core.stats.aqwa import STORED_PER_CELL
from geoswarm.core.stats.triostat import LINES
from geoswarm.lab.bench.kit.catalogue import FigureRow
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.triostat.size import expected_size, stored_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class StoredSizes(NamedTuple):
    sides: tuple[int, ...]
    """Cells per side of the grid."""
    partitions: tuple[int, ...]
    """Squares of divisors of the side, and the side itself."""
    claim: int
    """The value of what is varied that the claims are about."""
    made_max: int
    """Statistics of larger values are computed, not made: at 6400 a side AQWA's tables take 3.3 GB."""


COUNTS = (1, 4, 25, 100, 400, 1000, 2500, 10_000, 40_000, 250_000, 1_000_000)
PARTITION_SIZES = {
    Scale.SMALL: StoredSizes((1000,), COUNTS, 100, 10_000),
    Scale.FULL: StoredSizes((1000,), COUNTS, 100, 1_000_000),
}
SIDES = (100, 200, 400, 800, 1000, 1600, 3200, 6400)
GRID_SIZES = {
    Scale.SMALL: StoredSizes(SIDES, (1000,), 1000, 1000),
    Scale.FULL: StoredSizes(SIDES, (1000,), 1000, 3200),
}
RowDicts = Sequence[dict[str, Any]]


def _breakeven(rows: RowDicts) -> dict[str, float]:
    """Where LINES * 2 * side * sqrt(k), and LINES * (side² + k), reach STORED_PER_CELL * side²."""
    side = rows[0]["side"]
    return {
        "breakeven_partitions_best": (STORED_PER_CELL / LINES / 2 * side) ** 2,
        "breakeven_partitions_worst": (STORED_PER_CELL / LINES - 1) * side**2,
    }


def _worst_share(rows: RowDicts) -> dict[str, float]:
    return {"numbers_vs_aqwa_max": max(row["triostat_worst"] / row["aqwa"] for row in rows)}


@dataclass(frozen=True)
class StoredFigure(FigureRow):
    varied: str
    """The column of the rows."""
    label: str
    title: str
    summarise: Callable[[RowDicts], dict[str, float]]
    sizes: Mapping[Scale, StoredSizes]


FIGURES = {
    "triostat-fig6.3": StoredFigure(
        "Thesis Fig. 6.3",
        "numbers stored for statistics, over 1 to a million partitions of 1000 x 1000 cells",
        "partitions",
        "partitions of 1000 × 1000 cells",
        "Stored numbers over partitions",
        _breakeven,
        PARTITION_SIZES,
    ),
    "triostat-fig6.4": StoredFigure(
        "Thesis Fig. 6.4",
        "numbers stored for statistics, over grids of 100 to 6400 cells a side, with 1000 partitions",
        "side",
        "cells per side of the grid, in 1000 partitions",
        "Stored numbers over grids",
        _worst_share,
        GRID_SIZES,
    ),
}


def measure(shown: StoredFigure, sizes: StoredSizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    for side in sizes.sides:
        for count in sizes.partitions:
            report(f"{count:,} partitions of {side} x {side} cells")
            point = {"side": side, "partitions": count}
            rows.append({**point, **stored_numbers(side, count, point[shown.varied] <= sizes.made_max)})
    claim = next(row for row in rows if row[shown.varied] == sizes.claim)
    best, worst = (
        expected_size(claim[case], claim["partitions"]).written_bytes for case in ("triostat_best", "triostat_worst")
    )
    rival = expected_size(claim["aqwa"]).written_bytes
    summary = {"bytes_vs_aqwa": best / rival, "bytes_vs_aqwa_worst": worst / rival, **shown.summarise(rows)}
    return Result(rows, summary, {"claim": sizes.claim, "varied": shown.varied})


def plot(shown: StoredFigure, result: Result) -> "Figure":
    drawn, (axes,) = figure()
    at = [row[shown.varied] for row in result.rows]
    labels = {"aqwa": "AQWA", "triostat_worst": "TrioStat, worst case", "triostat_best": "TrioStat, best case"}
    for key, label in labels.items():
        axes.plot(at, [row[key] for row in result.rows], label=label)
    axes.set(title=f"{shown.title} ({shown.where})", xlabel=shown.label, ylabel="numbers", xscale="log")
    if shown.varied == "side":
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend()
    return drawn
