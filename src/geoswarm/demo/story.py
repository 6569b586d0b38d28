"""What a run of the demo has to tell: its batches as journalled, and the sums that view and report share."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import numpy as np

from geoswarm.cli.watch import Batch, Totals, rates
from geoswarm.config import Contract
from geoswarm.flow.observe import LoadReport
from geoswarm.jit import Floats, Ints
from geoswarm.layout.uniform import uniform
from geoswarm.space.grid import Grid
from geoswarm.space.plan import Plan
from geoswarm.workload.tweets import Tweets

DRAW_ROWS = 1_000_000
MAP_EVENTS_MAX = 30_000_000
"""Events drawn again for the map, about 5 M a second; of a longer run, evenly spaced pieces."""


@dataclass
class Story:
    workload: Tweets
    first_event: int
    """Events that earlier runs on the same checkpoint have used up."""
    contract: Contract
    batches: list[Batch] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    load: LoadReport = field(default_factory=LoadReport)
    changes: int = 0
    """Registrations and cancellations sent while the stream ran."""

    def add(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.batches.append(batch)
            self.totals.add([batch])
            self.load = self.load + LoadReport.from_json(batch)

    @cached_property
    def plan(self) -> Plan:
        return uniform(Grid.of(self.contract), self.contract.executors)

    # -- numbers

    @property
    def warm(self) -> list[Batch]:
        """Without the first batch, in which workers start and kernels are loaded; speeds are those of the others."""
        return self.batches[1:] or self.batches

    @property
    def rates(self) -> tuple[float, float]:
        """Events and matches per second once warm."""
        return rates(self.warm)

    @property
    def batch_s_p50(self) -> float:
        return float(statistics.median(batch["batch_s"] for batch in self.warm))

    @property
    def subscriptions(self) -> int:
        return int(self.batches[-1]["subscriptions"]) if self.batches else 0

    @property
    def cpu_s(self) -> Floats:
        """Seconds that each executor spent on matching."""
        seconds = np.zeros(self.contract.executors)
        for executor, cpu_us in self.load.cpu_us_by_executor().items():
            seconds[executor] = cpu_us / 1e6
        return seconds

    @property
    def events_by_executor(self) -> Ints:
        events = np.zeros(self.contract.executors, np.int64)
        for load in self.load.partitions.values():
            events[load.executor] += load.events
        return events

    @property
    def skew(self) -> float:
        """The busiest executor's CPU over the mean: 1 is perfect balance."""
        seconds = self.cpu_s
        return float(seconds.max() / seconds.mean()) if seconds.any() else 1.0

    @property
    def half_of_work(self) -> int:
        """How many executors do at least half of the work."""
        shares = np.cumsum(np.sort(self.cpu_s)[::-1])
        return int(np.searchsorted(shares, shares[-1] / 2) + 1)

    def stream_time(self, events: int) -> str:
        at_s = self.workload.start_s + (self.first_event + events) / self.workload.events_per_s
        return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M")

    # -- sentences

    @property
    def totals_sentence(self) -> str:
        t = self.totals
        return (
            f"{t.batches:,} batches: {t.events:,} events in, {t.matched:,} matched, "
            f"{t.events - t.matched - t.dead:,} unmatched, {t.dead:,} dead letters; {t.matches:,} matches"
        )

    @property
    def skew_sentence(self) -> str:
        return (
            f"The plan cuts the map into {len(self.plan.partitions)} equal pieces, one per executor, and keeps it: "
            f"{self.half_of_work} of {self.contract.executors} executors do half of the work, and the busiest does "
            f"{self.skew:.1f} times the mean (1.0 would be balance)."
        )

    # -- the map

    def events_per_cell(self) -> Floats:
        """Rows × columns of counts. A post depends on its id alone, so those that were streamed are drawn again."""
        grid, total = self.plan.grid, self.totals.events
        counts = np.zeros(grid.cells)
        pieces = range(0, total, DRAW_ROWS)
        step = max(1, -(-total // MAP_EVENTS_MAX))
        for first in pieces[::step]:
            batch = self.workload.events(self.first_event + first, min(DRAW_ROWS, total - first))
            x, y = (batch.column(name).to_numpy() for name in ("x", "y"))
            counts += np.bincount(grid.locate(x, y), minlength=grid.cells)
        return counts.reshape(grid.rows, grid.columns)
