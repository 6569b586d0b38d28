"""SWARM Fig. 12: one uniform hotspot that comes and goes as a bell: work per minute of all strategies.

What is measured and what the print leaves open is in `timeline.py`; the hotspot in `lab/workload/hotspots.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.swarm.timeline import draw, timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return timeline("one-uniform", scale, seed, report)


def plot(result: Result) -> "Figure":
    return draw(result, "One uniform hotspot, bell (SWARM Fig. 12)")
