"""PS2Stream Fig. 10: memory of workers with hybrid, kd-tree and metric.

A worker of the paper keeps every query that it was sent (`paper_mb`, the mean of 8; simulated, `layouts.py`): one
that meets two parts of the map, or is entered under words of two workers, is kept twice. Ours keep none: the index
rests once in segments that all workers of a machine map, whatever the plan. `ours_mapped_mb` is its size, weighed on a
real store; `ours_touched_mb` what of it an executor's part of the lists is, if each had a machine of its own.
"""

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.control.registry import first_plan
from geoswarm.core.space.plan import Plan
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.ps2 import layouts
from geoswarm.lab.bench.ps2.layouts import (
    RIVALS,
    WORKERS,
    LayoutSizes,
    LayoutWorld,
    layout_bars,
    layout_worlds,
    way_of,
    workers_of_queries,
)
from geoswarm.lab.workload.posts import Posts
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.loading import load

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MemorySizes(NamedTuple):
    simulated: LayoutSizes
    weighed: int
    """Queries that the real store is filled with."""


SIZES = {
    Scale.SMALL: MemorySizes(layouts.SIZES[Scale.SMALL], 50_000),
    Scale.FULL: MemorySizes(layouts.SIZES[Scale.FULL], 1_000_000),
}


def measure(sizes: MemorySizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    for world in layout_worlds(("Q1", "Q2", "Q3"), sizes.simulated, seed):
        report(f"weighing {world.case.name}")
        bytes_per_query = _bytes_per_query(world, sizes.weighed)
        for layout in RIVALS:
            report(f"{layout}, {world.case.name}")
            rows.append(_row(world, layout, world.plan(layout), bytes_per_query))
    cases = dict.fromkeys(row["case"] for row in rows)
    by = {(row["case"], row["layout"]): row["paper_mb"] for row in rows}
    summary = {
        "hybrid_vs_kdtree_worst": max(by[c, "hybrid"] / by[c, "kd-tree"] for c in cases),
        "hybrid_vs_metric_worst": max(by[c, "hybrid"] / by[c, "metric"] for c in cases),
        "ours_bytes_per_query": max(row["ours_bytes_per_query"] for row in rows),
    }
    return Result(rows, summary, {**sizes.simulated._asdict(), "weighed": sizes.weighed})


def _row(world: LayoutWorld, layout: str, plan: Plan, bytes_per_query: float) -> dict[str, Any]:
    stream, weight = world.stream, world.stream.scale.query_weight
    held = workers_of_queries(stream, plan, WORKERS)
    sizes_bytes = np.repeat(stream.query_bytes[: stream.scale.live], np.diff(held.offsets))
    kept = np.bincount(held.workers, sizes_bytes, minlength=WORKERS) * weight / 1e6
    way = way_of(stream, plan)
    entries = np.bincount(way.executor_of_slot[way.slot_of_list], way.counts, minlength=WORKERS)
    mapped = bytes_per_query * stream.scale.live * weight / 1e6
    return {
        "case": world.case.name,
        "layout": layout,
        "paper_mb": float(kept.mean()),
        "paper_largest_mb": float(kept.max()),
        "copies_per_query": len(held.workers) / stream.scale.live - 1.0,
        "ours_mapped_mb": mapped,
        "ours_touched_mb": float(mapped * entries.max() / entries.sum()),
        "ours_bytes_per_query": bytes_per_query,
    }


def _bytes_per_query(world: LayoutWorld, count: int) -> float:
    """Bytes of segments per query on a real store, cells as fine as the engine has them by default."""
    posts, tuning = cast(Posts, world.stream.posts), Tuning(strategy="static-uniform")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "queries.parquet"
        pq.write_table(pa.table(posts.subscriptions(0, count, world.case.queries)), file)
        contract = Contract(bounds=posts.bounds, executors=WORKERS)
        held = Checkpoint(str(Path(folder) / "state"), contract, tuning, partial(first_plan, tuning.strategy, None))
        try:
            load(held, str(file), round(posts.start_s * 1e6), None)
            return held.manifest.bytes / held.manifest.subs
        finally:
            held.close()


def plot(result: Result) -> "Figure":
    panels = [
        ("Workers that keep queries (PS2Stream Fig. 10)", result.rows, "paper_mb"),
        ("ours: of the shared index, touched at most", result.rows, "ours_touched_mb"),
    ]
    return layout_bars(panels, "MB", scale=1.0)
