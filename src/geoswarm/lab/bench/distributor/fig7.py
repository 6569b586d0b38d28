"""Distributor Fig. 7: the maximum load distance coefficient over time, sPS at three skews.

The runs are those of `distributor_fig6.py`. The MLDC here is that of a round alone, from the CPU time of its executors;
the strategy itself looks at loads that fade by half each round, so what it sees is calmer.

`mldc_after` is the largest MLDC of Dynamic LB in any round after its first redistribution, over the skews that had one,
and `mldc_after_as_measured` the same by its own clock alone;
`mldc_static_S` and `mldc_S` are means over the rounds of Static, and of Dynamic LB after it, at skew S;
`redistributions_S` says how many there were. `..._auto` are of `distributor-auto`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geoswarm.control.balance.distributor import Distributor
from geoswarm.errors import InputError
from geoswarm.lab.bench.distributor.fig6 import COURSES, SELF_TUNED, Course, Run, draw, result_of, timed
from geoswarm.lab.bench.distributor.race import BASE, OURS, WARM_BATCHES, Lap
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.workload.postcodes import Britain, britain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(None, britain(), COURSES[scale], seed, report)


def measure(spark: Any, country: Britain, course: Course, seed: int, report: Progress) -> Result:
    runs = timed(spark, country, course, seed, report)
    summary: dict[str, float] = {}
    for suffix, mode in (("", OURS), ("_auto", SELF_TUNED)):
        later = {r.skew: _after(r.laps) for r in runs if r.mode == mode}
        if not any(later.values()):
            raise InputError(
                f"{mode.name} redistributed at none of {len(later)} skews before the last batch: give it a larger one"
            )
        summary[f"mldc_after{suffix}"] = max(max(mldcs) for mldcs in later.values() if mldcs)
        as_measured = [mldc for r in runs if r.mode == mode for mldc in _after(r.measured)]
        summary[f"mldc_after_as_measured{suffix}"] = max(as_measured)
        for r in (r for r in runs if r.mode == mode):
            summary[f"mldc_{r.skew}{suffix}"] = float(np.mean(later[r.skew] or _all(r)))
            summary[f"redistributions_{r.skew}{suffix}"] = float(sum(one.moves > 0 for one in r.rounds))
    summary |= {f"mldc_static_{r.skew}": float(np.mean(_all(r))) for r in runs if r.mode == BASE}
    return result_of(runs, country, course, summary)


def _all(one: Run) -> list[float]:
    return [lap.mldc for lap in one.laps[WARM_BATCHES:]]


def _after(laps: Sequence[Lap]) -> list[float]:
    """Of the batches that ran with another plan than the first."""
    return [lap.mldc for lap in laps if lap.plan_epoch > laps[0].plan_epoch]


def plot(result: Result) -> "Figure":
    return draw(result, "mldc", "MLDC", "MLDC over time, sPS (Distributor Fig. 7)", threshold=Distributor().threshold)
