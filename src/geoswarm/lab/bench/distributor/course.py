"""Distributor Figures 6 and 7: throughput and MLDC over time, sPS at three skews, static, load-based, and self-tuned.

The two figures show the same runs (`FIGURES`); `race.py` says what is measured and projected. A batch is a round of
10 s. All modes here join at the static side, and are compared at common costs, as in Fig. 4. Keys that end in `_auto`
are of `distributor-auto`.

    Fig. 6   `settled_S` is the throughput of Dynamic LB over that of Static at skew S in the second half of the run,
             `gain_S` over the whole
    Fig. 7   the maximum load distance coefficient of a round alone, from the CPU time of its executors; the strategy
             itself looks at loads that fade by half each round, so what it sees is calmer. `mldc_after` is the largest
             MLDC of Dynamic LB in any round after its first redistribution, over the skews that had one, and
             `mldc_after_as_measured` the same by its own clock alone; `mldc_static_S` and `mldc_S` are means over the
             rounds of Static, and of Dynamic LB after it, at skew S; `redistributions_S` is how many there were
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geoswarm.control.balance.distributor import Distributor
from geoswarm.control.outcome import RoundEntry
from geoswarm.errors import InputError
from geoswarm.lab.bench.distributor.race import (
    AUTO,
    BASE,
    MACHINES,
    OURS,
    ROUND_S,
    WARM_BATCHES,
    CollisionRuns,
    CollisionSizes,
    CostedBatch,
    Mode,
    at_common_costs,
    publications_per_s,
)
from geoswarm.lab.bench.kit.catalogue import FigureRow
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.workload.postcodes import Britain, britain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIPELINE = "sps"
SELF_TUNED = Mode(AUTO, "static")
SHOWN = (OURS, BASE, SELF_TUNED)
SUFFIXES = (("", OURS), ("_auto", SELF_TUNED))
"""What the keys of each mode that redistributes end in."""


class CourseSizes(NamedTuple):
    each: CollisionSizes
    skews: tuple[float, ...]


SIZES = {
    Scale.SMALL: CourseSizes(CollisionSizes(1000, 4000, 4), (0.3, 0.7)),
    Scale.FULL: CourseSizes(CollisionSizes(10_000, 4000, 14), (0.3, 0.5, 0.7)),
}


class CourseRun(NamedTuple):
    skew: float
    mode: Mode
    levelled: list[CostedBatch]
    """The batches at common costs."""
    measured: list[CostedBatch]
    rounds: list[RoundEntry]


def _gains(runs: Sequence[CourseRun]) -> dict[str, float]:
    summary: dict[str, float] = {}
    for skew in dict.fromkeys(r.skew for r in runs):
        batches = {r.mode: r.levelled for r in runs if r.skew == skew}
        for suffix, mode in SUFFIXES:
            summary[f"gain_{skew}{suffix}"] = publications_per_s(batches[mode]) / publications_per_s(batches[BASE])
            summary[f"settled_{skew}{suffix}"] = _settled_rate(batches[mode]) / _settled_rate(batches[BASE])
    return summary


def _settled_rate(run: Sequence[CostedBatch]) -> float:
    half = run[len(run) // 2 :]
    return sum(batch.events for batch in half) / sum(batch.makespan_s for batch in half)


def _distances(runs: Sequence[CourseRun]) -> dict[str, float]:
    summary: dict[str, float] = {}
    for suffix, mode in SUFFIXES:
        mine = [r for r in runs if r.mode == mode]
        later = {r.skew: _mldc_after(r.levelled) for r in mine}
        if not any(later.values()):
            raise InputError(
                f"{mode.name} redistributed at none of {len(later)} skews before the last batch: give it a larger one"
            )
        summary[f"mldc_after{suffix}"] = max(max(mldcs) for mldcs in later.values() if mldcs)
        summary[f"mldc_after_as_measured{suffix}"] = max(mldc for r in mine for mldc in _mldc_after(r.measured))
        for r in mine:
            summary[f"mldc_{r.skew}{suffix}"] = float(np.mean(later[r.skew] or _mldcs(r)))
            summary[f"redistributions_{r.skew}{suffix}"] = float(sum(one.applied > 0 for one in r.rounds))
    return summary | {f"mldc_static_{r.skew}": float(np.mean(_mldcs(r))) for r in runs if r.mode == BASE}


def _mldcs(one: CourseRun) -> list[float]:
    return [batch.mldc for batch in one.levelled[WARM_BATCHES:]]


def _mldc_after(run: Sequence[CostedBatch]) -> list[float]:
    """The MLDC of each batch that ran with another plan than the first."""
    return [batch.mldc for batch in run if batch.plan_epoch > run[0].plan_epoch]


@dataclass(frozen=True)
class CourseFigure(FigureRow):
    column: str
    unit: str
    title: str
    summarise: Callable[[Sequence[CourseRun]], dict[str, float]]
    threshold: float | None = None
    """The MLDC above which the strategy redistributes."""


FIGURES = {
    "distributor-fig6": CourseFigure(
        "Distributor Fig. 6",
        "throughput over time, sPS at three skews, static, load-based, and tuned by itself",
        "events_per_s",
        "publications per second",
        "Throughput over time, sPS",
        _gains,
    ),
    "distributor-fig7": CourseFigure(
        "Distributor Fig. 7",
        "the maximum load distance coefficient over time, sPS at three skews",
        "mldc",
        "MLDC",
        "MLDC over time, sPS",
        _distances,
        threshold=Distributor().threshold,
    ),
}


def measure(shown: CourseFigure, sizes: CourseSizes, seed: int, report: Progress) -> Result:
    country = britain()
    report("starting Spark")
    with bench_session() as spark, tempfile.TemporaryDirectory() as folder:
        runs = run_course(CollisionRuns(spark, country, sizes.each, seed, Path(folder)), sizes, report)
    return course_result(shown, runs, country, sizes)


def course_result(shown: CourseFigure, runs: Sequence[CourseRun], country: Britain, course: CourseSizes) -> Result:
    config = {"course": course._asdict(), "machines": MACHINES, "country": country.source, "pipeline": PIPELINE}
    return Result(course_rows(runs), shown.summarise(runs), config)


def run_course(stage: CollisionRuns, course: CourseSizes, report: Progress) -> list[CourseRun]:
    runs = list[CourseRun]()
    for skew in course.skews:
        measured, rounds = list[list[CostedBatch]](), list[list[RoundEntry]]()
        for mode in SHOWN:
            report(f"{mode.name} at {skew}")
            batches, decided = stage.run(PIPELINE, mode, skew)
            measured.append(batches)
            rounds.append(decided)
        runs += map(CourseRun, [skew] * len(SHOWN), SHOWN, at_common_costs(measured), measured, rounds)
    return runs


def course_rows(runs: Sequence[CourseRun]) -> list[dict[str, Any]]:
    return [
        {
            "skew": r.skew,
            "mode": r.mode.name,
            "s": (number + 1) * ROUND_S,
            "events_per_s": batch.events / batch.makespan_s,
            "mldc": batch.mldc,
            "mldc_as_measured": r.measured[WARM_BATCHES + number].mldc,
            "moves_after": r.rounds[number].applied if number < len(r.rounds) else 0,
            "match_mean_ms": batch.mean_s * 1e3,
            "plan": batch.plan_epoch,
        }
        for r in runs
        for number, batch in enumerate(r.levelled[WARM_BATCHES:])
    ]


def plot(shown: CourseFigure, result: Result) -> "Figure":
    skews = list(dict.fromkeys(row["skew"] for row in result.rows))
    drawn, panels = figure(len(skews), width_in=5.0, height_in=4.4)
    for panel, skew in zip(panels, skews, strict=True):
        for mode in SHOWN:
            line = [row for row in result.rows if (row["skew"], row["mode"]) == (skew, mode.name)]
            label = mode.name if panel is panels[0] else None
            width = 3.0 if mode == OURS else 1.6
            panel.plot([row["s"] for row in line], [row[shown.column] for row in line], label=label, linewidth=width)
        if shown.threshold is not None:
            panel.axhline(shown.threshold, color="black", linestyle="--", marker="", linewidth=1.2)
        panel.set(title=f"skew {skew}", xlabel="seconds of the stream", ylim=(0, None))
    panels[0].set_ylabel(shown.unit)
    drawn.suptitle(f"{shown.title} ({shown.where})")
    drawn.legend(loc="outside lower center", ncols=3)
    return drawn
