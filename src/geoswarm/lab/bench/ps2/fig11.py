"""PS2Stream Fig. 11: throughput of hybrid, kd-tree and metric over 2 to 24 workers.

Simulated (`ps2_layouts.py`), with 4 dispatchers as in the print, which shows GB-Q1 and two more. A layout by space can
never beat its most crowded cell: the cells are the print's 64 × 64, and New York is one.
"""

from typing import TYPE_CHECKING, Any

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.ps2.layouts import COUNTRIES, FULL, RIVALS, SMALL, worlds_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORKERS = {Scale.SMALL: (2, 8, 24), Scale.FULL: (2, 4, 8, 16, 24)}
SHOWN = {Scale.SMALL: COUNTRIES[1:], Scale.FULL: COUNTRIES}
SIZES = {Scale.SMALL: SMALL, Scale.FULL: FULL}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    for world in worlds_of(("Q1", "Q2", "Q3"), SIZES[scale], seed):
        if world.case.country not in SHOWN[scale]:
            continue
        for workers in WORKERS[scale]:
            machines = world.with_workers(workers)
            for layout in RIVALS:
                report(f"{layout}, {world.case.name}, {workers} workers")
                rows.append(machines.measured(layout, machines.plan(layout)))
    by = {(row["case"], row["workers"], row["layout"]): row["tuples_per_s"] for row in rows}
    cases, (least, most) = dict.fromkeys(row["case"] for row in rows), (WORKERS[scale][0], WORKERS[scale][-1])
    summary = {
        f"{layout.replace('-', '')}_speedup_{most}_over_{least}": min(
            by[c, most, layout] / by[c, least, layout] for c in cases
        )
        for layout in RIVALS
    }
    summary[f"hybrid_worst_at_{most}"] = min(
        by[c, most, "hybrid"] / max(by[c, most, rival] for rival in ("kd-tree", "metric")) for c in cases
    )
    return Result(rows, summary, {**SIZES[scale]._asdict(), "workers": WORKERS[scale]})


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
