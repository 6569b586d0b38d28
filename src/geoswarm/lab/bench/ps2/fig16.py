"""PS2Stream Fig. 16: throughput with and without adjustment while Q3 switches a tenth of its regions every interval.

Simulated (`worlds.py`). 10 M queries, and 10 M that come in an interval (§VI-D). All start from the same plan, which
hybrid partitioning drew from posts and all queries of the start, and are at saturation: a step takes as long as its
slowest worker, migration included. A step is a day of posts, so that the time of day plays no part. The first interval
is not counted. Two cycles are: each region switches twice, so the one with most of the comparisons does so, too,
whatever its turn is.

    not         the first plan to the end, as in the paper: `adjusted_vs_not`
    settled     adjusted through the first interval, then never again, so that only what switches from then on costs
                it anything: `adjusted_vs_settled`
    adjusted    §V-A, both phases, with GR
    phase 2     without Phase I
    global      adjusted, and a fresh plan when it promises a fifth; two plans are in force until the older one drains

`adjusted_vs_not` is the geometric mean of five seeds, `..._least` and `..._most` are its spread; the other three run
with the first seed only. `level_vs_not` is what the machines that do not adjust would reach if, in every step, all
workers shared their work equally: no work of the adjusted run is in it. `adjusted_vs_level` is the part that adjustment
reaches; migration, copies of events and the lag behind a switch take the rest.

An event is sent for each of its words that has a list in its cell. The lists are those of many more queries than the
run has (`AdjustmentSizes.lists_drawn`): else words that are divided would cause too few visits. A drawn post stands for
a thousand, which the paper's are not: by chance alone level workers are seen at 1.04 of the mean with 12 000 a step.
"""

import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from geoswarm.control.layout.load_model import COSTS, c1_at
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.ps2.worlds import (
    AdjustmentOptions,
    AdjustmentSizes,
    adjusting_strategy,
    hybrid_plan_by_keys,
    post_stream,
    settle_machines,
    with_all_lists,
)
from geoswarm.lab.workload.queries import SWITCH_TURNS
from geoswarm.run.sim.words import Machines, MachinesSetup
from geoswarm.run.sim.words_spans import MachinesSpan, throughput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES = 10_000_000
SIGMA = 1.1
"""The paper does not give its own. What migrates takes a five-hundredth of the workers' time at most."""
PAIRS_MAX = 4
"""Executors that hand over in one round, as by default; the paper's one pair is slower to follow."""
SEEDS = 5
CYCLES = 2
INTERVALS = CYCLES * SWITCH_TURNS
PROCESSES = 2
"""Seeds that are simulated at a time: all time in it is virtual."""
SIZES = {
    Scale.SMALL: AdjustmentSizes(30_000, 5_000, 2, 2 * INTERVALS, 1 / 2, 86_400.0, lists_drawn=1_000_000),
    Scale.FULL: AdjustmentSizes(30_000, 12_000, 4, 4 * INTERVALS, 1 / 4, 86_400.0, lists_drawn=2_000_000),
}


def measure(
    sizes: AdjustmentSizes,
    seed: int,
    report: Progress,
    queries: int = QUERIES,
    seeds: int = SEEDS,
    processes: int = PROCESSES,
) -> Result:
    interval = round(1 / sizes.change_share)
    rows: list[dict[str, Any]] = []
    taken: list[dict[str, float]] = []
    report(f"{seeds} seeds")
    numbers, race = range(seed, seed + seeds), partial(_race_machines, sizes, queries, seed)
    if processes == 1:
        races = list(map(race, numbers))
    else:
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            races = list(pool.map(race, numbers))
    for s, spans in zip(numbers, races, strict=True):
        rows += [{"seed": s, **row} for name, run in spans.items() for row in _rows(name, run, interval)]
        taken.append({name: throughput(run) for name, run in spans.items()} | {"level": level_throughput(spans["not"])})
    gains, levels = ([one[name] / one["not"] for one in taken] for name in ("adjusted", "level"))
    mean, first = statistics.geometric_mean, taken[0]
    summary = {
        "adjusted_vs_not": mean(gains),
        "adjusted_vs_not_least": min(gains),
        "adjusted_vs_not_most": max(gains),
        "level_vs_not": mean(levels),
        "adjusted_vs_level": mean(gains) / mean(levels),
        "adjusted_vs_settled": first["adjusted"] / first["settled"],
        "adjusted_vs_phase_2": first["adjusted"] / first["phase 2"],
        "adjusted_vs_global": first["adjusted"] / first["global"],
        "adjusted_tuples_per_s": mean([one["adjusted"] for one in taken]),
        "not_tuples_per_s": mean([one["not"] for one in taken]),
    }
    config = {
        **sizes._asdict(),
        "queries": queries,
        "seeds": seeds,
        "sigma": SIGMA,
        "costs": vars(_setup(queries).costs),
        "adjusted_vs_not": gains,
        "level_vs_not": levels,
    }
    return Result(rows, summary, config)


def _setup(queries: int) -> MachinesSetup:
    """c1 is that of an index with as many queries as a worker has."""
    setup = MachinesSetup()
    return replace(setup, costs=replace(COSTS, c1_check=c1_at(queries // setup.workers)))


def _race_machines(sizes: AdjustmentSizes, queries: int, first_seed: int, seed: int) -> dict[str, list[MachinesSpan]]:
    """The counted steps of each contestant; all five with the first seed."""
    setup = _setup(queries)
    stream = with_all_lists(post_stream(sizes, seed, "Q3", queries, interval=sizes.live), sizes.lists_drawn)
    first = hybrid_plan_by_keys(stream, replace(setup, sample_queries=sizes.live), seed)
    adjusted = AdjustmentOptions(SIGMA, 1.0, PAIRS_MAX, by_lists=True)
    options = {"adjusted": adjusted}
    machines = {"not": Machines(stream, first, None, setup)}
    if seed == first_seed:
        interval = round(1 / sizes.change_share)
        options |= {
            "phase 2": adjusted._replace(cells_max=0),
            "global": adjusted._replace(global_every_rounds=interval),
        }
        start, _ = settle_machines(stream, setup, sizes, seed, first, adjusted)
        machines["settled"] = start.fork(None)
    machines |= {
        name: Machines(stream, first, adjusting_strategy(stream, setup, o), setup) for name, o in options.items()
    }
    spans: dict[str, list[MachinesSpan]] = {}
    for name, contestant in machines.items():
        begins = sizes.settle_steps if name == "settled" else 0
        spans[name] = contestant.run(begins)[sizes.settle_steps - begins :]
    return spans


def level_throughput(spans: list[MachinesSpan]) -> float:
    """Tuples per second if all workers took the same part of the work in each step."""
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
    """Of the first seed."""
    drawn, (axes,) = figure()
    first = [row for row in result.rows if row["seed"] == result.rows[0]["seed"]]
    for name in dict.fromkeys(row["strategy"] for row in first):
        here = [row for row in first if row["strategy"] == name]
        axes.plot([row["interval"] for row in here], [row["tuples_per_s"] / 1e3 for row in here], label=name)
    axes.set(title="Q3 switches (PS2Stream Fig. 16)", xlabel="interval", ylabel="thousand tuples/s")
    axes.set_ylim(bottom=0)
    axes.legend()
    return drawn
