"""`auto` beside the strategies of the papers and the best rival, from cold, through hotspots, crowds and a hot cell.

Every world goes through the real engine with each strategy, on as many executors, and is projected to a machine for
each by the CPU time of whole tasks, Spark's side included (`kit/projection.py`). Nobody has a history: the first plan
is what a strategy makes of the first batch, or equal shares of the map. Batches are rounds. The first batch of each
run, in which workers map the subscriptions, is not counted.
What a strategy that looks at batches takes to count them is not charged: they are flattered.

    auto_vs_best_min         work per second against the best of the others, in the worst world
    auto_vs_paper            against SWARM as printed, geometric mean over the worlds
    busiest_max              the busiest executor over the mean, median from two rounds after the step on, worst world
    cold_busiest             the same in the first ten batches, or until the step, the worst batch of all worlds
    partitions_per_executor  after 1,200 rounds of hotspots that jump, by the strategy alone, without the engine

Where nothing moves, `busiest` is above 1 by what the times of equal tasks differ: `noise` is the median of that over
the batches of `replicated`, which deals events out evenly.
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geoswarm.control.balance.auto import AutoPlaces
from geoswarm.control.coordinator import Coordinator
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.strategy import RoundReport
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.cell_counts import CellCounts
from geoswarm.flow.observe import Load, LoadReport
from geoswarm.lab.bench.kit.engine_race import ROUND_S, StrategyRace, run_strategies, work_rate
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, median
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.kit.projection import ProjectedBatch
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.workload.hotspots import Hotspot, Hotspots
from geoswarm.lab.workload.tweets import Tweets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AUTO, PRINTED, EVEN = "auto", "swarm", "replicated"
COLD_BATCHES = 10
SETTLING_ROUNDS = 2
CORNER = (0.2, 0.2)
CELL_SHARE = 0.0009
"""The side of a hot cell: less than a thousandth of the world's, and so one cell of a grid of 1000 × 1000, or four."""


class AutoSizes(NamedTuple):
    subscriptions: int
    batch_events: int
    calm_batches: int
    """Before the hotspot comes, which then stays."""
    batches: int
    machines: int
    worlds: tuple[str, ...]
    names: tuple[str, ...]


SIZES = {
    Scale.SMALL: AutoSizes(50_000, 60_000, 3, 7, 8, ("hotspot", "crowd", "hot-cell"), (AUTO, PRINTED, EVEN)),
    Scale.FULL: AutoSizes(
        1_000_000,
        300_000,
        10,
        20,
        22,
        ("hotspot", "moving", "crowd", "hot-cell"),
        (AUTO, PRINTED, "swarm-measured", "static-history", "per-batch-weighed", EVEN),
    ),
}


class WorldRuns(NamedTuple):
    world: str
    runs: Mapping[str, Sequence[ProjectedBatch]]
    """The batches of each strategy but for the first."""


def spot_of(world: str, sizes: AutoSizes) -> Hotspot:
    """What comes after the calm batches, at once."""
    start_s, life_s = sizes.calm_batches * ROUND_S, (sizes.batches - sizes.calm_batches + 1) * ROUND_S
    crowd = sizes.subscriptions // 5
    if world == "crowd":  # nobody there subscribes to anything
        return Hotspot(CORNER, start_s, life_s, 0, intensity="step")
    if world == "hot-cell":
        return Hotspot(CORNER, start_s, life_s, crowd // 10, intensity="step", side_share=CELL_SHARE)
    drift = (0.5, 0.5) if world == "moving" else (0.0, 0.0)
    return Hotspot(CORNER, start_s, life_s, crowd, intensity="step", drift=drift)


def measure(sizes: AutoSizes, seed: int, report: Progress, session: Any = None) -> Result:
    base = Tweets(seed=seed, country="US", bounds=US, events_per_s=sizes.batch_events / ROUND_S)
    told = list[WorldRuns]()
    report("starting Spark")
    with bench_session(session) as spark:
        for world in sizes.worlds:
            workload = Hotspots(base, (spot_of(world, sizes),))
            race = StrategyRace(workload, sizes.subscriptions, sizes.machines, sizes.batches, False, True)
            runs = run_strategies(spark, race, sizes.names, lambda doing, world=world: report(f"{world}: {doing}"))  # type: ignore[misc]
            told.append(WorldRuns(world, {name: runs[name][1:] for name in sizes.names}))
    report("jumping hotspots")
    partitions = partitions_after(1200, sizes.machines, seed)
    rows = [_row(each.world, name, run, sizes) for each in told for name, run in each.runs.items()]
    lines = {each.world: {name: [busiest(b) for b in run] for name, run in each.runs.items()} for each in told}
    config = {"sizes": sizes._asdict(), "busiest": lines}
    return Result(rows, summarise(told, sizes) | {"partitions_per_executor": partitions}, config)


def busiest(batch: ProjectedBatch) -> float:
    """The work of the busiest executor over the mean."""
    return batch.match_max_s / batch.match_mean_s if batch.match_mean_s else 1.0


def _row(world: str, name: str, run: Sequence[ProjectedBatch], sizes: AutoSizes) -> dict[str, Any]:
    cold, settled = _cold(run, sizes), _settled(run, sizes)
    return {
        "world": world,
        "strategy": name,
        "units_of_work": work_rate(run),
        "busiest_cold": max(map(busiest, cold)),
        "busiest_settled": median([busiest(batch) for batch in settled]),
        "cpu_us_per_event": sum(b.match_mean_s for b in run) * sizes.machines / sum(b.events for b in run) * 1e6,
        "plans": run[-1].entry.plan_epoch,
        "partitions": len(run[-1].entry.partitions),
    }


def _cold(run: Sequence[ProjectedBatch], sizes: AutoSizes) -> Sequence[ProjectedBatch]:
    return run[: min(COLD_BATCHES, sizes.calm_batches - 1)]


def _settled(run: Sequence[ProjectedBatch], sizes: AutoSizes) -> Sequence[ProjectedBatch]:
    return run[sizes.calm_batches - 1 + SETTLING_ROUNDS :]


def summarise(told: Sequence[WorldRuns], sizes: AutoSizes) -> dict[str, float]:
    def rate(each: WorldRuns, name: str) -> float:
        return work_rate(each.runs[name])

    against = {each.world: rate(each, AUTO) / max(rate(each, n) for n in each.runs if n != AUTO) for each in told}
    paper = [rate(each, AUTO) / rate(each, PRINTED) for each in told]
    autos = [each.runs[AUTO] for each in told]
    return {
        "auto_vs_best_min": min(against.values()),
        "auto_vs_paper": exp(fmean(map(log, paper))),
        "busiest_max": max(median([busiest(batch) for batch in _settled(run, sizes)]) for run in autos),
        "cold_busiest": max(busiest(batch) for run in autos for batch in _cold(run, sizes)),
        "noise": median([busiest(batch) for each in told for batch in each.runs[EVEN]]),
        **{f"auto_vs_best_{world.replace('-', '_')}": ratio for world, ratio in against.items()},
    }


def partitions_after(rounds: int, executors: int, seed: int) -> float:
    """The most partitions for each executor that `auto` has, in places, while a hotspot jumps every twelve rounds."""
    rng, side = np.random.default_rng(seed), 100
    grid = Grid(0.0, 0.0, 1.0, 1.0, columns=side, rows=side)
    plan, coordinator, most = uniform(grid, executors), Coordinator(AutoPlaces()), 0
    for number in range(rounds):
        if number % 12 == 0:
            row, column = rng.integers(0, side - 15, 2)
        events = rng.poisson(2.0, (side, side)).astype(np.float64)
        events[row : row + 15, column : column + 15] += 60
        outcome = coordinator.decide(plan, _report(plan, events.ravel(), number, rng))
        plan = outcome.plan or plan
        most = max(most, len(plan.partitions))
    return most / executors


def _report(plan: Plan, events: Floats, number: int, rng: np.random.Generator) -> RoundReport:
    """A round in which each partition took what its events take, more or less by a twentieth."""
    load, cells = LoadReport(), np.flatnonzero(events)
    of_slot = np.bincount(plan.slot_of_cell, events, minlength=len(plan.partitions))
    for part, count in zip(plan.partitions, of_slot.tolist(), strict=True):
        load.add(part.id, part.executor, Load(int(count), 0, 0, int(1000 * count * rng.normal(1.0, 0.05))))
    load.cells = CellCounts(cells, events[cells], np.zeros(len(cells)))
    return RoundReport(number, ROUND_S * number, load, {})


def plot(result: Result) -> "Figure":
    """The busiest executor over the mean, batch by batch; the hotspot comes at the dashed line."""
    worlds = result.config["busiest"]
    drawn, axes = figure(len(worlds), width_in=4.4, height_in=4.2)
    for ax, (world, lines) in zip(axes, worlds.items(), strict=True):
        for name, ratios in lines.items():
            ax.plot(range(1, len(ratios) + 1), ratios, label=name, linewidth=3.0 if name == AUTO else 1.6)
        ax.axvline(result.config["sizes"]["calm_batches"] - 0.5, color="#BBBBBB", linestyle="--", marker="")
        ax.set(title=world, xlabel="batch", ylabel="busiest executor over the mean", yscale="log")
    axes[0].legend(loc="upper left")
    return drawn
