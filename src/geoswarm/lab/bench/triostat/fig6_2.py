"""Thesis Fig. 6.2 (SWARM Fig. 20): bytes that reach the coordinator per round, TrioStat's against AQWA's.

The paper counts two numbers per executor, its cost and its arrivals, against five per cell; the figure is for 1000 x
1000 cells, here for other grids, too. Those two numbers are enough where executors keep their statistics.

Ours do not (`docs/architecture.md`: workers keep nothing), so the coordinator gets what they counted: after every
batch, one line of numbers per axis and partition, in the report file of each task. That is the third curve, and what
the engine really sends. `bytes_vs_aqwa` is the paper's comparison, `engine_bytes_vs_aqwa` the engine's for one batch;
a worker that keeps nothing would have to send AQWA's numbers every batch, too.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geoswarm.core.stats.aqwa import BYTES_PER_NUMBER, NUMBERS_PER_CELL, Aqwa
from geoswarm.core.stats.triostat import N_NEW, NUMBERS_PER_EXECUTOR, TrioStat
from geoswarm.flow.observe import LoadReport
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.triostat.size import StoredSize, blocks, check_formula, expected_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXECUTORS = 22
CLAIM_SIDE, CLAIM_PARTITIONS = 1000, 70
"""The paper's grid, and about as many partitions as an hour of SWARM makes."""


@dataclass(frozen=True)
class CoordinatorBytesSizes:
    sides: tuple[int, ...] = (100, 200, 400, 1000, 1600, 3200, 6400)
    partitions: tuple[int, ...] = (22, CLAIM_PARTITIONS, 1000)
    written_side_max: int = 1000
    """Larger grids of AQWA's are computed only: at 6400 a side it would write 1.6 GB."""
    claim: tuple[int, int] = (CLAIM_SIDE, CLAIM_PARTITIONS)


SIZES = {Scale.SMALL: CoordinatorBytesSizes(), Scale.FULL: CoordinatorBytesSizes(written_side_max=3200)}


def measure(sizes: CoordinatorBytesSizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    for side in sizes.sides:
        report(f"{side} x {side} cells")
        aqwa_numbers = NUMBERS_PER_CELL * side * side
        if side <= sizes.written_side_max:
            collected = Aqwa.empty(side, side).collected
            check_formula("AQWA", expected_size(aqwa_numbers), StoredSize(collected.size, len(collected.tobytes())))
        for partitions in sizes.partitions:
            lines_bytes, files_bytes = engine_bytes(side, partitions)
            rows.append(
                {
                    "side": side,
                    "partitions": partitions,
                    "triostat_bytes": NUMBERS_PER_EXECUTOR * BYTES_PER_NUMBER * EXECUTORS,
                    "engine_bytes": lines_bytes,
                    "engine_file_bytes": files_bytes,
                    "aqwa_bytes": BYTES_PER_NUMBER * aqwa_numbers,
                }
            )
    claim = next(r for r in rows if (r["side"], r["partitions"]) == sizes.claim)
    summary = {
        "bytes_vs_aqwa": claim["triostat_bytes"] / claim["aqwa_bytes"],
        "engine_bytes_vs_aqwa": claim["engine_file_bytes"] / claim["aqwa_bytes"],
        "engine_batch_bytes": float(claim["engine_file_bytes"]),
    }
    return Result(rows, summary, {"executors": EXECUTORS, "claim": sizes.claim})


def engine_bytes(side: int, partitions: int) -> tuple[int, int]:
    """Bytes of the collectors of one batch in which every partition saw points, and of the files that carry them."""
    reports = [LoadReport() for _ in range(EXECUTORS)]
    lines_bytes = 0
    for i, box in enumerate(blocks(side, partitions)):
        counted = TrioStat.empty(box)
        for axis in counted.axes:
            axis[N_NEW] = 1.0
        reports[i % EXECUTORS].add_stat(i, counted)
        lines_bytes += len(counted.to_bytes())
    return lines_bytes, sum(len(json.dumps(counted.to_json())) for counted in reports)


def plot(result: Result) -> "Figure":
    """The thesis has two bars, of the grid of 1000 x 1000; curves over the grid's side show why."""
    drawn, (axes,) = figure()
    partitions = result.config["claim"][1]
    rows = [r for r in result.rows if r["partitions"] == partitions]
    sides = [r["side"] for r in rows]
    curves = {
        "aqwa_bytes": "AQWA: 5 numbers per cell, each round",
        "engine_file_bytes": f"the engine, each batch, {partitions} partitions",
        "triostat_bytes": "TrioStat: 2 numbers per executor, each round",
    }
    for key, label in curves.items():
        axes.plot(sides, [r[key] for r in rows], label=label)
    axes.set(
        title="Bytes to the coordinator (thesis Fig. 6.2)",
        xlabel="cells per side of the grid",
        ylabel="bytes per round, or per batch",
        xscale="log",
        yscale="log",
    )
    axes.legend()
    return drawn
