"""Mixed Fig. 10: planning time and migration cost of Mixed and MinTable over the number of keys.

The claims at a million keys are made here. What a step is, and what is measured of it, is in `mixed_sweep.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.mixed.sweep import Setting, config_of, migration_ratio, sweep, two_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS, WINDOWS = (5_000, 10_000, 100_000, 1_000_000), (1, 5)
INTERVALS = {Scale.SMALL: 12, Scale.FULL: 50}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(KEYS, INTERVALS[scale], seed, report)


def measure(keys: tuple[int, ...], intervals: int, seed: int, report: Progress) -> Result:
    points = [({"keys": k, "window": w}, Setting(keys=k).limited(window=w)) for w in WINDOWS for k in keys]
    rows = sweep(points, ("mixed", "min-table"), intervals, seed, report)
    most = [row for row in rows if row["keys"] == keys[-1] and row["window"] == WINDOWS[-1]]
    mixed = next(row for row in most if row["planner"] == "mixed")
    summary = {
        "plan_s_k1e6": mixed["plan_ms"] / 1e3,
        "plan_s_k1e6_max": mixed["plan_ms_max"] / 1e3,
        "migration_vs_mintable": migration_ratio(most),
    }
    return Result(rows, summary, config_of(Setting(), intervals))


def plot(result: Result) -> "Figure":
    return two_panels(result, "keys", "keys", "Over the keys (Mixed Fig. 10)", log_x=True)
