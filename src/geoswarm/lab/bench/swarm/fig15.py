"""SWARM Fig. 15: two hotspots of half the strength that overlap in time: work per minute of all strategies.

As `swarm_fig12.py`, in two corners of the map.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.swarm.timeline import draw, timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return timeline("two-overlapping", scale, seed, report)


def plot(result: Result) -> "Figure":
    return draw(result, "Two overlapping hotspots (SWARM Fig. 15)")
