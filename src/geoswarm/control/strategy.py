"""The interface of a balancing strategy: a plan and a report go in, changes come out.

A strategy may keep memory between rounds, but it has no clock, no file and no Spark: `now_s` is in the report, chance
is an argument. The coordinator (`coordinator.py`) applies the changes to the plan, or refuses them, and records why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.change import Change, ChangeNote
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.flow.observe import LoadReport

Why = dict[str, float | int | str]
"""The numbers behind a decision, by name, for the journal. A `sentence` and a `warning`, if there are any, are shown to
people as they are."""


@dataclass(frozen=True)
class RoundReport:
    """What one round measured."""

    round: int
    now_s: float
    load: LoadReport
    """Events, matches and CPU time per partition, summed over the round's batches."""
    stats: Mapping[int, TrioStat]
    """The statistics by partition id, after the round was closed."""
    sample: "Sample | None" = None
    """Some recent events and live subscriptions with their words; None unless the strategy `needs_sample`."""
    subscriptions: int = 0
    """How many are live, about; counted for strategies that read cells."""


class WatchedRound(NamedTuple):
    """A round of places that executors would have, if events were not dealt out among all: what Guard looks at then."""

    plan: Plan
    """As it was in this round."""
    changes: Sequence[ChangeNote]
    """What would have changed; none if a fresh plan would have been drawn."""
    work_us: Mapping[int, float]
    """By partition."""


@dataclass(frozen=True)
class Decision:
    """The changes that a strategy asks for, and the numbers behind them, for the journal."""

    changes: Sequence[Change] = ()
    why: Mapping[str, float | int | str] = field(default_factory=dict)
    fresh: Plan | None = None
    """A new plan that replaces the one in force, instead of changes to it."""
    watched: WatchedRound | None = None
    """The places that would have changed, from a strategy that `WatchesPlaces`."""


class Sample(NamedTuple):
    """A part of the stream, recent or from before the start, in the grid's own coordinates."""

    points: Floats
    """(n, 2): x, y."""
    rects: Floats
    """(n, 4): xmin, ymin, xmax, ymax of subscriptions."""
    texts: pa.StringArray | None = None
    """The text of each point, where words matter."""
    keywords: pa.StringArray | None = None
    """The keywords of each subscription; null: it has no condition on words."""
    weight: float = 1.0
    """How many subscriptions each of these stands for."""

    @property
    def subscriptions(self) -> int:
        """How many there are, of which `rects` are some."""
        return round(self.weight * len(self.rects))


class Strategy(Protocol):
    """Every parameter of its constructor has a default, so that `registry.py` can make any by its name alone.

    Parameters are keywords, with type and limits in the signature (`parameters.py`), and the class says in one
    sentence what it does: `geoswarm strategies` lists both."""

    name: str
    needs_stats: bool
    """Whether it reads `RoundReport.stats`; if not, they are not counted."""
    needs_sample: bool
    """Whether it reads `RoundReport.sample`."""

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        """The plan of epoch 0. Most strategies use no sample and take equal shares of the map; see also
        `DrawsFromSample`."""

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        """The decision for a round; the plan stays if it has no changes."""

    def estimate(self, plan: Plan, report: RoundReport) -> float:
        """The cost of the costliest executor under `plan`, in force or proposed, by the strategy's own measure. The
        coordinator refuses a plan that raises it."""


@runtime_checkable
class DrawsFromSample(Protocol):
    """A strategy whose first plan is drawn from a sample. If none is given, the first batch is the sample."""

    draws_from_sample: bool


def draws_from_sample(strategy: Strategy) -> bool:
    return isinstance(strategy, DrawsFromSample) and strategy.draws_from_sample


@runtime_checkable
class KeepsPlans(Protocol):
    """A strategy that can go on from a plan that another one has drawn; the others draw a first plan of their own."""

    def keeps(self, plan: Plan) -> bool: ...


@runtime_checkable
class ReadsCells(Protocol):
    """A strategy that reads `LoadReport.cells`; for others, they are not counted. When the number of executors changes,
    it is shown its last report again, which may be of the plan before."""

    @property
    def reads_cells(self) -> bool:
        """Whether it does at present."""


@runtime_checkable
class WatchesPlaces(Protocol):
    """A strategy that deals events out, so that nothing need change when a place becomes hot. Guard finds attackers at
    places that make plans change: if it is on, this follows what places would have done (`Decision.watched`)."""

    watches: bool


def watch_places(strategy: Strategy) -> Strategy:
    """The same strategy, for an engine with Guard."""
    if isinstance(strategy, WatchesPlaces):
        strategy.watches = True
    return strategy


@runtime_checkable
class SuitsPairs(Protocol):
    """A strategy with another for pipelines without an index that stays, where an event is tested against every
    subscription of its partition, or the index is made anew for each batch: small partitions are cheap there."""

    def for_pairs(self) -> Strategy: ...


@runtime_checkable
class PlansBatches(Protocol):
    """A strategy that also draws a plan for every batch, from the events in it."""

    weighs_queries: bool
    """Whether it reads `queries_of_cell`; if not, they are not counted."""

    def plan_batch(self, plan: Plan, events_of_cell: Ints, queries_of_cell: Ints) -> Plan:
        """The successor of `plan` for one batch. Queries are those known after the batch before."""
