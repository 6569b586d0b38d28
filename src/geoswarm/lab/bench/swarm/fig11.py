"""SWARM Fig. 11: units of work and latency against the number of queries, all strategies, over an hour.

The clusters are those of the timelines (`fig12_to_16.py`), simulated. Three things the paper leaves open. *The hour*:
Twitter's stream has hotspots of its own (§6.2), ours has cities that wake and sleep and bursts in single cities, but no
crowd in an empty place; so half of the hour has the mildest hotspots of the paper, those of Fig. 16: two, one
after the other in opposite corners, of a fifth of the stream each. *Their queries* are a tenth of all. *The stream*
offers more than any strategy can take, and so less where queries are many.

A drawn query stands for many (`run/sim/world.py`). A strategy whose machines have too little memory has no figure: its
line ends. `work_vs_static_history` is the mean over the sizes, and over several seeds, for `swarm-measured`, which is
SWARM as this engine runs it; `..._as_printed` is `swarm`, and every strategy has a key of its own, over the sizes that
it survives. The keys that begin with `engine_` are the real engine's (`engine.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.core.space.grid import Grid
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, cpu_s
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.swarm import engine as swarm_engine
from geoswarm.lab.bench.swarm.fig12_to_16 import CELLS_PER_SIDE, OFFERED_PER_S, OURS, PRINTED, by_strategy, key_of
from geoswarm.lab.workload.hotspots import scenario
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.sim.cluster import ClusterSetup
from geoswarm.run.sim.race import STRATEGY_NAMES, cluster, race
from geoswarm.run.sim.spans import Span, total
from geoswarm.run.sim.world import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MILLION = 1_000_000
HOTSPOT_QUERIES_SHARE = 0.1
BASE = "static-history"


class CapabilitySizes(NamedTuple):
    queries: tuple[int, ...]
    queries_drawn: int
    drawn_per_s: int
    step_s: float
    horizon_s: float
    seeds: int
    engine: swarm_engine.SwarmEngineSizes | None = None
    """None where the clusters are only simulated."""
    cells_per_side: int = CELLS_PER_SIDE


SIZES = {
    # half of the hour: ten calm minutes, the first hotspot and a third of the second
    Scale.SMALL: CapabilitySizes(
        (MILLION, 32 * MILLION), 200_000, 5120, 5.0, 1800.0, 1, swarm_engine.SIZES[Scale.SMALL]
    ),
    Scale.FULL: CapabilitySizes(
        tuple(MILLION << i for i in range(6)), MILLION, 10_240, 2.5, 3600.0, 3, swarm_engine.SIZES[Scale.FULL]
    ),
}


class SimulatedHour(NamedTuple):
    """One strategy with one number of queries."""

    strategy: str
    queries: int
    seed: int
    span: Span | None
    """The whole run; None: it failed."""


def measure(sizes: CapabilitySizes, seed: int, report: Progress, setup: ClusterSetup | None = None) -> Result:
    simulated = _simulate(sizes, seed, report, setup or ClusterSetup())
    if sizes.engine is None:
        return simulated
    real = swarm_engine.measure(sizes.engine, seed, report)
    return Result(simulated.rows, simulated.summary | real.summary, simulated.config | {"engine": real.rows})


def _simulate(sizes: CapabilitySizes, seed: int, report: Progress, setup: ClusterSetup) -> Result:
    runs: list[SimulatedHour] = []
    for s in range(seed, seed + sizes.seeds):
        for queries in sizes.queries:
            report(f"{queries:,} queries, seed {s}")
            runs += _race(sizes, queries, s, setup)
    rows = [_row(name, queries, runs) for name in STRATEGY_NAMES for queries in sizes.queries]
    config = {
        "sizes": sizes._asdict(),
        "scenario": "two-consecutive",
        "hotspot_queries_share": HOTSPOT_QUERIES_SHARE,
        "executors": setup.executors,
        "routers": setup.routers,
        "memory_bytes": setup.memory_bytes,
        "query_bytes": setup.query_bytes,
        "pending_max": setup.sources * setup.pending_max,
        "service": vars(setup.service),
    }
    return Result(rows, _summary(runs), config)


def crowded_hour(sizes: CapabilitySizes, queries: int, seed: int) -> World:
    base = Tweets(seed=seed, country="US", bounds=US, events_per_s=sizes.drawn_per_s)
    drawn = min(queries, sizes.queries_drawn)
    offered_per_s = OFFERED_PER_S * MILLION / queries
    return World(
        scenario("two-consecutive", base, round(drawn * HOTSPOT_QUERIES_SHARE)),
        Grid(*US, columns=sizes.cells_per_side, rows=sizes.cells_per_side),
        drawn,
        weight=max(1, round(offered_per_s / sizes.drawn_per_s)),
        step_s=sizes.step_s,
        query_weight=queries // drawn,
    )


def _race(sizes: CapabilitySizes, queries: int, seed: int, setup: ClusterSetup) -> list[SimulatedHour]:
    world = crowded_hour(sizes, queries, seed)
    contestants = [cluster(name, world, setup, cpu_s) for name in STRATEGY_NAMES]
    for _ in race(world, contestants, sizes.horizon_s):
        pass
    return [
        SimulatedHour(c.name, queries, seed, None if c.failed_at_s is not None else total(c.spans)) for c in contestants
    ]


def _row(name: str, queries: int, runs: Sequence[SimulatedHour]) -> dict[str, Any]:
    spans = [r.span for r in runs if r.strategy == name and r.queries == queries and r.span is not None]
    row: dict[str, Any] = {"strategy": name, "queries": queries, "seeds": len(spans)}
    work, latency_ms = [s.units_of_work for s in spans], [s.latency_ms for s in spans]
    return row | {
        "units_of_work": _mean_or_none(work),
        "work_min": min(work, default=None),
        "work_max": max(work, default=None),
        "latency_ms": _mean_or_none(latency_ms),
        "latency_min": min(latency_ms, default=None),
        "latency_max": max(latency_ms, default=None),
        "batch_wait_ms": _mean_or_none(s.wait_ms for s in spans),
        "utilisation": _mean_or_none(s.utilisation[1] for s in spans),
        "moved": _mean_or_none(s.moved for s in spans),
        "driver_s": _mean_or_none(s.driver_s for s in spans),
    }


def _mean_or_none(values: Iterable[float]) -> float | None:
    known = list(values)
    return fmean(known) if known else None


def _summary(runs: Sequence[SimulatedHour]) -> dict[str, float]:
    base = {(r.queries, r.seed): r.span for r in runs if r.strategy == BASE}
    summary: dict[str, float] = {}
    for suffix, name in (
        ("", OURS),
        ("_as_printed", PRINTED),
        *((f"_{key_of(n)}", n) for n in STRATEGY_NAMES if n != BASE),
    ):
        pairs = [(r.span, base[r.queries, r.seed]) for r in runs if r.strategy == name]
        both = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
        if both:
            summary[f"work_vs_static_history{suffix}"] = fmean(a.units_of_work / b.units_of_work for a, b in both)
            summary[f"latency_vs_static_history{suffix}"] = fmean(a.latency_ms / b.latency_ms for a, b in both)
    for name in STRATEGY_NAMES:
        survived = [r.queries for r in runs if r.strategy == name and r.span is not None]
        summary[f"queries_max_{key_of(name)}"] = float(max(survived, default=0))
    return summary


def plot(result: Result) -> "Figure":
    """The paper's 11a and 11b; a line ends where its strategy fails."""
    drawn, (work, latency) = figure(2, width_in=6.5, height_in=5.0)
    for name, rows in by_strategy(result.rows).items():
        known: list[Mapping[str, Any]] = [row for row in rows if row["units_of_work"] is not None]
        millions = [row["queries"] / MILLION for row in known]
        width = 3.0 if name == OURS else 1.6
        work.plot(millions, [row["units_of_work"] / 1e12 for row in known], label=name, linewidth=width)
        latency.plot(millions, [row["latency_ms"] for row in known], linewidth=width)
    ticks = sorted({row["queries"] // MILLION for row in result.rows})
    for panel in (work, latency):
        panel.set_xscale("log", base=2)
        panel.set_xticks(ticks, [str(t) for t in ticks])
        panel.set_xlabel("queries in the system (millions)")
    work.set(title="a. Capability", ylabel="units of work (10¹² checks/s)", ylim=(0, None))
    latency.set(title="b. Latency", ylabel="ms from source to done", yscale="log")
    drawn.legend(loc="outside lower center", ncols=4)
    return drawn
