"""beside Thesis Fig. 6.18: the same half hours with `auto`, whose spreads must hide no attack from the sensor.

The sensor looks at what made the cluster rebalance. A hot place that is dealt out among executors could stop to do so
before Guard has seen enough of it. The plain keys are of `swarm-measured`, those in `..._auto` of `auto`; what is
measured is in `half_hours.py`. `guard-engine` has the real engine.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.guard import fig6_18
from geoswarm.lab.bench.guard.half_hours import MANY, HalfHourSizes
from geoswarm.lab.bench.guard.outcomes import AUTO, OURS
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOTH = (OURS, AUTO)
SIZES = {
    Scale.SMALL: MANY[Scale.SMALL]._replace(settings=BOTH, rates=(600,)),
    Scale.FULL: MANY[Scale.FULL]._replace(settings=BOTH),
}


def measure(sizes: HalfHourSizes, seed: int, report: Progress) -> Result:
    return fig6_18.measure(sizes, seed, report)


def plot(result: Result) -> "Figure":
    return fig6_18.plot(result)
