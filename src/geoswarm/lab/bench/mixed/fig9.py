"""Mixed Fig. 9: planning time and migration cost of Mixed and MinTable over the tolerated imbalance.

What a step is, and what is measured of it, is in `mixed_sweep.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.mixed.sweep import Setting, config_of, migration_ratio, sweep, two_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THETAS, WINDOWS = (0.02, 0.05, 0.08, 0.1, 0.2, 0.3), (1, 5)
KEYS, INTERVALS = {Scale.SMALL: 100_000, Scale.FULL: 1_000_000}, {Scale.SMALL: 10, Scale.FULL: 30}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(KEYS[scale], INTERVALS[scale], seed, report)


def measure(keys: int, intervals: int, seed: int, report: Progress) -> Result:
    usual = Setting(keys=keys)
    points = [({"theta_max": t, "window": w}, usual.limited(theta_max=t, window=w)) for w in WINDOWS for t in THETAS]
    rows = sweep(points, ("mixed", "min-table"), intervals, seed, report)
    strict = [row for row in rows if row["planner"] == "mixed" and row["theta_max"] == THETAS[0]]
    summary = {f"migration_vs_mintable_w{w}": migration_ratio([r for r in rows if r["window"] == w]) for w in WINDOWS}
    summary["plan_s_strict"] = max(row["plan_ms_max"] for row in strict) / 1e3
    return Result(rows, summary, config_of(usual, intervals))


def plot(result: Result) -> "Figure":
    return two_panels(result, "theta_max", "θ_max", "Over the tolerance (Mixed Fig. 9)")
