"""The data of a run of the demo: its journalled batches, their plans, and figures for the view and the report."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from geoswarm.config import Contract
from geoswarm.control.outcome import RoundEntry
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.change import name_of
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.service.watch import WatchedTotals, rates
from geoswarm.store.journal.entries import BatchEntry

DRAW_ROWS = 1_000_000
LAST = 5
"""The number of last batches that figures for "now" or "at the end" are taken from: a single one is noisy."""


@dataclass
class Story:
    workload: Tweets
    first_event: int
    """Events that earlier runs on the same checkpoint have used up."""
    contract: Contract
    plan_of: Callable[[int], Plan]
    """Reads the plan of an epoch from the checkpoint."""
    batches: list[BatchEntry] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    """The plan that each of the batches was run by."""
    cpu_s: list[Floats] = field(default_factory=list)
    """For each batch, the seconds of CPU that each executor spent."""
    cpu_s_kept: list[Floats] = field(default_factory=list)
    """The same seconds, by the executor that would have spent them under the first plan."""
    totals: WatchedTotals = field(default_factory=WatchedTotals)
    rounds: list[RoundEntry] = field(default_factory=list)
    """The rounds, read from the journal at the end."""
    changes: int = 0
    """Registrations and cancellations sent while the stream ran."""

    def add(self, batches: Iterable[BatchEntry]) -> None:
        for batch in batches:
            plan = self._plan(batch.plan_epoch)
            self.batches.append(batch)
            self.plans.append(plan)
            self.totals.add([batch])
            seconds, kept = np.zeros((2, self.executors))
            for executor, done in batch.executors.items():
                seconds[executor] = done.cpu_us / 1e6
            for partition, done in batch.partitions.items():
                kept[self._first_owner(plan, partition)] += done.cpu_us / 1e6
            self.cpu_s.append(seconds)
            self.cpu_s_kept.append(kept)

    def _plan(self, epoch: int) -> Plan:
        return self.plans[-1] if self.plans and self.plans[-1].epoch == epoch else self.plan_of(epoch)

    def _first_owner(self, plan: Plan, partition: int) -> int:
        """The first plan's owner of a partition, by its first cell: few partitions are of several that it had."""
        row, column = plan.partition(partition).box[:2]
        first = self.plans[0]
        return int(first.executor_of_slot[first.slot_of_cell[row * first.grid.columns + column]])

    # -- numbers

    @property
    def executors(self) -> int:
        return self.plans[0].executors

    @property
    def warm(self) -> list[BatchEntry]:
        """The batches without the first, in which workers start and kernels are loaded."""
        return self.batches[1:] or self.batches

    @property
    def rates(self) -> tuple[float, float]:
        """Events and matches per second once warm."""
        return rates(self.warm)

    @property
    def batch_s_p50(self) -> float:
        return float(statistics.median(batch.batch_s for batch in self.warm))

    @property
    def subscriptions(self) -> int:
        return self.batches[-1].subscriptions if self.batches else 0

    @property
    def skews(self) -> list[float]:
        """For each batch, the busiest executor's CPU over the mean: 1 is perfect balance."""
        return [skew(seconds) for seconds in self.cpu_s]

    @property
    def skews_kept(self) -> list[float]:
        """The same under the first plan."""
        return [skew(seconds) for seconds in self.cpu_s_kept]

    @property
    def first(self) -> list[int]:
        """Positions of the batches run by the first plan; the one in which workers start only if it is alone."""
        held = [i for i, plan in enumerate(self.plans) if plan.epoch == self.plans[0].epoch]
        return held[1:] or held

    @property
    def last(self) -> list[int]:
        """Positions of the last few batches, those run by the first plan left out if there are others."""
        later = [i for i, plan in enumerate(self.plans) if plan.epoch != self.plans[0].epoch]
        return (later or self.first)[-LAST:]

    @property
    def last_said(self) -> str:
        return f"last {len(self.last)} batches" if len(self.last) > 1 else "last batch"

    @property
    def skew_first(self) -> float:
        return _median(self.skews, self.first)

    @property
    def skew_last(self) -> float:
        return _median(self.skews, self.last)

    @property
    def skew_kept(self) -> float:
        """The skew of the last batches under the first plan."""
        return _median(self.skews_kept, self.last)

    def shares(self, batches: list[int]) -> Floats:
        """The share of each executor in the CPU time of these batches."""
        seconds = np.sum([self.cpu_s[i] for i in batches], axis=0)
        return np.asarray(seconds / max(float(seconds.sum()), 1e-12))

    def change_counts(self) -> dict[str, int]:
        """How often each kind of change was made on the way from the first plan to the last."""
        counts: dict[str, int] = {}
        begun, ended = self.plans[0].epoch, self.plans[-1].epoch
        for entry in self.rounds:
            if entry.epoch_next is not None and begun < entry.epoch_next <= ended:
                for name in map(name_of, entry.changes):
                    counts[name] = counts.get(name, 0) + 1
        return counts

    def events_until(self, batch: int) -> int:
        """The number of events of this run before the batch at this position."""
        return sum(each.events_in for each in self.batches[:batch])

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
    def plans_sentence(self) -> str:
        begun, ended = self.plans[0], self.plans[-1]
        if begun.epoch == ended.epoch:
            return (
                f"One plan of {len(begun.partitions)} partitions was in force throughout: "
                f"the busiest of {self.executors} executors did {self.skew_last:.1f} times the mean."
            )
        made = ", ".join(_times(count, kind) for kind, count in self.change_counts().items())
        return (
            f"The plan was redrawn {_times(ended.epoch - begun.epoch, 'time')} while the stream ran ({made}; from "
            f"{len(begun.partitions)} partitions to {len(ended.partitions)}), and no subscription was copied for it. "
            f"The busiest of {self.executors} executors did {self.skew_first:.1f} times the mean under the "
            f"first plan and {self.skew_last:.1f} times in the {self.last_said}, where the first plan "
            f"would have left it at {self.skew_kept:.1f} times (1.0 is balance)."
        )

    # -- the map

    def events_per_cell(self, batches: list[int]) -> Floats:
        """Rows × columns of counts. A post depends on its id alone, so those that were streamed are drawn again."""
        grid = Grid.of(self.contract)
        counts = np.zeros(grid.cells)
        for i in batches:
            begins, ends = (self.first_event + self.events_until(at) for at in (i, i + 1))
            for first in range(begins, ends, DRAW_ROWS):
                drawn = self.workload.events(first, min(DRAW_ROWS, ends - first))
                x, y = (drawn.column(name).to_numpy() for name in ("x", "y"))
                counts += np.bincount(grid.locate(x, y), minlength=grid.cells)
        return counts.reshape(grid.rows, grid.columns)


def skew(seconds: Floats) -> float:
    return float(seconds.max() / seconds.mean()) if seconds.any() else 1.0


def _median(values: list[float], at: list[int]) -> float:
    return float(statistics.median(values[i] for i in at))


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
