"""Mixed Fig. 7: how unevenly plain hash loads executors, over their number and over the number of keys.

No planner is at work. In each of 50 intervals the frequencies lie on other keys; loads are sorted within an interval
and averaged over intervals by rank, so a line reads as the paper's: x is the share of executors with at most that
load.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.zipf import Zipf

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXECUTORS, KEYS = (5, 10, 20, 40), (5_000, 10_000, 100_000, 1_000_000)
EXECUTORS_USUAL = 15


class HashSizes(NamedTuple):
    keys_usual: int
    intervals: int
    executors: tuple[int, ...] = EXECUTORS
    keys: tuple[int, ...] = KEYS


SIZES = {Scale.SMALL: HashSizes(100_000, 20), Scale.FULL: HashSizes(1_000_000, 50)}


def measure(sizes: HashSizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    summary: dict[str, float] = {}
    points = [("executors", n, sizes.keys_usual, n) for n in sizes.executors]
    points += [("keys", k, k, EXECUTORS_USUAL) for k in sizes.keys]
    for panel, value, many, n in points:
        report(f"{panel} {value}")
        loads = load_profile(many, n, sizes.intervals, seed)
        rows += [
            {"panel": panel, "value": value, "percentile": 100.0 * (i + 1) / n, "load": load}
            for i, load in enumerate(loads)
        ]
        summary[f"max_vs_min_{panel}_{value}"] = float(loads[-1] / loads[0])
    return Result(rows, summary, {"intervals": sizes.intervals, "keys": sizes.keys_usual, "executors": EXECUTORS_USUAL})


def load_profile(keys: int, executors: int, intervals: int, seed: int) -> Floats:
    """Loads as shares of their average, lightest executor first, averaged over intervals."""
    owner = KeyPlan.first(range(executors)).route(np.arange(keys))
    workload, total = Zipf(keys=keys, seed=seed), np.zeros(executors)
    for interval in range(1, intervals + 1):
        loads = np.bincount(owner, workload.reshuffle(interval), executors)
        total += np.sort(loads / loads.mean())
    return total / intervals


def plot(result: Result) -> "Figure":
    drawn, panels = figure(2, width_in=5.6)
    for axes, panel in zip(panels, ("executors", "keys"), strict=True):
        for value in dict.fromkeys(row["value"] for row in result.rows if row["panel"] == panel):
            here = [row for row in result.rows if (row["panel"], row["value"]) == (panel, value)]
            axes.plot([r["percentile"] for r in here], [r["load"] for r in here], label=f"{value:,} {panel}")
        axes.set(xlabel="executors, lightest first (%)", ylabel="load / average")
        axes.legend()
    panels[0].set_title("Plain hash is uneven (Mixed Fig. 7)")
    return drawn
