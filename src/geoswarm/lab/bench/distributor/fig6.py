"""Distributor Fig. 6: throughput over time, sPS at three skews, static, load-based, and tuned by itself.

What is measured and projected is told in `distributor_race.py`; `distributor_fig7.py` has the MLDC of the same runs.
A batch is a round of 10 s. All modes here join at the static side, and are told at common costs, as in Fig. 4.
`settled_S` is the throughput of Dynamic LB over that of Static at skew S in the second half of the run, `gain_S` over
the whole; `..._auto` are of `distributor-auto`.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.lab.bench.distributor.race import (
    AUTO,
    BASE,
    MACHINES,
    MASTER,
    OURS,
    ROUND_S,
    WARM_BATCHES,
    Lap,
    Mode,
    Round,
    Sizes,
    Stage,
    at_common_costs,
    throughput,
)
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.postcodes import Britain, britain
from geoswarm.run.spark.session import build_session

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIPELINE = "sps"
SELF_TUNED = Mode(AUTO, "static")
SHOWN = (OURS, BASE, SELF_TUNED)


class Course(NamedTuple):
    sizes: Sizes
    skews: tuple[float, ...]


COURSES = {
    Scale.SMALL: Course(Sizes(2000, 2500, 8), (0.3, 0.7)),
    Scale.FULL: Course(Sizes(10_000, 4000, 14), (0.3, 0.5, 0.7)),
}


class Run(NamedTuple):
    skew: float
    mode: Mode
    laps: list[Lap]
    """At common costs."""
    measured: list[Lap]
    rounds: list[Round]


_timed: dict[tuple[Course, int], list[Run]] = {}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(None, britain(), COURSES[scale], seed, report)


def measure(spark: Any, country: Britain, course: Course, seed: int, report: Progress) -> Result:
    runs = timed(spark, country, course, seed, report)
    summary: dict[str, float] = {}
    for skew in course.skews:
        laps = {r.mode: r.laps for r in runs if r.skew == skew}
        for suffix, mode in (("", OURS), ("_auto", SELF_TUNED)):
            summary[f"gain_{skew}{suffix}"] = throughput(laps[mode]) / throughput(laps[BASE])
            summary[f"settled_{skew}{suffix}"] = _settled(laps[mode]) / _settled(laps[BASE])
    return result_of(runs, country, course, summary)


def timed(spark: Any, country: Britain, course: Course, seed: int, report: Progress) -> list[Run]:
    """Once in a process: two figures are drawn from it."""
    if (course, seed) not in _timed:
        report("starting Spark")
        session = spark or build_session(MASTER, "geoswarm-bench")
        try:
            with tempfile.TemporaryDirectory() as folder:
                stage, runs = Stage(session, country, course.sizes, seed, Path(folder)), list[Run]()
                for skew in course.skews:
                    measured, rounds = list[list[Lap]](), list[list[Round]]()
                    for mode in SHOWN:
                        report(f"{mode.name} at {skew}")
                        laps, decided = stage.run(PIPELINE, mode, skew)
                        measured.append(laps)
                        rounds.append(decided)
                    runs += map(Run, [skew] * len(SHOWN), SHOWN, at_common_costs(measured), measured, rounds)
                _timed[course, seed] = runs
        finally:
            if spark is None:
                session.stop()
    return _timed[course, seed]


def result_of(runs: Sequence[Run], country: Britain, course: Course, summary: dict[str, float]) -> Result:
    rows = []
    for r in runs:
        for number, lap in enumerate(r.laps[WARM_BATCHES:]):
            moved = r.rounds[number].moves if number < len(r.rounds) else 0
            rows.append(
                {
                    "skew": r.skew,
                    "mode": r.mode.name,
                    "s": (number + 1) * ROUND_S,
                    "events_per_s": lap.events / lap.makespan_s,
                    "mldc": lap.mldc,
                    "mldc_as_measured": r.measured[WARM_BATCHES + number].mldc,
                    "moves_after": moved,
                    "match_mean_ms": lap.mean_s * 1e3,
                    "plan": lap.plan_epoch,
                }
            )
    config = {"course": course._asdict(), "machines": MACHINES, "country": country.source, "pipeline": PIPELINE}
    return Result(rows, summary, config)


def _settled(laps: Sequence[Lap]) -> float:
    half = laps[len(laps) // 2 :]
    return sum(lap.events for lap in half) / sum(lap.makespan_s for lap in half)


def plot(result: Result) -> "Figure":
    return draw(result, "events_per_s", "publications per second", "Throughput over time, sPS (Distributor Fig. 6)")


def draw(result: Result, column: str, unit: str, title: str, threshold: float | None = None) -> "Figure":
    skews = list(dict.fromkeys(row["skew"] for row in result.rows))
    drawn, panels = figure(len(skews), width_in=5.0, height_in=4.4)
    for panel, skew in zip(panels, skews, strict=True):
        for mode in SHOWN:
            line = [row for row in result.rows if (row["skew"], row["mode"]) == (skew, mode.name)]
            label = mode.name if panel is panels[0] else None
            width = 3.0 if mode == OURS else 1.6
            panel.plot([row["s"] for row in line], [row[column] for row in line], label=label, linewidth=width)
        if threshold is not None:
            panel.axhline(threshold, color="black", linestyle="--", marker="", linewidth=1.2)
        panel.set(title=f"skew {skew}", xlabel="seconds of the stream", ylim=(0, None))
    panels[0].set_ylabel(unit)
    drawn.suptitle(title)
    drawn.legend(loc="outside lower center", ncols=3)
    return drawn
