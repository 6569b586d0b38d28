"""PS2Stream Fig. 6: throughput of the six baselines on Q1 and Q2 with 8 workers, simulated and on the real engine.

The print: by space 161 k tuples/s (grid) and by text 77 k (frequency) on US-Q1; by text 267 k (metric) and by space 182
k (R-tree) on US-Q2. Simulated machines are in `ps2_layouts.py`, what is projected from the engine in `ps2_engine.py`.
"""

from typing import TYPE_CHECKING, Any

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.ps2 import engine as ps2_engine
from geoswarm.lab.bench.ps2.layouts import BASELINES, COUNTRIES, FULL, SMALL, Case, bars, raced, worlds_of
from geoswarm.run.spark.session import build_session

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BY_TEXT, BY_SPACE = BASELINES[:3], BASELINES[3:]
SIM = {Scale.SMALL: SMALL, Scale.FULL: FULL}
ENGINE = {
    Scale.SMALL: ps2_engine.Sizes(20_000, 4_000, 8_000, 2, 1),
    Scale.FULL: ps2_engine.Sizes(1_000_000, 100_000, 200_000, 4, 3),
}
ENGINE_COUNTRIES = {Scale.SMALL: COUNTRIES[:1], Scale.FULL: COUNTRIES}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    rows = raced(worlds_of(("Q1", "Q2"), SIM[scale], seed), BASELINES, report)
    report("starting Spark")
    spark = build_session(ps2_engine.MASTER, "geoswarm-bench")
    try:
        engine = [
            row
            for country in ENGINE_COUNTRIES[scale]
            for case in (Case(country, "Q1"), Case(country, "Q2"))
            for row in ps2_engine.raced(spark, case, ENGINE[scale], seed, BASELINES, report)
        ]
    finally:
        spark.stop()
    summary = space_vs_text(rows, "tuples_per_s") | space_vs_text(engine, "projected_tuples_per_s", "engine_")
    config = {"simulated": SIM[scale]._asdict(), "engine": ENGINE[scale]._asdict()}
    return Result([{"machines": "simulated", **row} for row in rows] + _of_engine(engine), summary, config)


def _of_engine(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"machines": "engine, projected", **row} for row in rows]


def space_vs_text(rows: list[dict[str, Any]], value: str, prefix: str = "") -> dict[str, float]:
    """In each case: the best by space, and the best by text."""
    found = {}
    for case in dict.fromkeys(row["case"] for row in rows):
        here = {row["layout"]: row[value] for row in rows if row["case"] == case}
        best = [max(here[name] for name in names if name in here) for names in (BY_SPACE, BY_TEXT)]
        found[f"{prefix}space_vs_text_{case.lower().replace('-', '_')}"] = best[0] / best[1]
    return found


def plot(result: Result) -> "Figure":
    simulated, engine = (
        [row for row in result.rows if row["machines"].startswith(kind)] for kind in ("simulated", "engine")
    )
    panels = [
        ("Baselines (PS2Stream Fig. 6), simulated", simulated, "tuples_per_s"),
        ("the real engine, projected to 8 machines", engine, "projected_tuples_per_s"),
    ]
    return bars(panels, "thousand tuples/s")
