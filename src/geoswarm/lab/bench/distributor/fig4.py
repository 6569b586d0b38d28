"""Distributor Fig. 4: throughput over the skew coefficient, four pipelines in six modes, projected to 16 machines.

What is measured and projected is told in `distributor_race.py`; `distributor_fig5.py` has the latency of the same runs.
RIhPS ends at 0.4, as in the print. Modes take their turns in a new order for each pipeline and skew; Dynamic LB STAL
runs twice, and its figure is of both runs.

A mode decides by what it measured. What its plans are worth is told by costs that all modes share: those that join at
the same side do the same work partition by partition, whoever has it, so each partition's cost in a batch is the median
of what was measured under all of them (`at_common_costs`). `..._as_measured` is each mode by its own clock, in which
the machine's moods are, too: `noise` is how far the two runs of one mode are apart there (the median over all cells),
`noise_max` the most, and `noise_cpu` how far the CPU times in all of modes that join at the same side are apart.

`best_everywhere` is its least lead over the best of the others: 1 or more if none is better anywhere. `lead_at_S` is
the geometric mean over pipelines of what it gains on Static STAL at skew S, for RIhPS the nearest one it has;
`load_vs_data` and `static_vs_stream` are geometric means of LB over DB, and of STAL over STRL, over all they share.
"""

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geoswarm.lab.bench.distributor.race import (
    BASE,
    DATA,
    HASHED,
    LOAD,
    MACHINES,
    MASTER,
    MODES,
    OURS,
    PIPELINES,
    WARM_BATCHES,
    Lap,
    Mode,
    Round,
    Sizes,
    Stage,
    at_common_costs,
    latency_s,
    throughput,
)
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, median
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.postcodes import Britain, britain
from geoswarm.run.spark.session import build_session

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Sweep(NamedTuple):
    sizes: Sizes
    pipelines: tuple[str, ...]
    skews: tuple[float, ...]
    hashed_skews: tuple[float, ...]

    def cells(self) -> Iterable[tuple[str, float]]:
        for pipeline in self.pipelines:
            for skew in self.hashed_skews if pipeline == HASHED else self.skews:
                yield pipeline, skew


SWEEPS = {
    Scale.SMALL: Sweep(Sizes(2000, 2000, 5), ("sps", "risps"), (0.3, 0.7), (0.3, 0.4)),
    Scale.FULL: Sweep(Sizes(10_000, 3000, 5), PIPELINES, (0.3, 0.4, 0.5, 0.6, 0.7), (0.3, 0.4)),
}


class Run(NamedTuple):
    pipeline: str
    skew: float
    mode: Mode
    measured: list[Lap]
    rounds: list[Round]
    laps: Sequence[Lap] = ()
    """At common costs; none before all have run (`levelled`)."""


_swept: dict[tuple[Sweep, int], list[Run]] = {}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    country = britain()
    return measure(None, country, SWEEPS[scale], seed, report)


def measure(spark: Any, country: Britain, sweep: Sweep, seed: int, report: Progress) -> Result:
    return result_of(swept(spark, country, sweep, seed, report), country, sweep)


def swept(spark: Any, country: Britain, sweep: Sweep, seed: int, report: Progress) -> list[Run]:
    """Once in a process: two figures are drawn from it."""
    if (sweep, seed) not in _swept:
        report("starting Spark")
        session = spark or build_session(MASTER, "geoswarm-bench")
        try:
            with tempfile.TemporaryDirectory() as folder:
                _swept[sweep, seed] = _raced(Stage(session, country, sweep.sizes, seed, Path(folder)), sweep, report)
        finally:
            if spark is None:
                session.stop()
    return _swept[sweep, seed]


def _raced(stage: Stage, sweep: Sweep, report: Progress) -> list[Run]:
    runs, cells = list[Run](), list(sweep.cells())
    for pipeline in sweep.pipelines:
        for side in (OURS, OURS._replace(join_at="stream")):
            report(f"warming up {side.name} of {pipeline}")
            stage.run(pipeline, side, sweep.skews[0])  # kernels are loaded, and nobody's figures have it
    for number, (pipeline, skew) in enumerate(cells):
        contestants = [*MODES, OURS]
        for i in np.random.default_rng(number).permutation(len(contestants)):
            report(f"{contestants[i].name} of {pipeline} at {skew}, {number + 1} of {len(cells)}")
            runs.append(Run(pipeline, skew, contestants[i], *stage.run(pipeline, contestants[i], skew)))
    return levelled(runs)


def levelled(runs: Sequence[Run]) -> list[Run]:
    """With what each would have taken at common costs."""
    groups: dict[tuple[str, float, str], list[Run]] = {}
    for r in runs:
        groups.setdefault((r.pipeline, r.skew, r.mode.join_at), []).append(r)
    return [
        r._replace(laps=laps)
        for group in groups.values()
        for r, laps in zip(group, at_common_costs([r.measured for r in group]), strict=True)
    ]


def result_of(runs: Sequence[Run], country: Britain, sweep: Sweep) -> Result:
    rows = [_row(runs, pipeline, skew, mode) for pipeline, skew in sweep.cells() for mode in MODES]
    config = {"sweep": sweep._asdict(), "machines": MACHINES, "country": country.source}
    return Result(rows, _summary(rows, sweep), config)


def _row(runs: Sequence[Run], pipeline: str, skew: float, mode: Mode) -> dict[str, Any]:
    mine = [r for r in runs if (r.pipeline, r.skew, r.mode) == (pipeline, skew, mode)]
    each = [throughput(r.measured) for r in mine]
    counted = [lap for r in mine for lap in r.laps[WARM_BATCHES:]]
    return {
        "pipeline": pipeline,
        "skew": skew,
        "mode": mode.name,
        "events_per_s": _mean_rate([throughput(r.laps) for r in mine]),
        "events_per_s_as_measured": _mean_rate(each),
        "again": max(each) / min(each) - 1 if len(each) > 1 else None,
        "latency_ms": float(np.mean([latency_s(r.laps) for r in mine])) * 1e3,
        "latency_ms_as_measured": float(np.mean([latency_s(r.measured) for r in mine])) * 1e3,
        "cpu_ms_as_measured": float(np.mean([(lap.mean_s + lap.route_s) for r in mine for lap in r.measured])) * 1e3,
        "makespan_ms": float(np.mean([lap.makespan_s for lap in counted])) * 1e3,
        "route_ms": float(np.mean([lap.route_s for lap in counted])) * 1e3,
        "match_mean_ms": float(np.mean([lap.mean_s for lap in counted])) * 1e3,
        "mldc_first": median([r.laps[WARM_BATCHES].mldc for r in mine]),
        "mldc_last": median([r.laps[-1].mldc for r in mine]),
        "moves": sum(one.moves for r in mine for one in r.rounds) / len(mine),
    }


def _mean_rate(rates: Sequence[float]) -> float:
    return len(rates) / sum(1 / rate for rate in rates)


def _summary(rows: Sequence[dict[str, Any]], sweep: Sweep) -> dict[str, float]:
    again = [row["again"] for row in rows if row["again"] is not None]
    by_rate = leads(rows, "events_per_s", sweep)
    summary = {
        "best_everywhere": min(by_rate),
        "best_in_cells": float(np.mean(np.array(by_rate) >= 1)),
        "best_everywhere_as_measured": min(leads(rows, "events_per_s_as_measured", sweep)),
        "noise": median(again),
        "noise_max": max(again),
        "noise_cpu": median(_spreads(rows, sweep)),
    }
    for skew in sweep.skews:
        summary[f"lead_at_{skew}"] = lead_at(rows, "events_per_s", sweep, skew)
    for skew in sweep.skews:
        summary[f"lead_as_measured_at_{skew}"] = lead_at(rows, "events_per_s_as_measured", sweep, skew)
    return summary | pairs(rows, "events_per_s")


def _spreads(rows: Sequence[dict[str, Any]], sweep: Sweep) -> list[float]:
    """Of the CPU time in all, among modes that do the same work."""
    spreads = []
    for cell in sweep.cells():
        for side in ("static", "stream"):
            names = [mode.name for mode in MODES if mode.join_at == side]
            same = [r for r in rows if (r["pipeline"], r["skew"]) == cell and r["mode"] in names]
            spent_ms = [row["cpu_ms_as_measured"] for row in same]
            spreads.append(max(spent_ms) / min(spent_ms) - 1)
    return spreads


def leads(rows: Sequence[dict[str, Any]], column: str, sweep: Sweep) -> list[float]:
    """Of Dynamic LB STAL over the best of the others, for each pipeline and skew. Latencies are given inverted."""
    found = []
    for cell in sweep.cells():
        rates = {row["mode"]: row[column] for row in rows if (row["pipeline"], row["skew"]) == cell}
        found.append(rates[OURS.name] / max(rate for name, rate in rates.items() if name != OURS.name))
    return found


def lead_at(rows: Sequence[dict[str, Any]], column: str, sweep: Sweep, skew: float) -> float:
    ratios = []
    for pipeline in sweep.pipelines:
        own = sweep.hashed_skews if pipeline == HASHED else sweep.skews
        nearest = min(own, key=lambda s: abs(s - skew))
        rates = {r["mode"]: r[column] for r in rows if (r["pipeline"], r["skew"]) == (pipeline, nearest)}
        ratios.append(rates[OURS.name] / rates[BASE.name])
    return float(np.exp(np.mean(np.log(ratios))))


def pairs(rows: Sequence[dict[str, Any]], column: str) -> dict[str, float]:
    rates = {(row["pipeline"], row["skew"], row["mode"]): row[column] for row in rows}
    data = {Mode(LOAD, side).name: Mode(DATA, side).name for side in ("static", "stream")}
    stream = {mode.name: mode._replace(join_at="stream").name for mode in MODES if mode.join_at == "static"}
    found = {}
    for key, other in (("load_vs_data", data), ("static_vs_stream", stream)):
        logs = [np.log(rate / rates[p, s, other[m]]) for (p, s, m), rate in rates.items() if m in other]
        found[key] = float(np.exp(np.mean(logs)))
    return found


def plot(result: Result) -> "Figure":
    return draw(result, "events_per_s", "publications per second", "Throughput over skew (Distributor Fig. 4)")


def draw(result: Result, column: str, unit: str, title: str) -> "Figure":
    names = list(dict.fromkeys(row["pipeline"] for row in result.rows))
    drawn, panels = figure(len(names), width_in=4.2, height_in=4.6)
    for panel, pipeline in zip(panels, names, strict=True):
        for mode in MODES:
            line = [row for row in result.rows if (row["pipeline"], row["mode"]) == (pipeline, mode.name)]
            panel.plot(
                [row["skew"] for row in line],
                [row[column] for row in line],
                "-" if mode.join_at == "static" else "--",
                label=mode.name if panel is panels[0] else None,
                linewidth=3.0 if mode == OURS else 1.6,
            )
        panel.set(title=pipeline, xlabel="skew coefficient", ylim=(0, None))
    panels[0].set_ylabel(unit)
    drawn.suptitle(title)
    drawn.legend(loc="outside lower center", ncols=3)
    return drawn
