"""SWARM Figures 12 to 16: work per minute of all strategies in one world, through hotspots that come and go.

The table `FIGURES` names the scenario of each figure (`lab/workload/hotspots.py`). Time is simulated (`run/sim/`), with
service times taken from the real matcher, so a figure depends on its seed alone and not on the machine; only
`driver_s` is what planning really took here.

SWARM §6.2: a million queries at the start, 22 executors and 8 routers (30 executors for `replicated`), rounds of 15 s,
a cold start, and the hotspot after ten minutes. The paper does not say how many queries come with a hotspot: here it is
as many again. The country is the US between its coasts, as in the paper. Strategies that look at batches look at
`step_s` of the stream; their events wait for it, half of it on average, in the `latency_ms` and as `batch_wait_ms`.

A summary is of the time from the first hotspot's start to the last one's end. Keys without a name, such as
`rounds_to_95pct`, are of `swarm-measured`, which is SWARM as this engine runs it; `..._as_printed` are of `swarm`.
`work_paid_*` compares a run where each moved query is sent and indexed again, as the paper's machines must, with the
run where moves are free. `..._in_batches_*` is a run in batches of a strategy that needs none: the paper's machines
take tuple by tuple, this engine does not, and those that must look at batches are to be compared with these.
`recovery_of` says what `rounds_to_95pct`, `lowest` and `rounds_from_cold` are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from geoswarm.core.space.grid import Grid
from geoswarm.lab.bench.kit.catalogue import FigureRow
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, cpu_s
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.hotspots import Hotspot, Hotspots, scenario
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.sim.cluster import Cluster, ClusterSetup
from geoswarm.run.sim.race import STRATEGY_NAMES, cluster, race
from geoswarm.run.sim.service import MOVE_US_STORM
from geoswarm.run.sim.spans import Span, by_minute, total
from geoswarm.run.sim.world import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS_PER_SIDE = 1000
OFFERED_PER_S = 15_000_000
"""More than any strategy can take of a million queries (SWARM §2)."""


class TimelineSizes(NamedTuple):
    drawn_per_s: int
    calm_s: float
    """Seconds after the last hotspot."""
    offered_per_s: int = OFFERED_PER_S
    queries: int = 1_000_000
    hotspot_queries: int = 1_000_000
    cells_per_side: int = CELLS_PER_SIDE
    step_s: float = 2.5


SIZES = {Scale.SMALL: TimelineSizes(5120, 300.0), Scale.FULL: TimelineSizes(20_480, 600.0)}


@dataclass(frozen=True)
class TimelineFigure(FigureRow):
    scenario: str
    title: str


FIGURES = {
    "swarm-fig12": TimelineFigure(
        "SWARM Fig. 12", "one uniform hotspot that comes and goes as a bell", "one-uniform", "One uniform hotspot, bell"
    ),
    "swarm-fig13": TimelineFigure(
        "SWARM Fig. 13",
        "one hotspot as a bell, denser in its middle, where a cell cannot be split",
        "one-normal",
        "One normal hotspot, bell",
    ),
    "swarm-fig14": TimelineFigure(
        "SWARM Fig. 14",
        "one uniform hotspot that starts at full strength, which nothing announces",
        "one-step",
        "One uniform hotspot, step",
    ),
    "swarm-fig15": TimelineFigure(
        "SWARM Fig. 15",
        "two hotspots of half the strength in two corners, which overlap in time",
        "two-overlapping",
        "Two overlapping hotspots",
    ),
    "swarm-fig16": TimelineFigure(
        "SWARM Fig. 16",
        "two hotspots of half the strength, the second elsewhere right after the first",
        "two-consecutive",
        "Two consecutive hotspots",
    ),
    "swarm-moving": TimelineFigure(
        "beside SWARM Fig. 14",
        "one hotspot that crosses 40 % of the map within twenty minutes",
        "one-moving",
        "One slowly moving hotspot",
    ),
}
BEFORE_S = 120.0
"""The level before a hotspot is the mean of this long."""
RECOVERED_SHARE = 0.95
OURS, PRINTED = "swarm-measured", "swarm"
PAID = (PRINTED, OURS, "over-partitioned", "per-batch-weighed")
"""Strategies whose moves are charged for in a second run; `per-batch` moves as much as `per-batch-weighed`."""
IN_BATCHES = ("static-history", PRINTED, OURS)
"""Strategies that need no batches, and run in them a second time."""


def hotspot_world(name: str, sizes: TimelineSizes, seed: int) -> World:
    base = Tweets(seed=seed, country="US", bounds=US, events_per_s=sizes.drawn_per_s)
    grid = Grid(*US, columns=sizes.cells_per_side, rows=sizes.cells_per_side)
    spots = scenario(name, base, sizes.hotspot_queries)
    weight = round(sizes.offered_per_s / sizes.drawn_per_s)
    return World(spots, grid, sizes.queries, weight=weight, step_s=sizes.step_s)


def measure(
    shown: TimelineFigure, sizes: TimelineSizes, seed: int, report: Progress, setup: ClusterSetup | None = None
) -> Result:
    """All strategies through one scenario; the rows are minutes of a strategy."""
    setup = setup or ClusterSetup()
    report("drawing the world")
    world = hotspot_world(shown.scenario, sizes, seed)
    spots = cast(Hotspots, world.workload).spots
    contestants = [cluster(contestant, world, setup, cpu_s) for contestant in STRATEGY_NAMES]
    dear = replace(setup, service=replace(setup.service, move_us=MOVE_US_STORM))
    paid = [cluster(contestant, world, dear) for contestant in PAID]
    batched = [cluster(contestant, world, replace(setup, batches=True)) for contestant in IN_BATCHES]
    run_contestants(world, [*contestants, *paid, *batched], max(spot.end_s for spot in spots) + sizes.calm_s, report)
    config = {
        "scenario": shown.scenario,
        "executors": setup.executors,
        "routers": setup.routers,
        "round_s": setup.round_s,
        "batch_s": world.step_s,
        "pending_max": setup.sources * setup.pending_max,
        "service": vars(setup.service),
        "offered_per_s": world.offered_per_s,
        "hotspots": [vars(spot) for spot in spots],
        "plans": {c.name: sum(entry.outcome == "applied" for entry in c.entries) for c in contestants},
    }
    rows = [row for c in contestants for row in minute_rows(c.name, by_minute(c.spans), spots)]
    return Result(rows, _summary(spots, contestants) | _variants(spots, contestants, paid, batched), config)


def run_contestants(world: World, contestants: Sequence[Cluster], horizon_s: float, report: Progress) -> None:
    for now_s in race(world, contestants, horizon_s):
        if now_s % 60 == 0:
            report(f"minute {now_s / 60:.0f} of {horizon_s / 60:.0f}")


def minute_rows(name: str, minutes: Sequence[Span], spots: Sequence[Hotspot]) -> Iterator[dict[str, Any]]:
    for span in minutes:
        yield {
            "strategy": name,
            "minute": int(span.start_s // 60),
            "queries": round(span.queries),
            "hotspot_share": sum(spot.share(span.start_s + span.span_s / 2) for spot in spots),
            "units_of_work": span.units_of_work,
            "events_per_s": round(span.events_per_s),
            "latency_ms": span.latency_ms,
            "batch_wait_ms": span.wait_ms,
            "utilisation": span.utilisation[1],
            "moved": span.moved,
            "driver_s": span.driver_s,
            "coordinator_bytes": span.coordinator_bytes,
            "partitions": span.partitions,
        }


def _summary(spots: Sequence[Hotspot], contestants: Sequence[Cluster]) -> dict[str, float]:
    start_s, end_s = spots[0].start_s, spots[-1].end_s
    during = {c.name: _between(c, start_s, end_s) for c in contestants}
    recovered = {c.name: recovery_of(c.spans, start_s, end_s) for c in contestants}
    history = during["static-history"]
    summary: dict[str, float] = {}
    for suffix, name in (("", OURS), ("_as_printed", PRINTED)):
        summary[f"rounds_to_95pct{suffix}"] = float(recovered[name].rounds)
        summary[f"rounds_from_cold{suffix}"] = float(recovered[name].from_cold_rounds)
        summary[f"work_vs_static_history{suffix}"] = during[name].units_of_work / history.units_of_work
        summary[f"latency_vs_static_history{suffix}"] = during[name].latency_ms / history.latency_ms
    for name, span in during.items():
        key = key_of(name)
        summary |= {
            f"work_{key}": span.units_of_work,
            f"latency_ms_{key}": span.latency_ms,
            f"batch_wait_ms_{key}": span.wait_ms,
            f"moved_{key}": float(span.moved),
            f"driver_s_{key}": span.driver_s,
            f"utilisation_mean_{key}": span.utilisation[1],
            f"rounds_to_95pct_{key}": float(recovered[name].rounds),
            f"lowest_{key}": recovered[name].lowest,
        }
    return summary


def _variants(
    spots: Sequence[Hotspot], free: Sequence[Cluster], paid: Sequence[Cluster], batched: Sequence[Cluster]
) -> dict[str, float]:
    start_s, end_s = spots[0].start_s, spots[-1].end_s
    work = {c.name: _between(c, start_s, end_s).units_of_work for c in free}
    summary = {f"work_paid_{key_of(c.name)}": _between(c, start_s, end_s).units_of_work / work[c.name] for c in paid}
    for c in batched:
        span = _between(c, start_s, end_s)
        summary[f"work_in_batches_{key_of(c.name)}"] = span.units_of_work
        summary[f"latency_ms_in_batches_{key_of(c.name)}"] = span.latency_ms
        summary[f"rounds_to_95pct_in_batches_{key_of(c.name)}"] = float(recovery_of(c.spans, start_s, end_s).rounds)
    return summary


def key_of(name: str) -> str:
    return name.replace("-", "_")


class Recovery(NamedTuple):
    rounds: int
    """Rounds from the hotspot's start until 95 % of the level before was held again; 0 if it never fell below."""
    lowest: float
    """The lowest round of the hotspot, as a share of the level before."""
    from_cold_rounds: int
    """Rounds from the start of the stream until 95 % of the level before the hotspot."""


def recovery_of(spans: Sequence[Span], start_s: float, end_s: float) -> Recovery:
    """How a strategy came through a hotspot. Its level is the share of the machines' time that serves events.

    That share is units of work over what a perfectly balanced cluster would do of the same events and queries. Units of
    work themselves would not do: a hotspot's own queries lift them, and its events are cheaper or dearer than those
    of the cities, though nothing got better or worse. A level is reached with the first round that has it and begins a
    stretch as long as that of the level before with such a mean; if never, it takes all rounds of the hotspot."""
    level = _busy_share(total(s for s in spans if start_s - BEFORE_S <= s.start_s < start_s))
    hot = [_busy_share(s) for s in spans if start_s <= s.start_s < end_s]
    cold = [_busy_share(s) for s in spans if s.start_s < start_s]
    held_rounds = max(1, round(BEFORE_S / spans[0].span_s))
    enough = RECOVERED_SHARE * level
    return Recovery(_rounds_below(hot, enough, held_rounds), min(hot) / level, _rounds_below(cold, enough, held_rounds))


def _busy_share(span: Span) -> float:
    return span.service_s / (span.span_s * len(span.busy_s))


def _rounds_below(levels: Sequence[float], enough: float, held_rounds: int) -> int:
    for i, level in enumerate(levels):
        if min(level, fmean(levels[i : i + held_rounds])) >= enough * (1 - 1e-9):
            return i
    return len(levels)


def _between(contestant: Cluster, start_s: float, end_s: float) -> Span:
    return total(s for s in contestant.spans if start_s <= s.start_s < end_s)


def plot(shown: TimelineFigure, result: Result) -> "Figure":
    """Lines: units of work. Shaded: the hotspots' share of the stream. Dashed: queries in the system."""
    drawn, (work,) = figure(width_in=9.5, height_in=5.0)
    lines = by_strategy(result.rows)
    for name, rows in lines.items():
        units = [row["units_of_work"] / 1e12 for row in rows]
        minutes = [row["minute"] + 0.5 for row in rows]
        work.plot(minutes, units, label=name, markevery=4, linewidth=3.0 if name == OURS else 1.6)
    rows = max(lines.values(), key=len)
    minutes = [row["minute"] + 0.5 for row in rows]
    top = work.get_ylim()[1] * 1.05
    shares = [row["hotspot_share"] for row in rows]
    shade = [share / max(max(shares), 1e-9) * top * 0.5 for share in shares]
    work.fill_between(
        minutes, shade, color="#BBBBBB", alpha=0.4, linewidth=0, label=f"hotspot (≤ {max(shares):.0%} of events)"
    )
    work.set(
        title=f"{shown.title} ({shown.where})",
        xlabel="minutes",
        ylabel="units of work (10¹² checks/s)",
        ylim=(0, top),
        xlim=(0, minutes[-1] + 0.5),
    )
    queries = work.twinx()
    queries.plot(minutes, [row["queries"] / 1e6 for row in rows], "--", color="black", marker="", linewidth=1.2)
    queries.set(ylabel="queries in the system (millions, dashed)", ylim=(0, 4 * max(r["queries"] for r in rows) / 3e6))
    queries.grid(visible=False)
    queries.spines["right"].set_visible(True)
    work.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4)
    return drawn


def by_strategy(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault(row["strategy"], []).append(row)
    return lines
