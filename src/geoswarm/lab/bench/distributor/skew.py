"""Distributor Figures 4 and 5: throughput and latency over the skew coefficient, four pipelines in six modes.

The two figures show the same runs (`FIGURES`), projected to 16 machines; `race.py` says what is measured. RIhPS ends at
0.4, as in the paper. Modes take their turns in a new order for each pipeline and skew; Dynamic LB STAL runs twice, and
its figure is of both runs.

A mode decides by what it measured. What its plans are worth is judged by costs that all modes share: those that join at
the same side do the same work partition by partition, whichever executor has it, so each partition's cost in a batch is
the median of what was measured under all of them (`at_common_costs`). `..._as_measured` is each mode by its own clock,
with the machine's noise in it: `noise` is how far the two runs of one mode are apart there (the median over all cells),
`noise_max` the most, and `noise_cpu` how far the CPU times in all of modes that join at the same side are apart.

`best_everywhere` is the least lead of Default STAL, which is the engine's `auto`, over the best of the others: 1 or
more if none is better anywhere; `best_everywhere_distributor` is that of Dynamic LB STAL over the paper's modes. In
sPIS `auto` deals publications out, so its partitions are its own, and it is judged by its own clock. `lead_at_S` is the
geometric mean over pipelines of what Dynamic LB STAL gains on Static STAL at skew S, for RIhPS the nearest one it has;
`load_vs_data` and `static_vs_stream` are geometric means of LB over DB, and of STAL over STRL, over all they share.

In Fig. 5 latencies are turned over for these keys: 1.5 is a latency of two thirds. A publication waits for half of the
batch in which it came, on average, and then until its own is done (`latency_s`); the paper's publications are all there
before the start, and it does not say what its latencies are measured from. The interval of its batches, 500 ms, is not
in ours.
"""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geoswarm.control.outcome import RoundEntry
from geoswarm.lab.bench.distributor.race import (
    BASE,
    BEST,
    DATA,
    HASHED,
    INDEXED,
    LOAD,
    MACHINES,
    MODES,
    OURS,
    PIPELINES,
    WARM_BATCHES,
    CollisionRuns,
    CollisionSizes,
    CostedBatch,
    Mode,
    at_common_costs,
    latency_s,
    publications_per_s,
)
from geoswarm.lab.bench.kit.catalogue import FigureRow
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, median
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.workload.postcodes import Britain, britain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class SkewSizes(NamedTuple):
    each: CollisionSizes
    pipelines: tuple[str, ...]
    skews: tuple[float, ...]
    hashed_skews: tuple[float, ...]

    def cells(self) -> Iterable[tuple[str, float]]:
        for pipeline in self.pipelines:
            for skew in self.hashed_skews if pipeline == HASHED else self.skews:
                yield pipeline, skew


SIZES = {
    Scale.SMALL: SkewSizes(CollisionSizes(1000, 1500, 3), ("sps",), (0.3, 0.7), (0.3, 0.4)),
    Scale.FULL: SkewSizes(CollisionSizes(10_000, 3000, 5), PIPELINES, (0.3, 0.4, 0.5, 0.6, 0.7), (0.3, 0.4)),
}


class SkewRun(NamedTuple):
    pipeline: str
    skew: float
    mode: Mode
    measured: list[CostedBatch]
    rounds: list[RoundEntry]
    levelled: Sequence[CostedBatch] = ()
    """The batches at common costs; there are none before all modes have run (`level_runs`)."""


@dataclass(frozen=True)
class SkewFigure(FigureRow):
    column: str
    unit: str
    title: str
    is_latency: bool


FIGURES = {
    "distributor-fig4": SkewFigure(
        "Distributor Fig. 4",
        "throughput over the skew coefficient, four pipelines in six modes, projected to 16 machines",
        "events_per_s",
        "publications per second",
        "Throughput over skew",
        False,
    ),
    "distributor-fig5": SkewFigure(
        "Distributor Fig. 5",
        "latency over the skew coefficient, four pipelines in six modes, projected to 16 machines",
        "latency_ms",
        "ms",
        "Latency over skew",
        True,
    ),
}


def measure(shown: SkewFigure, sizes: SkewSizes, seed: int, report: Progress) -> Result:
    country = britain()
    report("starting Spark")
    with bench_session() as spark, tempfile.TemporaryDirectory() as folder:
        runs = run_sweep(CollisionRuns(spark, country, sizes.each, seed, Path(folder)), sizes, report)
    return skew_result(shown, runs, country, sizes)


def run_sweep(stage: CollisionRuns, sweep: SkewSizes, report: Progress) -> list[SkewRun]:
    runs, cells = list[SkewRun](), list(sweep.cells())
    for pipeline in sweep.pipelines:
        for side in (OURS, OURS._replace(join_at="stream")):
            report(f"warming up {side.name} of {pipeline}")
            stage.run(pipeline, side, sweep.skews[0])  # kernels are loaded, and no figure has it
    for number, (pipeline, skew) in enumerate(cells):
        contestants = [*MODES, OURS, BEST]
        for i in np.random.default_rng(number).permutation(len(contestants)):
            report(f"{contestants[i].name} of {pipeline} at {skew}, {number + 1} of {len(cells)}")
            runs.append(SkewRun(pipeline, skew, contestants[i], *stage.run(pipeline, contestants[i], skew)))
    return level_runs(runs)


def is_dealt_out(run: SkewRun) -> bool:
    """Whether events went to any executor, so that its partitions are nobody else's."""
    return run.mode == BEST and run.pipeline == INDEXED


def level_runs(runs: Sequence[SkewRun]) -> list[SkewRun]:
    """The same runs, with what each would have taken at common costs."""
    groups: dict[tuple[str, float, str], list[SkewRun]] = {}
    for r in runs:
        groups.setdefault((r.pipeline, r.skew, "dealt out" if is_dealt_out(r) else r.mode.join_at), []).append(r)
    return [
        r._replace(levelled=batches)
        for group in groups.values()
        for r, batches in zip(group, at_common_costs([r.measured for r in group]), strict=True)
    ]


def skew_result(shown: SkewFigure, runs: Sequence[SkewRun], country: Britain, sweep: SkewSizes) -> Result:
    rows = [_row(runs, pipeline, skew, mode) for pipeline, skew in sweep.cells() for mode in (*MODES, BEST)]
    config = {"sweep": sweep._asdict(), "machines": MACHINES, "country": country.source}
    return Result(rows, _summary(rows, sweep, is_latency=shown.is_latency), config)


def _row(runs: Sequence[SkewRun], pipeline: str, skew: float, mode: Mode) -> dict[str, Any]:
    mine = [r for r in runs if (r.pipeline, r.skew, r.mode) == (pipeline, skew, mode)]
    each = [publications_per_s(r.measured) for r in mine]
    counted = [batch for r in mine for batch in r.levelled[WARM_BATCHES:]]
    return {
        "pipeline": pipeline,
        "skew": skew,
        "mode": mode.name,
        "events_per_s": _mean_rate([publications_per_s(r.levelled) for r in mine]),
        "events_per_s_as_measured": _mean_rate(each),
        "again": max(each) / min(each) - 1 if len(each) > 1 else None,
        "latency_ms": float(np.mean([latency_s(r.levelled) for r in mine])) * 1e3,
        "latency_ms_as_measured": float(np.mean([latency_s(r.measured) for r in mine])) * 1e3,
        "cpu_ms_as_measured": float(np.mean([b.mean_s + b.route_s for r in mine for b in r.measured])) * 1e3,
        "makespan_ms": float(np.mean([b.makespan_s for b in counted])) * 1e3,
        "route_ms": float(np.mean([b.route_s for b in counted])) * 1e3,
        "match_mean_ms": float(np.mean([b.mean_s for b in counted])) * 1e3,
        "mldc_first": median([r.levelled[WARM_BATCHES].mldc for r in mine]),
        "mldc_last": median([r.levelled[-1].mldc for r in mine]),
        "moves": sum(one.applied for r in mine for one in r.rounds) / len(mine),
    }


def _mean_rate(rates: Sequence[float]) -> float:
    return len(rates) / sum(1 / rate for rate in rates)


def _summary(rows: Sequence[dict[str, Any]], sweep: SkewSizes, *, is_latency: bool) -> dict[str, float]:
    again = [row["again"] for row in rows if row["again"] is not None]
    column, measured = "events_per_s", "events_per_s_as_measured"
    if is_latency:
        column, measured = "quickness", "quickness_as_measured"
        rows = [row | {column: 1e3 / row["latency_ms"], measured: 1e3 / row["latency_ms_as_measured"]} for row in rows]
    found = leads(rows, column, sweep, BEST)
    papers = [row for row in rows if row["mode"] != BEST.name]
    summary = {
        "best_everywhere": min(found),
        "best_in_cells": float(np.mean(np.array(found) >= 1)),
        "best_everywhere_as_measured": min(leads(rows, measured, sweep, BEST)),
        "best_everywhere_distributor": min(leads(papers, column, sweep, OURS)),
        "best_everywhere_distributor_as_measured": min(leads(papers, measured, sweep, OURS)),
        "noise": median(again),
        "noise_max": max(again),
        "noise_cpu": median(_spreads(rows, sweep)),
    }
    summary |= {f"lead_at_{skew}": lead_at(rows, column, sweep, skew) for skew in sweep.skews}
    summary |= {f"lead_as_measured_at_{skew}": lead_at(rows, measured, sweep, skew) for skew in sweep.skews}
    return summary | mode_ratios(rows, column)


def _spreads(rows: Sequence[dict[str, Any]], sweep: SkewSizes) -> list[float]:
    """How far total CPU times are apart among modes that do the same work."""
    spreads = []
    for cell in sweep.cells():
        for side in ("static", "stream"):
            names = [mode.name for mode in MODES if mode.join_at == side]
            same = [r for r in rows if (r["pipeline"], r["skew"]) == cell and r["mode"] in names]
            spent_ms = [row["cpu_ms_as_measured"] for row in same]
            spreads.append(max(spent_ms) / min(spent_ms) - 1)
    return spreads


def leads(rows: Sequence[dict[str, Any]], column: str, sweep: SkewSizes, ours: Mode) -> list[float]:
    """The lead of a mode over the best of the others, for each pipeline and skew."""
    found = []
    for cell in sweep.cells():
        rates = {row["mode"]: row[column] for row in rows if (row["pipeline"], row["skew"]) == cell}
        found.append(rates[ours.name] / max(rate for name, rate in rates.items() if name != ours.name))
    return found


def lead_at(rows: Sequence[dict[str, Any]], column: str, sweep: SkewSizes, skew: float) -> float:
    ratios = []
    for pipeline in sweep.pipelines:
        own = sweep.hashed_skews if pipeline == HASHED else sweep.skews
        nearest = min(own, key=lambda s: abs(s - skew))
        rates = {r["mode"]: r[column] for r in rows if (r["pipeline"], r["skew"]) == (pipeline, nearest)}
        ratios.append(rates[OURS.name] / rates[BASE.name])
    return float(np.exp(np.mean(np.log(ratios))))


def mode_ratios(rows: Sequence[dict[str, Any]], column: str) -> dict[str, float]:
    rates = {(row["pipeline"], row["skew"], row["mode"]): row[column] for row in rows}
    data = {Mode(LOAD, side).name: Mode(DATA, side).name for side in ("static", "stream")}
    stream = {mode.name: mode._replace(join_at="stream").name for mode in MODES if mode.join_at == "static"}
    found = {}
    for key, other in (("load_vs_data", data), ("static_vs_stream", stream)):
        logs = [np.log(rate / rates[p, s, other[m]]) for (p, s, m), rate in rates.items() if m in other]
        found[key] = float(np.exp(np.mean(logs)))
    return found


def plot(shown: SkewFigure, result: Result) -> "Figure":
    names = list(dict.fromkeys(row["pipeline"] for row in result.rows))
    drawn, panels = figure(len(names), width_in=4.2, height_in=4.6)
    for panel, pipeline in zip(panels, names, strict=True):
        for mode in (*MODES, BEST):
            line = [row for row in result.rows if (row["pipeline"], row["mode"]) == (pipeline, mode.name)]
            panel.plot(
                [row["skew"] for row in line],
                [row[shown.column] for row in line],
                "-" if mode.join_at == "static" else "--",
                label=mode.name if panel is panels[0] else None,
                linewidth=3.0 if mode == OURS else 1.6,
            )
        panel.set(title=pipeline, xlabel="skew coefficient", ylim=(0, None))
    panels[0].set_ylabel(shown.unit)
    drawn.suptitle(f"{shown.title} ({shown.where})")
    drawn.legend(loc="outside lower center", ncols=3 if len(names) > 1 else 1)
    return drawn
