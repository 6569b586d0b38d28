"""PS2Stream Fig. 16: throughput with and without adjustment while Q3 switches a tenth of its regions every interval.

Simulated (`worlds.py`). 10 M queries, and 10 M that come in an interval (§VI-D). All start from the same plan,
which hybrid partitioning drew from posts and all queries of the start, and are at saturation: a step takes as long as
its slowest worker, migration included. A step is a day of posts, so that the time of day plays no part. The first
interval is not counted.

The plan is drawn from all queries, not from a third of them as in Figures 12 to 15: the fewer are drawn, the fewer
workers an event seems to visit where terms are divided, so that a thin sample lets words look better than they are.

A drawn post stands for a thousand, which the paper's are not: by chance alone the slowest of eight level workers is
seen at 1.08 of the mean with 3000 posts a step, at 1.04 with 12 000, at 1.03 with 24 000. `level_vs_not` is what they
would reach if they were level in every step, whatever chance had drawn for it: no adjustment can do more.

    not         the first plan to the end, as in the paper: `adjusted_vs_not`
    settled     adjusted through the first interval, then never again, so that only what switches from then on costs
                it anything: `adjusted_vs_settled`
    adjusted    §V-A, both phases, with GR
    phase 2     without Phase I
    global      adjusted, and a fresh plan when it promises a fifth; two plans are in force until the older one drains
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.ps2.worlds import (
    AdjustmentOptions,
    AdjustmentSizes,
    adjusting_strategy,
    hybrid_plan,
    post_stream,
    settle_machines,
)
from geoswarm.run.sim.words import Machines, MachinesSetup
from geoswarm.run.sim.words_spans import MachinesSpan, throughput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES = 10_000_000
SIGMA = 1.1
"""The paper does not give its own. What migrates takes a five-hundredth of the workers' time at most."""
PAIRS_MAX = 4
"""Executors that hand over in one round, as by default; the paper's one pair is slower to follow."""
SIZES = {
    Scale.SMALL: AdjustmentSizes(30_000, 12_000, 8, 64, 0.125, 86_400.0, cells_per_side=32),
    Scale.FULL: AdjustmentSizes(100_000, 16_000, 20, 200, 0.05, 86_400.0),
}


def measure(sizes: AdjustmentSizes, seed: int, report: Progress, queries: int = QUERIES) -> Result:
    report("drawing the world")
    setup = MachinesSetup()
    stream = post_stream(sizes, seed, "Q3", queries, interval=sizes.live)
    interval = round(1 / sizes.change_share)
    first = hybrid_plan(stream, replace(setup, sample_queries=sizes.live), seed)
    adjusted = AdjustmentOptions(SIGMA, 1.0, PAIRS_MAX, by_lists=True)
    options = {
        "adjusted": adjusted,
        "phase 2": adjusted._replace(cells_max=0),
        "global": adjusted._replace(global_every_rounds=interval),
    }
    report("settling")
    start, _ = settle_machines(stream, setup, sizes, seed, first, adjusted)
    machines = {"not": Machines(stream, first, None, setup), "settled": start.fork(None)}
    machines |= {
        name: Machines(stream, first, adjusting_strategy(stream, setup, o), setup) for name, o in options.items()
    }
    spans: dict[str, list[MachinesSpan]] = {}
    for name, contestant in machines.items():
        report(name)
        begins = sizes.settle_steps if name == "settled" else 0
        spans[name] = contestant.run(begins)[sizes.settle_steps - begins :]
    rows = [row for name, run in spans.items() for row in _rows(name, run, interval)]
    taken = {name: throughput(run) for name, run in spans.items()}
    summary = {
        "adjusted_vs_not": taken["adjusted"] / taken["not"],
        "level_vs_not": _level_throughput(spans["adjusted"]) / taken["not"],
        "adjusted_vs_settled": taken["adjusted"] / taken["settled"],
        "adjusted_vs_phase_2": taken["adjusted"] / taken["phase 2"],
        "adjusted_vs_global": taken["adjusted"] / taken["global"],
        "adjusted_tuples_per_s": taken["adjusted"],
        "not_tuples_per_s": taken["not"],
    }
    config = {**sizes._asdict(), "queries": queries, "sigma": SIGMA, "costs": vars(setup.costs)}
    return Result(rows, summary, config)


def _level_throughput(spans: list[MachinesSpan]) -> float:
    """Tuples per second if all workers took the same part of the same work."""
    return sum(span.tuples for span in spans) / sum(float(span.busy_s.mean()) for span in spans)


def _rows(name: str, spans: list[MachinesSpan], interval: int) -> list[dict[str, Any]]:
    rows = []
    for begin in range(0, len(spans), interval):
        some = spans[begin : begin + interval]
        rows.append(
            {
                "strategy": name,
                "interval": begin // interval + 1,
                "tuples_per_s": throughput(some),
                "imbalance": sum(float(span.busy_s.max() / span.busy_s.mean()) for span in some) / len(some),
                "migrations": sum(span.moved_bytes > 0 for span in some),
                "migrated_mb": sum(span.moved_bytes for span in some) / 1e6,
                "old_share": max(span.old_share for span in some),
            }
        )
    return rows


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    for name in dict.fromkeys(row["strategy"] for row in result.rows):
        here = [row for row in result.rows if row["strategy"] == name]
        axes.plot([row["interval"] for row in here], [row["tuples_per_s"] / 1e3 for row in here], label=name)
    axes.set(title="Q3 switches (PS2Stream Fig. 16)", xlabel="interval", ylabel="thousand tuples/s")
    axes.set_ylim(bottom=0)
    axes.legend()
    return drawn
