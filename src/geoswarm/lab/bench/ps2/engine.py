"""PS2Stream's layouts on the real engine, in turns on one stream: what each would take on a machine per executor.

Measures for others (`ps2_fig6.py`, `ps2_fig7.py`). Every post is routed, exchanged and matched by Spark, and queries
come and go, five posts to a change. Throughput is projected from the CPU time that tasks report: routing is shared out
among all machines, then a batch ends with its costliest executor. What Spark takes to start tasks, and the driver to
apply changes of queries, is left out; it is the same for all plans.

All contestants share a checkpoint, so the queries are loaded once: whoever is next starts the engine again with its own
strategy, whose first plan takes over, and gets the same posts. Here queries rest in segments that all map, so no layout
makes copies of them; those that divide terms make copies of posts, and cut posts into words twice.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.control.strategy import Sample
from geoswarm.errors import InputError
from geoswarm.lab.bench.kit.engine_race import nowhere
from geoswarm.lab.bench.kit.harness import Progress, median
from geoswarm.lab.bench.ps2.layouts import WORKERS, Case
from geoswarm.lab.workload.posts import POSTS_PER_CHANGE, Posts
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.store import journal
from geoswarm.store.storage import Storage

MASTER = "local[2]"
CELLS_PER_SIDE = 1000
ROUND_S = 3600.0


class Sizes(NamedTuple):
    subscriptions: int
    sample: int
    """Posts, and queries, that plans are drawn from."""
    batch_events: int
    batches: int
    """In a turn; the first, in which workers load and map what they need, is not counted."""
    turns: int


@dataclass(frozen=True)
class Lap:
    """One batch under one layout."""

    tuples: int
    makespan_s: float
    """Of routing, and then of the costliest executor."""
    route_s: float
    match_mean_s: float
    match_max_s: float
    copies: int
    dropped: int
    events: int
    matches: int


def raced(spark: Any, case: Case, sizes: Sizes, seed: int, layouts: Sequence[str], report: Progress) -> list[Any]:
    """A row for each layout."""
    posts = case.posts(seed, sizes.batch_events / ROUND_S)
    with tempfile.TemporaryDirectory() as folder:
        stage = _Stage(spark, posts, case, sizes, Path(folder))
        report(f"loading queries of {case.name}")
        stage.load()
        laps: dict[str, list[Lap]] = {layout: [] for layout in layouts}
        for number in range(sizes.turns):
            rng = np.random.default_rng((seed, number))
            for i in rng.permutation(len(layouts)):
                report(f"{layouts[i]} on the engine, {case.name}")
                laps[layouts[i]] += stage.turn(layouts[i])
    silent = [layout for layout, some in laps.items() if not sum(lap.matches for lap in some)]
    if silent:
        raise InputError(f"{len(silent)} of {len(layouts)} layouts found no match in {case.name}: draw more queries")
    return [_row(case, layout, some) for layout, some in laps.items()]


@dataclass
class _Stage:
    spark: Any
    posts: Posts
    case: Case
    sizes: Sizes
    root: Path
    files: int = 0
    changes: int = 0

    def __post_init__(self) -> None:
        for name in ("events", "operations", "drawn"):
            (self.root / name).mkdir()
        # Those of the sample come first in the stream, and are not sent.
        for batch in range(self.sizes.batches):
            rows = self.posts.events(self.sizes.sample + batch * self.sizes.batch_events, self.sizes.batch_events)
            pq.write_table(pa.table(rows), self.root / "drawn" / f"{batch}.parquet")
        said = self.posts.events(0, self.sizes.sample)
        asked = self.posts.subscriptions(0, self.sizes.sample, self.case.queries)
        self.sample = Sample(
            np.stack([said.column(name).to_numpy() for name in ("x", "y")], axis=1),
            np.stack([asked.column(name).to_numpy() for name in ("xmin", "ymin", "xmax", "ymax")], axis=1),
            said.column("text"),
            asked.column("keywords"),
        )

    def load(self) -> None:
        rows = self.posts.subscriptions(0, self.sizes.subscriptions, self.case.queries)
        pq.write_table(pa.table(rows), self.root / "subscriptions.parquet")
        with self._engine("kd-tree") as engine:
            engine.load(str(self.root / "subscriptions.parquet"))

    def turn(self, layout: str) -> list[Lap]:
        """The same posts as in every turn, and changes that follow those of the turn before."""
        for batch in range(self.sizes.batches):
            shutil.copy(self.root / "drawn" / f"{batch}.parquet", self.root / "events" / f"{self.files:06d}.parquet")
            count = self.sizes.batch_events // POSTS_PER_CHANGE
            rows = self.posts.operations(self.changes, count, self.sizes.subscriptions, self.case.queries)
            pq.write_table(pa.table(rows), self.root / "operations" / f"{self.files:06d}.parquet")
            self.files, self.changes = self.files + 1, self.changes + count
        with self._engine(layout) as engine:
            events, changes = (
                read(self.spark, str(self.root / folder), format="parquet", files_per_batch=1)
                for read, folder in (
                    (sources.events_from_files, "events"),
                    (sources.operations_from_files, "operations"),
                )
            )
            engine.start(events=events, operations=changes, sink=nowhere, available_now=True).wait()
        entries = list(journal.read(Storage(str(self.root / "state")), "batch"))[-self.sizes.batches :]
        return [_lap(entry) for entry in entries[1:]]

    def _engine(self, layout: str) -> Engine:
        contract = Contract(bounds=self.posts.bounds, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE, executors=WORKERS)
        tuning = Tuning(strategy=f"ps2-{layout}", round_s=ROUND_S)
        return Engine(self.spark, contract, tuning, checkpoint=str(self.root / "state"), sample=self.sample)


def _lap(entry: dict[str, Any]) -> Lap:
    match_s = np.zeros(WORKERS)
    for executor, load in entry["executors"].items():
        match_s[int(executor)] = load[3] * 1e-6
    route_s, events = entry["route_cpu_us"] * 1e-6 / WORKERS, entry["events_in"]
    worst_s, mean_s = float(match_s.max()), float(match_s.mean())
    tuples = events + events // POSTS_PER_CHANGE
    copies, dropped, matches = (entry[name] for name in ("copies", "dropped", "matches"))
    return Lap(tuples, route_s + worst_s, route_s, mean_s, worst_s, copies, dropped, events, matches)


def _row(case: Case, layout: str, laps: Sequence[Lap]) -> dict[str, Any]:
    events = sum(lap.events for lap in laps)
    # The median batch: a neighbour that takes the cache or the core hurts some of them.
    makespan_s = median([lap.makespan_s for lap in laps])
    return {
        "case": case.name,
        "layout": layout,
        "projected_tuples_per_s": median([lap.tuples for lap in laps]) / makespan_s,
        "makespan_ms": makespan_s * 1e3,
        "route_ms": median([lap.route_s for lap in laps]) * 1e3,
        "match_mean_ms": median([lap.match_mean_s for lap in laps]) * 1e3,
        "match_max_over_mean": median([lap.match_max_s / lap.match_mean_s for lap in laps]),
        "copies_per_event": sum(lap.copies for lap in laps) / events,
        "dropped_share": sum(lap.dropped for lap in laps) / events,
        "matches_per_event": sum(lap.matches for lap in laps) / events,
    }
