"""PS2Stream's layouts on the real engine, in turns on one stream: what each would take on a machine per executor.

Measures for others (`fig6.py`, `fig7.py`). Every post is routed, exchanged and matched by Spark, and queries
come and go, five posts to a change. Throughput is projected from the CPU time that tasks report: routing is shared out
among all machines, then a batch ends with its costliest executor. What Spark takes to start tasks, and the driver to
apply changes of queries, is left out; it is the same for all plans.

The first turn of a session warms Spark up and is not counted. All contestants share a checkpoint, so the queries are
loaded once: whoever is next starts the engine again with its own strategy, whose first plan takes over, and gets the
same posts. Here queries rest in segments that all map, so no layout makes copies of them; those that divide terms make
copies of posts, and cut posts into words twice.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.errors import InputError
from geoswarm.lab.bench.kit.batch_log import batches
from geoswarm.lab.bench.kit.files import run_files, sample_of, write_batches
from geoswarm.lab.bench.kit.harness import Progress, median
from geoswarm.lab.bench.kit.projection import ProjectedBatch, project
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.bench.ps2.layouts import WORKERS, QueryCase
from geoswarm.lab.workload.posts import POSTS_PER_CHANGE, Posts
from geoswarm.run.spark.engine import Engine

CELLS_PER_SIDE = 1000
ROUND_S = 3600.0


class LayoutEngineSizes(NamedTuple):
    subscriptions: int
    sample: int
    """Posts, and queries, that plans are drawn from."""
    batch_events: int
    batches: int
    """Batches of a turn; the first, in which workers load and map what they need, is not counted."""
    turns: int


def run_cases_on_engine(
    cases: Sequence[QueryCase], sizes: LayoutEngineSizes, seed: int, layouts: Sequence[str], report: Progress
) -> list[dict[str, Any]]:
    """A row for each case and layout, in a session of their own."""
    report("starting Spark")
    with bench_session() as spark:
        return [
            row
            for number, case in enumerate(cases)
            for row in run_layouts_on_engine(spark, case, sizes, seed, layouts, report, warms_up=number == 0)
        ]


def run_layouts_on_engine(
    spark: Any,
    case: QueryCase,
    sizes: LayoutEngineSizes,
    seed: int,
    layouts: Sequence[str],
    report: Progress,
    *,
    warms_up: bool = True,
) -> list[dict[str, Any]]:
    """A row for each layout."""
    posts = case.posts(seed, sizes.batch_events / ROUND_S)
    with tempfile.TemporaryDirectory() as folder:
        shared = _SharedCheckpoint(spark, posts, case, sizes, Path(folder))
        report(f"loading queries of {case.name}")
        shared.load()
        if warms_up:
            report("a turn that warms Spark up")  # its time is in the CPU time of tasks, and whoever is first would pay
            shared.turn(layouts[0])
        runs: dict[str, list[ProjectedBatch]] = {layout: [] for layout in layouts}
        for number in range(sizes.turns):
            rng = np.random.default_rng((seed, number))
            for i in rng.permutation(len(layouts)):
                report(f"{layouts[i]} on the engine, {case.name}")
                runs[layouts[i]] += shared.turn(layouts[i])
    silent = [layout for layout, run in runs.items() if not sum(batch.entry.matches for batch in run)]
    if silent:
        raise InputError(f"{len(silent)} of {len(layouts)} layouts found no match in {case.name}: draw more queries")
    return [_row(case, layout, run) for layout, run in runs.items()]


@dataclass
class _SharedCheckpoint:
    spark: Any
    posts: Posts
    case: QueryCase
    sizes: LayoutEngineSizes
    root: Path
    files: int = 0
    changes: int = 0

    def __post_init__(self) -> None:
        # The posts and queries of the sample come first in the stream, and are not sent.
        size, sample = self.sizes.batch_events, self.sizes.sample
        self.drawn = [self.posts.events(sample + n * size, size) for n in range(self.sizes.batches)]
        asked = self.posts.subscriptions(0, sample, self.case.queries)
        self.sample = sample_of(self.posts.events(0, sample), asked, words=True)

    def load(self) -> None:
        rows = self.posts.subscriptions(0, self.sizes.subscriptions, self.case.queries)
        pq.write_table(pa.table(rows), self.root / "subscriptions.parquet")
        with self._engine("kd-tree") as engine:
            engine.load(str(self.root / "subscriptions.parquet"))

    def turn(self, layout: str) -> list[ProjectedBatch]:
        """Run the same posts as in every turn, with changes that follow those of the turn before."""
        count, live, queries = self.sizes.batch_events // POSTS_PER_CHANGE, self.sizes.subscriptions, self.case.queries
        firsts = [self.changes + n * count for n in range(self.sizes.batches)]
        write_batches(self.root / "events", self.drawn, self.files)
        changes = (self.posts.operations(first, count, live, queries) for first in firsts)
        write_batches(self.root / "operations", changes, self.files)
        self.files, self.changes = self.files + len(firsts), self.changes + count * len(firsts)
        with self._engine(layout) as engine:
            run_files(engine, self.spark, self.root)
        return [project(entry, WORKERS) for entry in batches(self.root / "state")[1 - self.sizes.batches :]]

    def _engine(self, layout: str) -> Engine:
        contract = Contract(bounds=self.posts.bounds, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE, executors=WORKERS)
        tuning = Tuning(strategy=f"ps2-{layout}", round_s=ROUND_S, driver_bytes_max=0)  # tasks are measured
        return Engine(self.spark, contract, tuning, checkpoint=str(self.root / "state"), sample=self.sample)


def _row(case: QueryCase, layout: str, run: Sequence[ProjectedBatch]) -> dict[str, Any]:
    events = sum(batch.events for batch in run)
    # The median batch: a neighbour that takes the cache or the core hurts some of them.
    makespan_s = median([batch.makespan_s for batch in run])
    return {
        "case": case.name,
        "layout": layout,
        "projected_tuples_per_s": median([batch.events + batch.events // POSTS_PER_CHANGE for batch in run])
        / makespan_s,
        "makespan_ms": makespan_s * 1e3,
        "route_ms": median([batch.route_s for batch in run]) * 1e3,
        "match_mean_ms": median([batch.match_mean_s for batch in run]) * 1e3,
        "match_max_over_mean": median([batch.match_max_s / batch.match_mean_s for batch in run]),
        "copies_per_event": sum(batch.entry.copies for batch in run) / events,
        "dropped_share": sum(batch.entry.dropped for batch in run) / events,
        "matches_per_event": sum(batch.entry.matches for batch in run) / events,
    }
