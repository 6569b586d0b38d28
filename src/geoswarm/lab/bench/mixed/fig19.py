"""Mixed Fig. 19: migration cost of Mixed and MinTable over the window that keeps state.

What a step is, and what is measured of it, is in `mixed_sweep.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.sweep import Setting, config_of, lines, migration_ratio, sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WINDOWS = (1, 5, 10, 15, 20)
KEYS, INTERVALS = {Scale.SMALL: 100_000, Scale.FULL: 1_000_000}, {Scale.SMALL: 25, Scale.FULL: 50}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(KEYS[scale], INTERVALS[scale], seed, report)


def measure(keys: int, intervals: int, seed: int, report: Progress) -> Result:
    usual = Setting(keys=keys)
    points = [({"window": w}, usual.limited(window=w)) for w in WINDOWS]
    rows = sweep(points, ("mixed", "min-table"), intervals, seed, report)
    mixed = [row["migration_pct"] for row in rows if row["planner"] == "mixed"]
    summary = {"migration_vs_mintable": migration_ratio(rows), "migration_w20_vs_w1": mixed[-1] / mixed[0]}
    return Result(rows, summary, config_of(usual, intervals))


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    lines(axes, result.rows, "window", "migration_pct", None)
    axes.set(title="Over the window (Mixed Fig. 19)", xlabel="window (intervals)", ylabel="state migrated (%)")
    axes.set_ylim(bottom=0)
    axes.legend()
    return drawn
