"""PS2Stream Fig. 11: throughput of hybrid, kd-tree and metric over 2 to 24 workers.

Simulated (`layouts.py`), with 4 dispatchers as in the paper, which shows GB-Q1 and two more. A layout by space can
never beat its most crowded cell: the cells are the paper's 64 × 64, and New York is one.

Where the files of `lab/workload/real_posts.py` are at hand, there are rows of real posts, too: news with a place in
the US, each once, and queries made from them (`lab/workload/real_stream.py`); as they are few, steps are shorter. Their
cases are called `news`, and their keys `real_...`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.ps2 import layouts
from geoswarm.lab.bench.ps2.layouts import COUNTRIES, RIVALS, LayoutSizes, LayoutWorld, QueryCase, layout_worlds
from geoswarm.lab.workload.posts import QueryKind
from geoswarm.lab.workload.real_posts import at_hand
from geoswarm.lab.workload.real_stream import RealStream

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NEWS = "news"
QUERIES: tuple[QueryKind, ...] = ("Q1", "Q2", "Q3")


class SpeedupSizes(NamedTuple):
    simulated: LayoutSizes
    workers: tuple[int, ...]
    countries: tuple[str, ...]


SIZES = {
    Scale.SMALL: SpeedupSizes(layouts.SIZES[Scale.SMALL], (2, 8, 24), COUNTRIES[1:]),
    Scale.FULL: SpeedupSizes(layouts.SIZES[Scale.FULL], (2, 4, 8, 16, 24), COUNTRIES),
}


def measure(sizes: SpeedupSizes, seed: int, report: Progress) -> Result:
    made = [w for w in layout_worlds(QUERIES, sizes.simulated, seed) if w.case.country in sizes.countries]
    rows = _over_workers(made, sizes.workers, report)
    summary = _speedups(rows, sizes.workers)
    if at_hand(NEWS):
        real = _over_workers(news_worlds(sizes.simulated, seed), sizes.workers, report)
        summary |= {f"real_{key}": value for key, value in _speedups(real, sizes.workers).items()}
        rows += real
    return Result(rows, summary, {**sizes.simulated._asdict(), "workers": sizes.workers})


def news_worlds(sizes: LayoutSizes, seed: int) -> list[LayoutWorld]:
    """No post is in two steps, or plans would be drawn from what they are judged by."""
    news = RealStream.of(NEWS, US, seed)
    shorter = sizes._replace(events=min(sizes.events, news.posts.num_rows // (sizes.steps + 1)))
    return [LayoutWorld.of(QueryCase(NEWS, queries), shorter, seed, posts=news) for queries in QUERIES]


def _over_workers(worlds: Sequence[LayoutWorld], workers: Sequence[int], report: Progress) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for world in worlds:
        for count in workers:
            machines = world.with_workers(count)
            for layout in RIVALS:
                report(f"{layout}, {world.case.name}, {count} workers")
                rows.append(machines.measure_plan(layout, machines.plan(layout)))
    return rows


def _speedups(rows: Sequence[dict[str, Any]], workers: Sequence[int]) -> dict[str, float]:
    by = {(row["case"], row["workers"], row["layout"]): row["tuples_per_s"] for row in rows}
    cases, (least, most) = dict.fromkeys(row["case"] for row in rows), (workers[0], workers[-1])
    found = {
        f"{layout.replace('-', '')}_speedup_{most}_over_{least}": min(
            by[c, most, layout] / by[c, least, layout] for c in cases
        )
        for layout in RIVALS
    }
    found[f"hybrid_worst_at_{most}"] = min(
        by[c, most, "hybrid"] / max(by[c, most, rival] for rival in ("kd-tree", "metric")) for c in cases
    )
    return found


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
