"""What a balancing strategy is: a plan and a report in, changes out. Nothing is done here, only said.

A strategy keeps whatever memory it needs between rounds, but no clock, no file and no Spark: `now_s` is in the report,
chance is an argument. The coordinator (`coordinator.py`) applies the changes to the plan, or refuses them, and writes
down why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.change import Change
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.flow.observe import LoadReport


@dataclass(frozen=True)
class RoundReport:
    """What one round measured."""

    round: int
    now_s: float
    load: LoadReport
    """Events, matches and CPU time per partition, summed over the round's batches."""
    stats: Mapping[int, TrioStat]
    """By partition id, the round closed."""
    sample: "Sample | None" = None
    """Some recent events and live subscriptions, with their words, where somebody keeps them."""


@dataclass(frozen=True)
class Decision:
    """What a strategy wants, and the numbers that made it want it, for the journal."""

    changes: Sequence[Change] = ()
    why: Mapping[str, float | int | str] = field(default_factory=dict)
    fresh: Plan | None = None
    """A plan that takes over as it is, instead of changes to the one in force."""


class Sample(NamedTuple):
    """Some of the stream, before it starts or lately, in the grid's own coordinates."""

    points: Floats
    """(n, 2): x, y."""
    rects: Floats
    """(n, 4): xmin, ymin, xmax, ymax of subscriptions."""
    texts: pa.StringArray | None = None
    """What was said at each point, where words matter."""
    keywords: pa.StringArray | None = None
    """What each subscription asks for; null: nothing but its place."""


class Strategy(Protocol):
    """Every parameter of its constructor has a default, so that `registry.py` can make any by its name alone.

    Parameters are keywords, with type and limits in the signature (`geoswarm/parameters.py`), and the class says in one
    sentence what it does: `geoswarm strategies` lists both."""

    name: str
    needs_stats: bool
    """Whether it looks at `RoundReport.stats`; if not, nobody counts them."""
    needs_sample: bool
    """Whether it looks at `RoundReport.sample`."""

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        """Epoch 0. Most know nothing and take equal shares of the map."""

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        """Called once a round. Empty changes: the plan stays."""

    def estimate(self, plan: Plan, report: RoundReport) -> float:
        """What the costliest executor would have cost under `plan`, which may be only proposed, by the strategy's own
        measure. The coordinator refuses what makes it worse."""


@runtime_checkable
class PlansBatches(Protocol):
    """A strategy that also draws a plan for every batch, from what is in it."""

    weighs_queries: bool
    """Whether it looks at `queries_of_cell`; if not, nobody counts them."""

    def plan_batch(self, plan: Plan, events_of_cell: Ints, queries_of_cell: Ints) -> Plan:
        """The successor of `plan`, for one batch. Queries are those of the batch before."""
