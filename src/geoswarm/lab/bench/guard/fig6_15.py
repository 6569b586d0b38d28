"""Thesis Fig. 6.15: thirty minutes with an attack of 300 changes a second, with Guard and without.

What is measured and what the print leaves open is in `guard_timeline.py`; the attack in `lab/workload/attack.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.guard.timeline import draw, timeline
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return timeline(300, scale, seed, report)


def plot(result: Result) -> "Figure":
    return draw(result, "300 changes/s (thesis Fig. 6.15)")
