"""Thesis Fig. 6.21: time to find malicious hotspots and to block the attackers, over their number, at 600 changes/s.

As `guard_fig6_20.py`. The print: about 30 s and two minutes, however many they are.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.guard.fig6_20 import draw, measure
from geoswarm.lab.bench.guard.timeline import MANY
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTACKERS = (1, 5, 10, 20, 30, 40, 50)


def run(scale: Scale, seed: int, report: Progress) -> Result:
    attackers = (1, 10, 50) if scale is Scale.SMALL else ATTACKERS
    return measure(MANY[scale], seed, report, (600,), attackers)


def plot(result: Result) -> "Figure":
    return draw(result, "attackers", "attackers", "Time to detect and block (Fig. 6.21)")
