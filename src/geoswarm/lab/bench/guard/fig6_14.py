"""Thesis Fig. 6.14: thirty minutes with an attack of 150 changes a second, with Guard and without.

What is measured and what the print leaves open is in `guard_timeline.py`; the attack in `lab/workload/attack.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.guard.timeline import draw, timeline
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return timeline(150, scale, seed, report)


def plot(result: Result) -> "Figure":
    return draw(result, "150 changes/s (thesis Fig. 6.14)")
