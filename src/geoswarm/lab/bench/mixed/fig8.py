"""Mixed Fig. 8: planning time and migration cost of Mixed and MinTable over the number of executors.

What a step is, and what is measured of it, is in `mixed_sweep.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.mixed.sweep import Setting, config_of, migration_ratio, sweep, two_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXECUTORS, WINDOWS = (5, 10, 15, 20, 25, 30, 35, 40), (1, 5)
KEYS, INTERVALS = {Scale.SMALL: 100_000, Scale.FULL: 1_000_000}, {Scale.SMALL: 10, Scale.FULL: 30}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(KEYS[scale], INTERVALS[scale], seed, report)


def measure(keys: int, intervals: int, seed: int, report: Progress) -> Result:
    usual = Setting(keys=keys)
    points = [
        ({"executors": n, "window": w}, Setting(keys=keys, executors=n).limited(window=w))
        for w in WINDOWS
        for n in EXECUTORS
    ]
    rows = sweep(points, ("mixed", "min-table"), intervals, seed, report)
    summary = {f"migration_vs_mintable_w{w}": migration_ratio([r for r in rows if r["window"] == w]) for w in WINDOWS}
    summary["skew_max"] = max(row["skew"] for row in rows if row["planner"] == "mixed")
    return Result(rows, summary, config_of(usual, intervals))


def plot(result: Result) -> "Figure":
    return two_panels(result, "executors", "executors", "Over the executors (Mixed Fig. 8)")
