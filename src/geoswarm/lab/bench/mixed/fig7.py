"""Mixed Fig. 7: how unevenly plain hash loads executors, over their number and over the number of keys.

No planner is at work. In each of 50 intervals the frequencies lie on other keys; loads are sorted within an interval
and averaged over intervals by rank, so a line reads as the paper's: x is the share of executors with at most that
load.

Where the files of `lab/workload/real_keys.py` are at hand, a third panel has real keys, which the paper does not show
in this figure: by plain hash, and by Mixed, whose plan of one interval is judged by the loads of the next. The paper's
stock trades are not among the files.
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geoswarm.control.keyed.problem import KeyStats, Limits
from geoswarm.control.keyed.registry import planner
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.real_keys import real_counts, sources_at_hand
from geoswarm.lab.workload.zipf import Window, Zipf

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
        rows += _rows(panel, value, loads)
        summary[f"max_vs_min_{panel}_{value}"] = float(loads[-1] / loads[0])
    for name, path in sources_at_hand().items():
        report(f"real {name}")
        for way, loads in zip(("hash", "mixed"), real_profiles(real_counts(name, path), EXECUTORS_USUAL), strict=True):
            rows += _rows("real", f"{name}, {way}", loads)
            summary[f"real_max_vs_mean_{name}_{way}"] = float(loads[-1])
    return Result(rows, summary, {"intervals": sizes.intervals, "keys": sizes.keys_usual, "executors": EXECUTORS_USUAL})


def _rows(panel: str, value: int | str, loads: Floats) -> list[dict[str, Any]]:
    shares = 100.0 * np.arange(1, len(loads) + 1) / len(loads)
    return [
        {"panel": panel, "value": value, "percentile": float(share), "load": float(load)}
        for share, load in zip(shares, loads, strict=True)
    ]


def load_profile(keys: int, executors: int, intervals: int, seed: int) -> Floats:
    """Loads as shares of their average, lightest executor first, averaged over intervals."""
    owner = KeyPlan.first(range(executors)).route(np.arange(keys))
    workload, total = Zipf(keys=keys, seed=seed), np.zeros(executors)
    for interval in range(1, intervals + 1):
        loads = np.bincount(owner, workload.reshuffle(interval), executors)
        total += np.sort(loads / loads.mean())
    return total / intervals


def real_profiles(counts: Ints, executors: int) -> tuple[Floats, Floats]:
    """Loads by plain hash and by Mixed, as `load_profile` has them, from the second interval on."""
    keys, limits = np.arange(counts.shape[1]), Limits()
    by_hash = plan = KeyPlan.first(range(executors))
    mixed, window, totals = planner("mixed", limits), Window(limits.window), np.zeros((2, executors))
    for before, now in pairwise(counts):
        plan = mixed.rebalance(plan, KeyStats(keys, before.astype(np.float64), window.add(before))).plan
        for total, judged in zip(totals, (by_hash, plan), strict=True):
            loads = np.bincount(judged.route(keys), now, executors)
            total += np.sort(loads / loads.mean())
    profiles = totals / (len(counts) - 1)
    return profiles[0], profiles[1]


def plot(result: Result) -> "Figure":
    shown = list(dict.fromkeys(row["panel"] for row in result.rows))
    drawn, panels = figure(len(shown), width_in=5.6)
    for axes, panel in zip(panels, shown, strict=True):
        for value in dict.fromkeys(row["value"] for row in result.rows if row["panel"] == panel):
            here = [row for row in result.rows if (row["panel"], row["value"]) == (panel, value)]
            label = value if panel == "real" else f"{value:,} {panel}"
            axes.plot([r["percentile"] for r in here], [r["load"] for r in here], label=label)
        axes.set(xlabel="executors, lightest first (%)", ylabel="load / average")
        axes.legend()
    panels[0].set_title("Plain hash is uneven (Mixed Fig. 7)")
    for axes in panels[2:]:
        axes.set_title(f"real keys, {EXECUTORS_USUAL} executors")
    return drawn
