"""SWARM Fig. 13: one hotspot, denser in its middle, that comes and goes as a bell: work per minute of all strategies.

As `swarm_fig12.py`, but points and queries crowd in the middle, where a cell cannot be split.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.swarm.timeline import draw, timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return timeline("one-normal", scale, seed, report)


def plot(result: Result) -> "Figure":
    return draw(result, "One normal hotspot, bell (SWARM Fig. 13)")
