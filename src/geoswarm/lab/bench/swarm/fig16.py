"""SWARM Fig. 16: a second hotspot right after the first, elsewhere: work per minute of all strategies.

As `swarm_fig12.py`, each of half the strength.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.swarm.timeline import draw, timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return timeline("two-consecutive", scale, seed, report)


def plot(result: Result) -> "Figure":
    return draw(result, "Two consecutive hotspots (SWARM Fig. 16)")
