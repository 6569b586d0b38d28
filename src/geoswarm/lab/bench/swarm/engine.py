"""SWARM Fig. 11 on the real engine: units of work through a hotspot, projected to 22 machines.

The simulated comparison, over many sizes, is `fig11.py`, which runs this one, too. Events, subscriptions and a crowd
that comes with the hotspot go through Spark; `kit/engine_race.py` says what is projected. The first batches, in which
workers start and every plan is cold, are in the figures.
"""

from typing import TYPE_CHECKING, NamedTuple

from geoswarm.lab.bench.kit.engine_race import (
    ROUND_S,
    StrategyRace,
    hotspot_stream,
    race_row,
    run_strategies,
    work_rate,
)
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.kit.projection import ProjectedBatch
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.bench.swarm.fig12_to_16 import OURS, PRINTED, key_of
from geoswarm.lab.workload.hotspots import Hotspot, Hotspots
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.sim.race import STRATEGY_NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MACHINES = 22
BASE = "static-history"
CALM_BATCHES = 4
"""Before the hotspot comes, which then stays: what counts is how a strategy gets used to it."""


class SwarmEngineSizes(NamedTuple):
    subscriptions: int
    batch_events: int
    batches: int
    names: tuple[str, ...]


SIZES = {
    Scale.SMALL: SwarmEngineSizes(50_000, 50_000, 8, (BASE, PRINTED, OURS)),
    Scale.FULL: SwarmEngineSizes(1_000_000, 300_000, 16, STRATEGY_NAMES),
}


def measure(sizes: SwarmEngineSizes, seed: int, report: Progress) -> Result:
    base = Tweets(seed=seed, country="US", bounds=US, events_per_s=sizes.batch_events / ROUND_S)
    spot = Hotspot((0.2, 0.2), CALM_BATCHES * ROUND_S, sizes.batches * ROUND_S, sizes.subscriptions // 10)
    race = StrategyRace(hotspot_stream(Hotspots(base, (spot,)), sizes.subscriptions), MACHINES, sizes.batches)
    report("starting Spark")
    with bench_session() as spark:
        runs = run_strategies(spark, race, sizes.names, report)
    batches = {name: of_name.least for name, of_name in runs.items()}
    times = {name: [batch.makespan_s * 1e3 for batch in batches[name]] for name in batches}
    config = {"sizes": sizes._asdict(), "machines": MACHINES, "makespans_ms": times}
    return Result([race_row(name, batches[name]) for name in batches], _summary(batches), config)


def _summary(batches: dict[str, list[ProjectedBatch]]) -> dict[str, float]:
    base = work_rate(batches[BASE])
    found = {name: work_rate(held) / base for name, held in batches.items() if name != BASE}
    summary = {"engine_work_vs_static_history": found[OURS], "engine_work_vs_static_history_as_printed": found[PRINTED]}
    return summary | {f"engine_work_vs_static_history_{key_of(name)}": ratio for name, ratio in found.items()}


def plot(result: Result) -> "Figure":
    drawn, (lines,) = figure(width_in=9.0, height_in=5.0)
    for name, times_ms in result.config["makespans_ms"].items():
        lines.plot(times_ms[1:], label=name, linewidth=3.0 if name == OURS else 1.6)
    lines.axvline(CALM_BATCHES - 1, color="#BBBBBB", linestyle="--", marker="")
    lines.set(
        title=f"A batch of the real engine, projected to {MACHINES} machines",
        xlabel="batches; the hotspot comes at the dashed line",
        ylabel="ms until the last machine is done",
        yscale="log",
    )
    lines.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4)
    return drawn
