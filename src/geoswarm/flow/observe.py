"""The counts of one task for each partition, in a form that can be added up over tasks.

A task writes its counts to a file named by batch and task, so that a retried or speculative attempt replaces the one
before it and nothing is counted twice; the driver adds the files up.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import some_rows, xy
from geoswarm.core.arrays.buffers import rows_of
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.cell_counts import CellCounts
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.flow.keep import KeptPart
from geoswarm.model import TEXT


class Load(NamedTuple):
    events: int
    matched: int
    """Events that met at least one subscription."""
    matches: int
    cpu_us: int
    """CPU time for these events. A task measures the time of matching; the driver adds their part of all else that the
    task spent (`control/task_costs.py`)."""

    def __add__(self, other: "Load") -> "Load":  # type: ignore[override]
        return Load(*(a + b for a, b in zip(self, other, strict=True)))


NO_LOAD = Load(0, 0, 0, 0)
PARCEL_QUOTES_MAX, TASK_QUOTES_MAX, QUOTE_CHARS_MAX = 64, 512, 1000
"""Events that a report quotes of a parcel and of a task, and characters of each: 50 kB of short posts a task."""


RUN_CELLS, TASK_CELLS, RUN_CELLS_MIN = 512, 4096, 32
"""Events that are counted by cell of a run of matches, of a task, and of a run when the task has counted so many."""


class TaskName(NamedTuple):
    """A task as its runner knows it."""

    stage: int
    number: int


class Quote(NamedTuple):
    """The place and the text of an event, quoted in a report."""

    x: float
    y: float
    text: str | None


TASK_PLACES_MAX = 64
"""Places of rows that a task reports, where a stream matches nothing."""
COUNT_NAMES = (
    *("events_in", "dead", "route_cpu_us", "copies", "dropped", "repeated", "in_transit"),
    *("pasts", "past_matches", "past_left_out", "late", "ahead", "without_object", "without_text"),
)


@dataclass
class LoadReport:
    """Empty at first; `add` the counts of a parcel; `+` those of another task; read the totals."""

    partitions: dict[int, Load] = field(default_factory=dict)
    executors: dict[int, Load] = field(default_factory=dict)
    """The same loads by executor: several executors may have shared a partition."""
    events_in: int = 0
    """Rows that reached validation."""
    dead: int = 0
    """Rows that validation refused."""
    route_cpu_us: int = 0
    copies: int = 0
    """Rows beyond the first in which an event was sent."""
    dropped: int = 0
    """Events that were sent nowhere, since no subscription there asks for their words."""
    repeated: int = 0
    """Rows that the merger joined to another of the same event."""
    in_transit: int = 0
    """Rows sent to the merger and not yet received; 0 at the end."""
    pasts: int = 0
    """New subscriptions that were given their past."""
    past_matches: int = 0
    """Matches of kept events that they were given."""
    past_left_out: int = 0
    """Matches of kept events beyond those that a batch may give."""
    late: int = 0
    """(event, subscription, window) that an aggregate did not count, since the window was closed."""
    ahead: int = 0
    """Valid events too far ahead of the clock to close windows."""
    without_object: int = 0
    """Valid events without an `object_id`."""
    without_text: int = 0
    """Valid events without a `text`."""
    newest_us: int | None = None
    """The greatest `ts` of the other valid events; None: there were none."""
    task: TaskName | None = None
    """The match task that counted this; None for a sum."""
    task_cpu_us: int = 0
    """CPU time of its worker, from the first row received to the last one given; 0 for a sum."""
    stats: dict[int, TrioStat] = field(default_factory=dict)
    """The round's collectors, by partition; empty if the strategy does not use them."""
    said: list[Quote] = field(default_factory=list)
    """Some of the events, if any subscription asks for words."""
    cells: CellCounts = field(default_factory=CellCounts.none)
    """Events and matches by cell, if the strategy asks for them; counted from some of the events."""
    kept: list[KeptPart] = field(default_factory=list)
    """The files of events that the task has kept."""
    places: list[tuple[float, float]] = field(default_factory=list)
    """Where some of the rows lie, dead ones included, if they are asked for."""

    def add(self, partition: int, executor: int, load: Load) -> None:
        self.partitions[partition] = self.partitions.get(partition, NO_LOAD) + load
        self.executors[executor] = self.executors.get(executor, NO_LOAD) + load

    def include(self, other: "LoadReport") -> None:
        """Add in place what another task counted."""
        for mine, theirs in ((self.partitions, other.partitions), (self.executors, other.executors)):
            for key, load in theirs.items():
                mine[key] = mine.get(key, NO_LOAD) + load
        for name in COUNT_NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.see_newest(other.newest_us)
        for partition, stat in other.stats.items():
            self.add_stat(partition, stat)
        self.said += other.said
        self.cells += other.cells
        self.kept += other.kept
        self.places += other.places

    def __add__(self, other: "LoadReport") -> "LoadReport":
        total = LoadReport()
        total.include(self)
        total.include(other)
        return total

    def see_newest(self, ts_us: int | None) -> None:
        """Another event, if it is one."""
        if ts_us is not None:
            self.newest_us = ts_us if self.newest_us is None else max(self.newest_us, ts_us)

    def add_stat(self, partition: int, stat: TrioStat) -> None:
        seen = self.stats.get(partition)
        self.stats[partition] = seen + stat if seen else stat

    @property
    def events(self) -> int:
        """Rows that passed validation."""
        return sum(load.events for load in self.partitions.values()) - self.copies + self.dropped

    @property
    def matched(self) -> int:
        return sum(load.matched for load in self.partitions.values()) - self.repeated

    @property
    def matches(self) -> int:
        return sum(load.matches for load in self.partitions.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "partitions": {str(k): list(v) for k, v in sorted(self.partitions.items())},
            "executors": {str(k): list(v) for k, v in sorted(self.executors.items())},
            **{name: count for name in COUNT_NAMES if (count := getattr(self, name))},
            "newest_us": self.newest_us,
            "task": self.task,
            "task_cpu_us": self.task_cpu_us,
            "stats": {str(k): b64encode(v.to_bytes()).decode() for k, v in sorted(self.stats.items())},
            "said": [list(one) for one in self.said],
            "cells": b64encode(self.cells.to_bytes()).decode(),
            "kept": self.kept,
            "places": self.places,
        }

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> "LoadReport":
        partitions, executors = (
            {int(k): Load(*v) for k, v in written[by].items()} for by in ("partitions", "executors")
        )
        stats = {int(k): TrioStat.from_bytes(b64decode(v)) for k, v in written.get("stats", {}).items()}
        said = [Quote(*one) for one in written.get("said", ())]
        cells = CellCounts.from_bytes(b64decode(written.get("cells", "")))
        kept = [KeptPart.of(part) for part in written.get("kept", ())]
        counts = {name: written.get(name, 0) for name in COUNT_NAMES}
        of_task = {"task": written["task"] and TaskName(*written["task"]), "task_cpu_us": written["task_cpu_us"]}
        counts["newest_us"] = written["newest_us"]
        places = [(float(x), float(y)) for x, y in written.get("places", ())]
        return cls(
            partitions, executors, **counts, **of_task, stats=stats, said=said, cells=cells, kept=kept, places=places
        )


def quote_events(events: pa.RecordBatch, most: int = PARCEL_QUOTES_MAX) -> list[Quote]:
    """At most `most` of the events, evenly spread."""
    chosen = some_rows(len(events), most)
    rows = events.select(["x", "y", TEXT.name]).take(pa.array(chosen))
    x, y, texts = rows.columns
    bytes_of = rows_of(texts)  # may be invalid UTF-8: Spark does not check
    said = [bytes_of.text(i)[:QUOTE_CHARS_MAX] if texts[i].is_valid else None for i in range(len(rows))]
    return [Quote(*row) for row in zip(x.to_pylist(), y.to_pylist(), said, strict=True)]


def sample_places(rows: pa.RecordBatch, most: int) -> list[tuple[float, float]]:
    """Where at most `most` of some rows lie, which need not be valid."""
    chosen = rows.select(["x", "y"]).take(pa.array(some_rows(len(rows), most)))
    x, y = (np.asarray(side.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64) for side in chosen.columns)
    known = np.isfinite(x) & np.isfinite(y)
    return list(zip(x[known].tolist(), y[known].tolist(), strict=True))


def count_points(events: pa.RecordBatch, plan: Plan, partition: int) -> TrioStat:
    """The collectors of a partition for a parcel of events: two updates a point."""
    stat = TrioStat.empty(plan.partition(partition))
    rows, columns = np.divmod(plan.grid.locate(*xy(events)).astype(np.int64), plan.grid.columns)
    stat.add_points(rows, columns)
    return stat


def sample_cells(events: pa.RecordBatch, matches: Ints, grid: Grid, most: int) -> CellCounts:
    """Events and matches by cell, from at most `most` of the events, evenly spread over the Z-order they are in."""
    chosen = some_rows(len(events), most)
    each = len(events) / max(1, len(chosen))
    cells = grid.locate(*(side[chosen] for side in xy(events)))
    return CellCounts.of(
        cells.astype(np.int64), np.full(len(chosen), each), (each * matches[chosen]).astype(np.float64)
    )
