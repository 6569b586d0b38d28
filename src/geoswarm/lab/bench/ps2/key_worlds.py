"""PS2Stream's layouts on its own machines, with all queries as bare keys: what Figure 7 is measured by.

`bare_keys.py` counts; `layouts.py` has the worlds of Figures 6 and 8 to 11, which draw fewer queries with their texts.
Machines are 4 dispatchers and 8 workers with queries of their own (§VI-C). A layout draws its plan from a day of posts
and is measured on the days after it, taken together, at saturation: as long as the slowest worker takes.

    a worker takes   c2 for each post that is sent to it, c1 for each query on the lists that the post meets,
                     c3 for each entry (cell, term) of a query that comes, c4 for each query that goes (§IV-D: deletion
                     only notes its id)

The planner knows what the dispatchers know: the words that any query is indexed under, and how long the lists are; of
the queries' places it has a sample. It counts lists as the machines do (`TextSample.own_lists`). c1 is as measured for
as many queries as a worker has (`c1_at`).

By Definition 1 each event is compared with a fixed share of all queries of its worker. `definition_1_...` is what
layouts that were drawn by it would take on machines that took what it says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from geoswarm.control.layout.load_model import COSTS, Costs, c1_at, executor_loads
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.layout.uniform import uniform
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.lab.bench.kit.harness import Progress
from geoswarm.lab.bench.ps2.bare_keys import count_under
from geoswarm.lab.bench.ps2.bare_queries import (
    BareQueries,
    asked_terms,
    draw_queries,
    numbers_of_words,
    text_sample,
    with_lists,
)
from geoswarm.lab.bench.ps2.layouts import DAY_S, LAYOUTS, MU, WORKERS, QueryCase
from geoswarm.lab.workload.posts import POSTS_PER_CHANGE, Posts
from geoswarm.run.sim.words import MachinesSetup

CELLS_PER_SIDE = 1024
"""Cells that plans cut, 16 × 16 to a cell of the index: a few kilometres, where the paper's leaves end anywhere."""


class KeySizes(NamedTuple):
    drawn: int
    """Queries drawn; μ at most."""
    planned: int
    """Those of them whose places a planner has."""
    events: int
    """Posts drawn in a day."""
    days: int
    """Days after the first, from which plans are drawn."""


@dataclass(frozen=True, eq=False)
class KeyWorld:
    case: QueryCase
    sizes: KeySizes
    seed: int
    costs: Costs
    """What a real tuple costs."""

    @classmethod
    def of(cls, case: QueryCase, sizes: KeySizes, seed: int) -> "KeyWorld":
        each_has = MU[case.queries] // WORKERS
        return cls(case, sizes, seed, replace(COSTS, c1_check=c1_at(each_has)))

    def with_costs(self, costs: Costs) -> "KeyWorld":
        """The same draws on other machines."""
        other = replace(self, costs=costs)
        other.__dict__.update({name: getattr(self, name) for name in ("queries", "_counted")})
        return other

    def with_handover(self, handover_us: float) -> "KeyWorld":
        """Machines to which handing over a tuple takes so much more: what Storm and its network take."""
        costs = self.costs
        dearer = {name: getattr(costs, name) + handover_us for name in ("c2_event", "c3_insertion", "c4_deletion")}
        return self.with_costs(replace(costs, **dearer))

    @cached_property
    def posts(self) -> Posts:
        return self.case.posts(self.seed, self.sizes.events / DAY_S)

    @property
    def grid(self) -> Grid:
        return Grid(*self.posts.bounds, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE)

    @property
    def query_weight(self) -> float:
        """The number of queries that a drawn one stands for."""
        return MU[self.case.queries] / self.sizes.drawn

    @cached_property
    def queries(self) -> BareQueries:
        numbers, _ = numbers_of_words(self.posts)
        return draw_queries(self.posts, self.grid, self.sizes.drawn, self.case.queries, numbers)

    @cached_property
    def _counted(self) -> tuple[TextSample, float]:
        events = (1 + self.sizes.days) * self.sizes.events
        bare = text_sample(self.posts, self.grid, events, self.queries.first(self.sizes.planned))
        bare = replace(bare, own_lists=True)
        counted = count_under(uniform(self.grid, 1), bare, self.queries)
        per_query = float(counted.entries.sum()) / self.sizes.drawn
        return with_lists(bare, asked_terms(bare, counted.is_sent), counted.checks), per_query

    @property
    def text(self) -> TextSample:
        """All posts, with the lists of all queries."""
        return self._counted[0]

    @property
    def entries_per_query(self) -> float:
        """Entries (cell, term) of a query, on an index of all."""
        return self._counted[1]

    def sample_costs(self, by_lists: bool = True) -> Costs:
        """The costs of the planner's sample, in which a query stands for many, and some of them come and go."""
        costs, come_share = self.costs, self.sizes.events / (2 * POSTS_PER_CHANGE * self.sizes.planned)
        handover_us = costs.c3_insertion - COSTS.c3_insertion
        insertion_us = costs.c3_entry * self.entries_per_query + handover_us
        return Costs(
            costs.c1_check * self.query_weight,
            costs.c2_event,
            insertion_us * come_share,
            costs.c4_deletion * come_share,
            by_lists=by_lists,
        )

    def plan(self, layout: str, by_lists: bool = True) -> Plan:
        first = self.text.of_events(np.arange(self.sizes.events))
        return LAYOUTS[layout](self.grid, WORKERS, first, costs=self.sample_costs(by_lists))

    def measure_plan(self, layout: str, plan: Plan) -> dict[str, Any]:
        later = self.text.of_events(np.arange(self.sizes.events, self.text.events))
        counted, costs, events = count_under(plan, later, self.queries), self.costs, later.events
        changes = events / (2 * POSTS_PER_CHANGE)
        handover_us = costs.c3_insertion - COSTS.c3_insertion
        requests = changes * counted.requests / self.sizes.drawn
        busy_us: Floats = (
            costs.c2_event * counted.visits
            + costs.c1_check * self.query_weight * counted.compared
            + costs.c3_entry * changes * counted.entries / self.sizes.drawn
            + (handover_us + costs.c4_deletion) * requests
        )
        tuples, setup = events * (1.0 + 1.0 / POSTS_PER_CHANGE), MachinesSetup()
        worst_us = max(float(busy_us.max()), tuples * setup.dispatch_us / setup.dispatchers)
        return {
            "case": self.case.name,
            "seed": self.seed,
            "layout": layout,
            "tuples_per_s": tuples / worst_us * 1e6,
            "if_level_tuples_per_s": tuples / float(busy_us.mean()) * 1e6,
            "max_over_mean": float(busy_us.max() / busy_us.mean()),
            "visits_per_event": float(counted.visits.sum()) / events,
            "compared_us": costs.c1_check * self.query_weight * float(counted.compared.sum()) / events,
            "copies_per_query": float(counted.requests.sum()) / self.sizes.drawn - 1.0,
            "leaves": len(np.unique(plan.slot_of_cell)),
            "divided_leaves": len(plan.siblings),
        }

    def by_definition(self, plan: Plan) -> float:
        """Tuples per second by Definition 1, for the days after the first."""
        later = self.text.of_events(np.arange(self.sizes.events, self.text.events))
        costs = self.sample_costs(by_lists=False)
        costs = replace(
            costs,
            c3_insertion=costs.c3_insertion * self.sizes.days,
            c4_deletion=costs.c4_deletion * self.sizes.days,
        )
        worst_us = float(executor_loads(plan, later, costs).max())
        return later.events * (1.0 + 1.0 / POSTS_PER_CHANGE) / worst_us * 1e6


def run_layouts_by_keys(
    worlds: Sequence[KeyWorld],
    layouts: Sequence[str],
    report: Progress,
    also: Callable[[KeyWorld, str], dict[str, float]] = lambda world, layout: {},
) -> list[dict[str, Any]]:
    """A row for each world and layout; `also` adds to it."""
    rows = []
    for world in worlds:
        for layout in layouts:
            report(f"{layout} on {world.case.name}, seed {world.seed}")
            rows.append(world.measure_plan(layout, world.plan(layout)) | also(world, layout))
    return rows
