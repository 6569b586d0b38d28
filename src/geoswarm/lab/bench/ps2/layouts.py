"""PS2Stream's seven layouts on its own machines: what its Figures 6 to 11 share.

Measures nothing by itself; `engine.py` has the same layouts on the real engine. Machines are those of
`run/sim/words.py`, 4 dispatchers and 8 workers, each with a grid-inverted index of 2^6 × 2^6 cells (§VI-B) and queries
of its own, and c1 to c4 as measured on the engine's index. A layout draws its plan from a day of posts and all queries,
and is measured on the days after it, at saturation: a step takes as long as the slowest worker.

`definition_1` is what the same plan takes if workers took what Definition 1 says: there, each event is compared with a
fixed share of all queries of its worker, wherever they lie. An index only compares those of its cell and words, so the
pairs to compare are the same for all layouts, and crowded cells have most of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geoswarm.control.balance.tally import plan_arrays, slots_of
from geoswarm.control.layout.blocks import BLOCKS
from geoswarm.control.layout.by_frequency import by_frequency
from geoswarm.control.layout.by_hypergraph import by_hypergraph
from geoswarm.control.layout.by_metric import by_metric
from geoswarm.control.layout.grid_cells import grid_cells
from geoswarm.control.layout.hybrid import hybrid
from geoswarm.control.layout.kd_tree import kd_tree
from geoswarm.control.layout.load_model import Costs, executor_loads
from geoswarm.control.layout.r_tree import r_tree
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.lab.bench.kit.harness import Progress, Scale
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.kit.plots import PALETTE, figure
from geoswarm.lab.workload.posts import POSTS_PER_CHANGE, Posts, QueryKind
from geoswarm.lab.workload.real_stream import RealStream
from geoswarm.run.sim.words import Machines, MachinesSetup, in_cells
from geoswarm.run.sim.words_kernels import ListRouting, ServedTuples, serve_changes
from geoswarm.run.sim.words_spans import throughput
from geoswarm.run.sim.words_stream import TextRun, TextScale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAYOUTS: dict[str, Callable[..., Plan]] = {
    "frequency": by_frequency,
    "hypergraph": by_hypergraph,
    "metric": by_metric,
    "grid": grid_cells,
    "kd-tree": kd_tree,
    "r-tree": r_tree,
    "hybrid": hybrid,
}
BASELINES = tuple(name for name in LAYOUTS if name != "hybrid")
RIVALS = ("metric", "kd-tree", "hybrid")
"""§VI-C: the best by text, the best by space, and both."""
MU = {"Q1": 5_000_000, "Q2": 10_000_000, "Q3": 10_000_000}
"""Queries there are, as the paper says under Figures 6 and 8."""
COUNTRIES = ("US", "GB")
WORKERS = 8
CELLS_PER_SIDE = 64
CHANGE_SHARE = 0.05
"""The share of queries that change in a step."""
DAY_S = 86_400.0


class QueryCase(NamedTuple):
    country: str
    queries: QueryKind

    @property
    def name(self) -> str:
        return f"{self.country}-{self.queries}"

    def posts(self, seed: int, events_per_s: float) -> Posts:
        bounds: Any = US if self.country == "US" else None
        return Posts(seed=seed, country=self.country, bounds=bounds, events_per_s=events_per_s)


class LayoutSizes(NamedTuple):
    live: int
    """Queries drawn, each of which stands for many."""
    events: int
    """Posts drawn in a step, which is a day: the time of day plays no part."""
    steps: int
    """Steps after the first, from which plans are drawn."""


SIZES = {Scale.SMALL: LayoutSizes(40_000, 6_000, 2), Scale.FULL: LayoutSizes(300_000, 20_000, 4)}
"""The fewer queries are drawn, the fewer lists there are, and the fewer workers a post visits where words are divided:
0.5 more than one at 10 k drawn queries, 2.9 at 300 k. So small scale is too good to layouts that divide words."""


@dataclass(frozen=True, eq=False)
class LayoutWorld:
    case: QueryCase
    sizes: LayoutSizes
    stream: TextRun
    setup: MachinesSetup

    @classmethod
    def of(
        cls,
        case: QueryCase,
        sizes: LayoutSizes,
        seed: int,
        workers: int = WORKERS,
        posts: Posts | RealStream | None = None,
    ) -> "LayoutWorld":
        """A world of posts that are made up, unless others are given."""
        posts = posts or case.posts(seed, sizes.events / DAY_S)
        grid = Grid(*posts.bounds, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE)
        scale = TextScale(sizes.live, MU[case.queries] // sizes.live, sizes.events, round(sizes.live * CHANGE_SHARE))
        setup = MachinesSetup(workers=workers, sample_events=sizes.events, sample_queries=sizes.live)
        return cls(case, sizes, TextRun(posts, grid, scale, sizes.steps + 1, case.queries), setup)

    def with_workers(self, workers: int) -> "LayoutWorld":
        return self._with(replace(self.setup, workers=workers))

    def _with(self, setup: MachinesSetup) -> "LayoutWorld":
        """The same draws for other machines."""
        other = LayoutWorld(self.case, self.sizes, self.stream, setup)
        other.__dict__["text"] = self.text
        return other

    @cached_property
    def text(self) -> TextSample:
        sample = self.stream.sample(np.arange(self.sizes.events), np.arange(self.sizes.live))
        assert sample.texts is not None
        assert sample.keywords is not None
        text = TextSample.of(self.stream.grid, sample.points, sample.rects, sample.texts, sample.keywords)
        return replace(text, blocks_max=BLOCKS**2)  # lists as these machines have them

    @property
    def costs(self) -> Costs:
        """The costs of the sample, in which a drawn query stands for many; by lists, as the machines are."""
        return replace(self.setup.sample_costs(self.stream.scale), by_lists=True)

    def plan(self, layout: str) -> Plan:
        return LAYOUTS[layout](self.stream.grid, self.setup.workers, self.text, costs=self.costs)

    def measure_plan(self, layout: str, plan: Plan) -> dict[str, Any]:
        spans = Machines(self.stream, in_cells(plan), None, self.setup).run(1)
        tuples, busy_s = sum(span.tuples for span in spans), np.sum([span.busy_s for span in spans], axis=0)
        events = self.sizes.steps * self.sizes.events * self.stream.scale.event_weight
        held = np.bincount(
            workers_of_queries(self.stream, plan, self.setup.workers).workers, minlength=self.setup.workers
        )
        return {
            "case": self.case.name,
            "layout": layout,
            "workers": self.setup.workers,
            "tuples_per_s": throughput(spans),
            "definition_1_tuples_per_s": self._by_definition(plan),
            "max_over_mean": float(busy_s.max() / busy_s.mean()),
            "if_level_tuples_per_s": tuples / float(busy_s.mean()),
            "copies_per_event": sum(span.copies for span in spans) / events,
            "dropped_share": sum(span.dropped for span in spans) / events,
            "copies_per_query": float(held.sum()) / self.sizes.live - 1.0,
        }

    def _by_definition(self, plan: Plan) -> float:
        """The costs are per event of the sample, with the changes of queries that come with it."""
        worst_us = float(executor_loads(plan, self.text, replace(self.costs, by_lists=False)).max())
        return self.sizes.events * (1.0 + 1.0 / POSTS_PER_CHANGE) / (worst_us * 1e-6)


def run_layouts(worlds: Sequence[LayoutWorld], layouts: Sequence[str], report: Progress) -> list[dict[str, Any]]:
    rows = []
    for world in worlds:
        for layout in layouts:
            report(f"{layout} on simulated {world.case.name}")
            rows.append(world.measure_plan(layout, world.plan(layout)))
    return rows


def layout_worlds(queries: Sequence[QueryKind], sizes: LayoutSizes, seed: int) -> list[LayoutWorld]:
    return [LayoutWorld.of(QueryCase(country, asked), sizes, seed) for asked in queries for country in COUNTRIES]


def workers_of_queries(stream: TextRun, plan: Plan, workers: int) -> ServedTuples:
    """By query of those that are there at first: the workers that keep it."""
    way = way_of(stream, plan)
    none = np.zeros(stream.count, np.bool_)
    return serve_changes(np.arange(stream.scale.live), stream.of_queries, way, way, none, (0.0, 0.0), workers)


def way_of(stream: TextRun, plan: Plan) -> ListRouting:
    """A plan by lists, with the queries that are there at first."""
    places = plan.slot_of_cell[stream.cell_of_list].astype(np.int64)
    slots = slots_of(places, stream.term_of_list, plan_arrays(plan, stream.text.hashes))
    of = stream.of_queries
    counts = np.bincount(of.terms[: of.offsets[stream.scale.live]], minlength=stream.lists)
    return ListRouting(slots, plan.executor_of_slot.astype(np.int64), counts)


def hybrid_ratios(rows: Sequence[dict[str, Any]], value: str, prefix: str = "") -> dict[str, float]:
    """The claims of §VI-C. Of several countries, the least; a figure may lack one of the cases or layouts."""
    found: dict[str, float] = {}
    least: dict[str, list[float]] = {"kdtree_q3": [], "metric_q3": [], "worst": []}
    for case in dict.fromkeys(row["case"] for row in rows):
        here = {row["layout"]: row[value] for row in rows if row["case"] == case}
        best_rival = max(figure for name, figure in here.items() if name != "hybrid")
        least["worst"].append(here["hybrid"] / best_rival)
        if case.endswith("Q3"):
            least["kdtree_q3"].append(here["hybrid"] / here["kd-tree"])
            least["metric_q3"].append(here["hybrid"] / here["metric"])
    for key, ratios in least.items():
        if ratios:
            found[f"{prefix}hybrid_{key if key == 'worst' else f'vs_{key}'}"] = min(ratios)
    return found


def layout_bars(
    panels: Sequence[tuple[str, Sequence[dict[str, Any]], str]], y_label: str, scale: float = 1e3, log: bool = False
) -> "Figure":
    """Grouped bars as in the paper: a panel is a title, its rows and the column that it shows; groups are cases."""
    drawn, axes = figure(len(panels), width_in=6.4)
    for panel, (title, rows, value) in zip(axes, panels, strict=True):
        cases, layouts = (list(dict.fromkeys(row[key] for row in rows)) for key in ("case", "layout"))
        width = 0.8 / len(layouts)
        for i, layout in enumerate(layouts):
            heights = {row["case"]: row[value] / scale for row in rows if row["layout"] == layout}
            at = np.arange(len(cases)) + (i - (len(layouts) - 1) / 2) * width
            colour = PALETTE[list(LAYOUTS).index(layout)]
            panel.bar(at, [heights.get(case, 0.0) for case in cases], width, label=layout, color=colour)
        panel.set_xticks(range(len(cases)), cases)
        panel.set(title=title, ylabel=y_label, yscale="log" if log else "linear")
    axes[0].legend(ncols=2)
    return drawn
