"""A hotspot that slowly crosses the map: work per minute of all strategies.

Not in the print: as `swarm_fig14.py`, but the square moves by 40 % of the side within twenty minutes.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.swarm.timeline import draw, timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return timeline("one-moving", scale, seed, report)


def plot(result: Result) -> "Figure":
    return draw(result, "One slowly moving hotspot")
