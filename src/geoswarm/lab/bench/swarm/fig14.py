"""SWARM Fig. 14: one uniform hotspot that starts at full strength: work per minute of all strategies.

As `swarm_fig12.py`, but nothing announces the hotspot.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.swarm.timeline import draw, timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return timeline("one-step", scale, seed, report)


def plot(result: Result) -> "Figure":
    return draw(result, "One uniform hotspot, step (SWARM Fig. 14)")
