"""PS2Stream Fig. 11: throughput of hybrid, kd-tree and metric over 2 to 24 workers.

Simulated (`layouts.py`), with 4 dispatchers as in the paper, which shows GB-Q1 and two more. A layout by space can
never beat its most crowded cell: the cells are the paper's 64 × 64, and New York is one.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.ps2 import layouts
from geoswarm.lab.bench.ps2.layouts import COUNTRIES, RIVALS, LayoutSizes, layout_worlds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class SpeedupSizes(NamedTuple):
    simulated: LayoutSizes
    workers: tuple[int, ...]
    countries: tuple[str, ...]


SIZES = {
    Scale.SMALL: SpeedupSizes(layouts.SIZES[Scale.SMALL], (2, 8, 24), COUNTRIES[1:]),
    Scale.FULL: SpeedupSizes(layouts.SIZES[Scale.FULL], (2, 4, 8, 16, 24), COUNTRIES),
}


def measure(sizes: SpeedupSizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    for world in layout_worlds(("Q1", "Q2", "Q3"), sizes.simulated, seed):
        if world.case.country not in sizes.countries:
            continue
        for workers in sizes.workers:
            machines = world.with_workers(workers)
            for layout in RIVALS:
                report(f"{layout}, {world.case.name}, {workers} workers")
                rows.append(machines.measure_plan(layout, machines.plan(layout)))
    by = {(row["case"], row["workers"], row["layout"]): row["tuples_per_s"] for row in rows}
    cases, (least, most) = dict.fromkeys(row["case"] for row in rows), (sizes.workers[0], sizes.workers[-1])
    summary = {
        f"{layout.replace('-', '')}_speedup_{most}_over_{least}": min(
            by[c, most, layout] / by[c, least, layout] for c in cases
        )
        for layout in RIVALS
    }
    summary[f"hybrid_worst_at_{most}"] = min(
        by[c, most, "hybrid"] / max(by[c, most, rival] for rival in ("kd-tree", "metric")) for c in cases
    )
    return Result(rows, summary, {**sizes.simulated._asdict(), "workers": sizes.workers})


def plot(result: Result) -> "Figure":
    cases = list(dict.fromkeys(row["case"] for row in result.rows))
    drawn, axes = figure(len(cases), width_in=5.0)
    for panel, case in zip(axes, cases, strict=True):
        for layout in RIVALS:
            here = [row for row in result.rows if (row["case"], row["layout"]) == (case, layout)]
            panel.plot([row["workers"] for row in here], [row["tuples_per_s"] / 1e3 for row in here], label=layout)
        panel.set(title=f"{case} (PS2Stream Fig. 11)", xlabel="workers", ylabel="thousand tuples/s")
        panel.set_ylim(bottom=0)
    axes[0].legend()
    return drawn
