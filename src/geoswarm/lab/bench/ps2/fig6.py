"""PS2Stream Fig. 6: throughput of the six baselines on Q1 and Q2 with 8 workers, simulated and on the real engine.

The paper: by space 161 k tuples/s (grid) and by text 77 k (frequency) on US-Q1; by text 267 k (metric) and by space 182
k (R-tree) on US-Q2. Simulated machines are in `layouts.py`, what is projected from the engine in `engine.py`.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.ps2 import layouts
from geoswarm.lab.bench.ps2.engine import LayoutEngineSizes, run_cases_on_engine
from geoswarm.lab.bench.ps2.layouts import BASELINES, COUNTRIES, LayoutSizes, QueryCase, layout_bars, run_layouts
from geoswarm.lab.workload.posts import QueryKind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BY_TEXT, BY_SPACE = BASELINES[:3], BASELINES[3:]
QUERIES: tuple[QueryKind, ...] = ("Q1", "Q2")


class BaselineSizes(NamedTuple):
    simulated: LayoutSizes
    engine: LayoutEngineSizes
    engine_countries: tuple[str, ...]


SIZES = {
    Scale.SMALL: BaselineSizes(
        layouts.SIZES[Scale.SMALL], LayoutEngineSizes(20_000, 4_000, 8_000, 2, 1), COUNTRIES[:1]
    ),
    Scale.FULL: BaselineSizes(
        layouts.SIZES[Scale.FULL], LayoutEngineSizes(1_000_000, 100_000, 200_000, 4, 3), COUNTRIES
    ),
}


def measure(sizes: BaselineSizes, seed: int, report: Progress) -> Result:
    rows = run_layouts(layouts.layout_worlds(QUERIES, sizes.simulated, seed), BASELINES, report)
    cases = [QueryCase(country, queries) for country in sizes.engine_countries for queries in QUERIES]
    engine = run_cases_on_engine(cases, sizes.engine, seed, BASELINES, report)
    summary = space_vs_text(rows, "tuples_per_s") | space_vs_text(engine, "projected_tuples_per_s", "engine_")
    config = {"simulated": sizes.simulated._asdict(), "engine": sizes.engine._asdict()}
    return Result([{"machines": "simulated", **row} for row in rows] + _of_engine(engine), summary, config)


def _of_engine(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"machines": "engine, projected", **row} for row in rows]


def space_vs_text(rows: list[dict[str, Any]], value: str, prefix: str = "") -> dict[str, float]:
    """In each case, the best by space over the best by text."""
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
    return layout_bars(panels, "thousand tuples/s")
