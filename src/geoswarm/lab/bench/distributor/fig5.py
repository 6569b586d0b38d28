"""Distributor Fig. 5: latency over the skew coefficient, four pipelines in six modes, projected to 16 machines.

The runs are those of `distributor_fig4.py`. A publication waits for half of the batch in which it came, on average, and
then until its own is done (`distributor_race.latency_s`); the print's publications are all there before the start, and
what its latencies are measured from is not said. The interval of its batches, 500 ms, is not in ours.

`best_everywhere` and the leads are as in Fig. 4, with latencies turned over: 1.5 is a latency of two thirds.
"""

from typing import TYPE_CHECKING, Any

from geoswarm.lab.bench.distributor.fig4 import SWEEPS, Sweep, draw, lead_at, leads, pairs, result_of, swept
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.workload.postcodes import Britain, britain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(None, britain(), SWEEPS[scale], seed, report)


def measure(spark: Any, country: Britain, sweep: Sweep, seed: int, report: Progress) -> Result:
    rates = result_of(swept(spark, country, sweep, seed, report), country, sweep)
    inverted = [
        row | {"quickness": 1e3 / row["latency_ms"], "quickness_as_measured": 1e3 / row["latency_ms_as_measured"]}
        for row in rates.rows
    ]
    found = leads(inverted, "quickness", sweep)
    summary = {"best_everywhere": min(found), "best_in_cells": sum(lead >= 1 for lead in found) / len(found)}
    summary["best_everywhere_as_measured"] = min(leads(inverted, "quickness_as_measured", sweep))
    summary |= {f"lead_at_{skew}": lead_at(inverted, "quickness", sweep, skew) for skew in sweep.skews}
    summary |= pairs(inverted, "quickness")
    summary |= {key: rates.summary[key] for key in ("noise", "noise_max", "noise_cpu")}
    return Result(rates.rows, summary, rates.config)


def plot(result: Result) -> "Figure":
    return draw(result, "latency_ms", "ms", "Latency over skew (Distributor Fig. 5)")
