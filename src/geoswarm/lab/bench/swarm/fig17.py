"""SWARM Fig. 17: least, mean and most utilised executor over time, SWARM against the grid drawn from history.

The world is that of Fig. 12 (`fig12_to_16.py`); utilisation is of CPU time, over five minutes each. The paper's second
panel, the network's utilisation, has no counterpart: the simulator moves no bytes. Keys `utilisation_*` are over the
hotspot; `gap_*` is most minus least.
"""

from typing import TYPE_CHECKING, Any, cast

from geoswarm.lab.bench.kit.harness import Progress, Result
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.swarm import fig12_to_16 as timeline
from geoswarm.lab.bench.swarm.fig12_to_16 import (
    OURS,
    PRINTED,
    TimelineSizes,
    by_strategy,
    hotspot_world,
    key_of,
    run_contestants,
)
from geoswarm.lab.workload.hotspots import Hotspots
from geoswarm.run.sim.cluster import ClusterSetup
from geoswarm.run.sim.race import cluster
from geoswarm.run.sim.spans import by_minute, total

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = timeline.SIZES
SPAN_S = 300.0
NAMES = ("static-history", PRINTED, OURS)


def measure(sizes: TimelineSizes, seed: int, report: Progress, setup: ClusterSetup | None = None) -> Result:
    report("drawing the world")
    world = hotspot_world("one-uniform", sizes, seed)
    contestants = [cluster(name, world, setup or ClusterSetup()) for name in NAMES]
    spot = cast(Hotspots, world.workload).spots[0]
    run_contestants(world, contestants, spot.end_s + sizes.calm_s, report)
    rows: list[dict[str, Any]] = []
    summary: dict[str, float] = {}
    for c in contestants:
        for span in by_minute(c.spans, SPAN_S):
            least, mean, most = span.utilisation
            row = {"strategy": c.name, "minute": span.start_s / 60, "least": least, "mean": mean, "most": most}
            rows.append(row | {"hotspot_share": spot.share(span.start_s + span.span_s / 2)})
        least, mean, most = total(s for s in c.spans if spot.start_s <= s.start_s < spot.end_s).utilisation
        key = key_of(c.name)
        summary |= {f"utilisation_min_{key}": least, f"utilisation_mean_{key}": mean, f"utilisation_max_{key}": most}
        summary[f"gap_{key}"] = most - least
    config = {"scenario": "one-uniform", "average_s": SPAN_S, "hotspots": [vars(spot)]}
    return Result(rows, summary, config)


def plot(result: Result) -> "Figure":
    """One panel per strategy: the mean as a line, from least to most as a band."""
    drawn, panels = figure(len(NAMES), width_in=4.6)
    for panel, (name, rows) in zip(panels, by_strategy(result.rows).items(), strict=True):
        middles = [row["minute"] + SPAN_S / 120 for row in rows]
        least, mean, most = ([row[key] * 100 for row in rows] for key in ("least", "mean", "most"))
        panel.fill_between(middles, least, most, alpha=0.25, linewidth=0, label="least to most")
        panel.plot(middles, most, linewidth=1.2, label="most utilised")
        panel.plot(middles, mean, linewidth=2.5, label="mean")
        panel.plot(middles, least, linewidth=1.2, label="least utilised")
        spot = result.config["hotspots"][0]
        panel.axvspan(spot["start_s"] / 60, (spot["start_s"] + spot["life_s"]) / 60, color="#BBBBBB", alpha=0.25)
        panel.set(title=name, xlabel="minutes", ylim=(0, 105), xlim=(0, middles[-1] + SPAN_S / 120))
    panels[0].set_ylabel("CPU utilisation of executors (%)")
    panels[-1].legend(loc="lower right")
    return drawn
