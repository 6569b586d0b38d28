"""Timelines of a virtual cluster through a hotspot, all strategies in one world: what SWARM's Figures 12 to 16 share.

Measures nothing by itself: each figure is a file of its own that names its scenario. Time is simulated (`sim/`), with
service times taken from the real matcher, so a figure depends on its seed alone and not on the machine.

SWARM §6.2: a million queries at the start, 22 executors and 8 routers (30 executors for `replicated`), rounds of 15 s,
a cold start, and the hotspot after ten minutes. The print does not say how many queries come with a hotspot: here it is
as many again. The country is the US between its coasts, as in the print.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from geoswarm.bench.harness import Progress, Result, Scale
from geoswarm.bench.plots import figure
from geoswarm.sim.cluster import NAMES, Cluster, Setup, cluster, race
from geoswarm.sim.spans import Span, by_minute
from geoswarm.sim.world import World
from geoswarm.space.grid import Grid
from geoswarm.workload.hotspots import Hotspots, scenario
from geoswarm.workload.tweets import Tweets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

US = (-125.0, 24.0, -66.0, 50.0)
CELLS_PER_SIDE = 1000
SUBSCRIPTIONS = 1_000_000
HOTSPOT_QUERIES = 1_000_000
OFFERED_PER_S = 2_500_000
"""More than any strategy can take (SWARM §2)."""
DRAWN_PER_S = {Scale.SMALL: 4096, Scale.FULL: 16_384}
CALM_S = 600.0
"""After the last hotspot."""
BEFORE_S = 120.0
"""The level before a hotspot is the mean of this long."""
RECOVERED_SHARE = 0.95


def world_of(name: str, scale: Scale, seed: int, subscriptions: int = SUBSCRIPTIONS) -> World:
    drawn = DRAWN_PER_S[scale]
    base = Tweets(seed=seed, country="US", bounds=US, events_per_s=drawn)
    grid = Grid(*US, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE)
    return World(scenario(name, base, HOTSPOT_QUERIES), grid, subscriptions, weight=round(OFFERED_PER_S / drawn))


def timeline(name: str, scale: Scale, seed: int, report: Progress, setup: Setup | None = None) -> Result:
    """All strategies through one scenario; the rows are minutes."""
    setup = setup or Setup()
    report("drawing the world")
    world = world_of(name, scale, seed)
    spots = world.workload.spots
    horizon_s = max(spot.end_s for spot in spots) + CALM_S
    contestants = [cluster(contestant, world, setup) for contestant in NAMES]
    for now_s in race(world, contestants, horizon_s):
        if now_s % 60 == 0:
            report(f"minute {now_s / 60:.0f} of {horizon_s / 60:.0f}")
    minutes = {c.name: by_minute(c.spans) for c in contestants}
    config = {
        "scenario": name,
        "executors": setup.executors,
        "routers": setup.routers,
        "round_s": setup.round_s,
        "service": vars(setup.service),
        "offered_per_s": world.offered_per_s,
        "hotspots": [vars(spot) for spot in spots],
        "strategies": {c.name: _told(c, minutes[c.name]) for c in contestants},
    }
    return Result(_rows(world.workload, minutes), _summary(world.workload, contestants), config)


def _rows(workload: Hotspots, minutes: dict[str, list[Span]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for i, span in enumerate(minutes[NAMES[0]]):
        middle_s = span.start_s + span.span_s / 2
        row: dict[str, Any] = {
            "minute": i,
            "queries": round(span.queries),
            "hotspot_share": sum(spot.share(middle_s) for spot in workload.spots),
        }
        rows.append(row | {name: minutes[name][i].units_of_work for name in NAMES})
    return rows


def _told(contestant: Cluster, minutes: Sequence[Span]) -> dict[str, Any]:
    return {
        "events_per_s": [round(m.events_per_s) for m in minutes],
        "latency_ms": [m.latency_ms for m in minutes],
        "service_us": [m.service_us for m in minutes],
        "utilisation": [m.utilisation for m in minutes],
        "moved": [m.moved for m in minutes],
        "coordinator_bytes": [m.coordinator_bytes for m in minutes],
        "partitions": [m.partitions for m in minutes],
        "plans": sum(entry["outcome"] == "applied" for entry in contestant.entries),
    }


def _summary(workload: Hotspots, contestants: Sequence[Cluster]) -> dict[str, float]:
    first, last = workload.spots[0], workload.spots[-1]
    start_s, end_s = first.start_s, last.end_s
    during = {c.name: _mean([s for s in c.spans if start_s <= s.start_s < end_s]) for c in contestants}
    swarm = next(c for c in contestants if c.name == "swarm")
    summary = {"rounds_to_95pct": float(rounds_to_recover(swarm.spans, start_s))}
    for c in contestants:
        key = c.name.replace("-", "_")
        if c is not swarm:
            summary[f"rounds_to_95pct_{key}"] = float(rounds_to_recover(c.spans, start_s))
            summary[f"work_vs_{key}"] = during["swarm"].units_of_work / during[c.name].units_of_work
            summary[f"latency_vs_{key}"] = during["swarm"].latency_ms / during[c.name].latency_ms
        summary[f"moved_{key}"] = float(during[c.name].moved)
        summary[f"utilisation_mean_{key}"] = during[c.name].utilisation[1]
    return summary


def rounds_to_recover(rounds: Sequence[Span], start_s: float) -> int:
    """Rounds from the start of a hotspot until 95 % of the level before is reached and held for as long as that level
    was measured; 0 if it never fell below, all that is left if it never came back. The level is events per second,
    which is units of work per query: a hotspot's own queries lift the units of work though nothing got better."""
    level = _mean([r for r in rounds if start_s - BEFORE_S <= r.start_s < start_s]).events_per_s
    after = [r for r in rounds if r.start_s >= start_s]
    held_rounds = max(1, round(BEFORE_S / after[0].span_s))
    last_below = held = 0
    for i, span in enumerate(after):
        if span.events_per_s < RECOVERED_SHARE * level:
            last_below, held = i + 1, 0
        else:
            held += 1
            if held == held_rounds:
                break
    return last_below


def _mean(spans: Sequence[Span]) -> Span:
    total = spans[0]
    for span in spans[1:]:
        total += span
    return total


def draw(result: Result, title: str) -> "Figure":
    """Lines: units of work. Shaded: the hotspots' share of the stream. Dashed: queries in the system."""
    drawn, (work,) = figure(width_in=9.5, height_in=5.0)
    minutes = [row["minute"] + 0.5 for row in result.rows]
    for name in NAMES:
        units = [row[name] / 1e12 for row in result.rows]
        work.plot(minutes, units, label=name, markevery=4, linewidth=3.0 if name == "swarm" else 1.6)
    top = work.get_ylim()[1] * 1.05
    shares = [row["hotspot_share"] for row in result.rows]
    shade = [share / max(max(shares), 1e-9) * top * 0.5 for share in shares]
    work.fill_between(
        minutes, shade, color="#BBBBBB", alpha=0.4, linewidth=0, label=f"hotspot (≤ {max(shares):.0%} of events)"
    )
    work.set(
        title=title,
        xlabel="minutes",
        ylabel="units of work (10¹² checks/s)",
        ylim=(0, top),
        xlim=(0, minutes[-1] + 0.5),
    )
    queries = work.twinx()
    queries.plot(minutes, [row["queries"] / 1e6 for row in result.rows], "--", color="black", marker="", linewidth=1.2)
    queries.set(
        ylabel="queries in the system (millions, dashed)",
        ylim=(0, 4 * max(row["queries"] for row in result.rows) / 3e6),
    )
    queries.grid(visible=False)
    queries.spines["right"].set_visible(True)
    work.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4)
    return drawn
