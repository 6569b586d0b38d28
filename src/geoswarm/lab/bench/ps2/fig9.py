"""PS2Stream Fig. 9: memory of dispatchers with hybrid, kd-tree and metric.

A dispatcher of the paper has the grid^t index (§IV-C): a worker for each cell, and for cells whose terms are divided
two maps from terms to workers: H1, which is one for all cells that are divided alike, and H2, with the terms that
queries of the cell are entered under. A kd-tree whose dispatchers are to drop events, as in our simulation, would need
H2 as well, and as much of it as metric has. Our routers have the same H1, as a short list and a hash
(`core/text/cut.py`), and a flat array for cells; H2 is the index itself, which all workers of a machine map once, so it
costs no router anything.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from geoswarm.core.space.plan import Plan
from geoswarm.lab.bench.kit.harness import Progress, Result
from geoswarm.lab.bench.ps2 import layouts
from geoswarm.lab.bench.ps2.layouts import RIVALS, LayoutSizes, LayoutWorld, layout_bars, layout_worlds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = layouts.SIZES
ENTRY_BYTES = 48
"""An entry of a map from a term to a worker in the paper's Java: entry, boxed key and value."""
OUR_CELLS = 1_000_000
"""Of the engine's grid, by default."""


def measure(sizes: LayoutSizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    for world in layout_worlds(("Q1", "Q2", "Q3"), sizes, seed):
        for layout in RIVALS:
            report(f"{layout}, {world.case.name}")
            rows.append(_row(world, layout, world.plan(layout)))
    largest = {layout: max(row["paper_mb"] for row in rows if row["layout"] == layout) for layout in RIVALS}
    summary = {
        "hybrid_vs_kdtree": largest["hybrid"] / largest["kd-tree"],
        "paper_largest_mb": max(largest.values()),
        "ours_largest_mb": max(row["ours_mb"] for row in rows),
    }
    config = {**sizes._asdict(), "entry_bytes": ENTRY_BYTES, "h2": "of the queries that are drawn"}
    return Result(rows, summary, config)


def _row(world: LayoutWorld, layout: str, plan: Plan) -> dict[str, Any]:
    stream = world.stream
    is_divided = np.array([part.cut is not None for part in plan.partitions])
    divided = is_divided[plan.slot_of_cell]
    h2 = int(np.count_nonzero(divided[stream.cell_of_list]))
    h1 = sum(len(cut.hashes) for cut in plan.cuts)
    per_slot = plan.executor_of_slot.nbytes + plan.partition_id_of_slot.nbytes
    ours = OUR_CELLS * plan.slot_of_cell.itemsize + per_slot
    ours += sum(cut.hashes.nbytes + cut.shares.nbytes for cut in plan.cuts)
    return {
        "case": world.case.name,
        "layout": layout,
        "paper_mb": (plan.slot_of_cell.nbytes + (h1 + h2) * ENTRY_BYTES) / 1e6,
        "ours_mb": ours / 1e6,
        "divided_cells": int(np.count_nonzero(divided)),
        "h1_terms": h1,
        "h2_terms": h2,
    }


def plot(result: Result) -> "Figure":
    panels = [
        ("Dispatchers (PS2Stream Fig. 9)", result.rows, "paper_mb"),
        ("our routers, on 1000 × 1000 cells", result.rows, "ours_mb"),
    ]
    return layout_bars(panels, "MB", scale=1.0)
