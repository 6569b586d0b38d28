"""A virtual cluster through thirty minutes with an attack: what the thesis' Figures 6.14 to 6.22 share.

Measures nothing by itself: each figure is a file of its own. Time is simulated (`run/sim/attack_world.py`), so a figure
depends on its seed alone. Thesis §6.4: a million queries, 100 normal users, 600 changes a second, 22 executors, rounds
of 15 s, detection rounds of 60 s; the attack starts at minute 5. The print starts cold; here the cluster has run for a
while before minute 0, because what a cold start costs is shown elsewhere (`timeline.py`) and is no attack's doing.

Four kinds of half hours, in the same world until minute 5, and the last one three times:

    no attack        the attackers' 100 000 queries just stand
    extra activity   normal users change them, as often as the attackers would
    attack           attackers move them from target to target
    guarded          the same with Guard as it is by default: what the blocked registered in the last five detection
                     rounds is removed
    queries kept     Guard blocks users and leaves their queries, as printed; none expires here
    all removed      all that the blocked have is removed: the cluster then has up to 10 % fewer queries than without an
                     attack, and does more

Clusters: `swarm-measured` is this engine as it runs, whose moves are free; `swarm, paid` is the strategy as printed on
machines that send and index each moved query. `SETTINGS` has all four.

*Throughput* is events done per second when sources offer more than can be done. *Availability* of a minute is the share
of a real-time stream that is done in time, where that stream is `OFFERED_SHARE` of what the cluster does without an
attack: the minute's throughput over that rate, at most 1. What a cluster under back-pressure does not take is what a
stream that cannot be slowed would lose or delay (thesis §6.4.2); a backlog from the minute before is not counted twice.

A hotspot is *malicious* if most of its queries of the last five minutes are the attackers'.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from geoswarm.core.space.grid import Grid
from geoswarm.guard.guard import Guard
from geoswarm.lab.bench.guard.outcomes import (
    ATTACK,
    CALM,
    EXTRA,
    GUARDED,
    KINDS,
    OFFERED_SHARE,
    OURS,
    PRINTED,
    REMOVED,
    SETTINGS,
    WITH_GUARD,
    Outcome,
    grouped,
    summary_of,
)
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.swarm.timeline import CELLS_PER_SIDE, OFFERED_PER_S, US
from geoswarm.lab.workload.attack import ATTACK_S, Attackers, Extra
from geoswarm.lab.workload.crowds import NormalUsers
from geoswarm.lab.workload.traffic import Party, Traffic
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.sim.attack_world import AttackCluster, AttackWorld, run
from geoswarm.run.sim.cluster import Setup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES = (150, 300, 600, 1200)
"""Changes a second of all attackers together."""
NORMAL_PER_S = 600
REMOVES: dict[str, Literal["recent", "all"]] = {GUARDED: "recent", REMOVED: "all"}
BURST_SHARE = 0.01
"""Of the stream, to one place in one city, as long as a burst lasts. Normal users' queries follow it, so that with the
5 % of `Tweets` one cell would limit the whole cluster, attack or no attack."""


class Sizes(NamedTuple):
    drawn_per_s: int
    query_weight: int
    seeds: int
    settings: tuple[str, ...] = (OURS, PRINTED)
    queries: int = 1_000_000
    warm_s: float = 300.0
    minutes: int = 30
    step_s: float = 5.0
    offered_per_s: int = OFFERED_PER_S
    cells_per_side: int = CELLS_PER_SIDE


SIZES = {Scale.SMALL: Sizes(2048, 10, 1), Scale.FULL: Sizes(5120, 5, 5, tuple(SETTINGS))}
MANY = {Scale.SMALL: Sizes(2048, 10, 1, (OURS,)), Scale.FULL: Sizes(2048, 10, 5)}
"""For figures that need many runs."""


def half_hours(
    sizes: Sizes,
    seed: int,
    rate: int,
    kinds: Sequence[str] = KINDS,
    attackers: int = 10,
    settings: Sequence[str] | None = None,
) -> list[Outcome]:
    """The kinds that are asked for, with every setting."""
    start_s = sizes.warm_s + ATTACK_S
    stream = Tweets(seed=seed, country="US", bounds=US, events_per_s=sizes.drawn_per_s, burst_share=BURST_SHARE)
    weight, theirs = sizes.query_weight, sizes.queries // 10
    normal = NormalUsers(stream, queries=(sizes.queries - theirs) // weight, changes_per_s=NORMAL_PER_S / weight)
    others: dict[str, Party] = {
        CALM: Extra(normal, theirs // weight, 0.0, start_s),
        EXTRA: Extra(normal, theirs // weight, rate / weight, start_s),
        ATTACK: Attackers(stream, attackers, theirs // weight, rate / weight, start_s),
    }
    outcomes = []
    for other, party in others.items():
        alike = [kind for kind in kinds if kind == other or (other == ATTACK and kind in WITH_GUARD)]
        if not alike:
            continue
        world = world_of(Traffic(stream, (normal, party)), sizes)
        clusters = {(s, kind): _cluster(world, s, kind, seed) for s in settings or sizes.settings for kind in alike}
        for _ in run(world, list(clusters.values())):
            pass
        outcomes += [outcome_of(c, sizes, s, kind, rate, attackers, seed) for (s, kind), c in clusters.items()]
    return outcomes


def world_of(traffic: Traffic, sizes: Sizes) -> AttackWorld:
    grid = Grid(*US, columns=sizes.cells_per_side, rows=sizes.cells_per_side)
    horizon_s = sizes.warm_s + sizes.minutes * 60.0
    weight = max(1, round(sizes.offered_per_s / sizes.drawn_per_s))
    return AttackWorld(traffic, grid, horizon_s, weight=weight, query_weight=sizes.query_weight, step_s=sizes.step_s)


def setup_of(setting: str) -> Setup:
    setup = Setup()
    return replace(setup, service=replace(setup.service, move_us=SETTINGS[setting][1]))


def _cluster(world: AttackWorld, setting: str, kind: str, seed: int) -> AttackCluster:
    guard = Guard(seed=seed) if kind in WITH_GUARD else None
    return AttackCluster(world, setup_of(setting), SETTINGS[setting][0], guard, removes=REMOVES.get(kind, "nothing"))


def outcome_of(
    cluster: AttackCluster, sizes: Sizes, setting: str, kind: str, rate: int, attackers: int, seed: int
) -> Outcome:
    warm_s = sizes.warm_s
    return Outcome(
        setting,
        kind,
        rate,
        attackers,
        seed,
        [replace(span, start_s=span.start_s - warm_s) for span in cluster.spans if span.start_s >= warm_s],
        [replace(seen, at_s=seen.at_s - warm_s) for seen in cluster.sensed if seen.at_s > warm_s],
        {user: at_s - warm_s for user, at_s in cluster.blocked_at_s.items()},
        [at_s - warm_s for at_s in cluster.suspected_at_s],
        cluster.false_blocks,
        cluster.missed,
    )


def timeline(rate: int, scale: Scale, seed: int, report: Progress) -> Result:
    return measure(rate, SIZES[scale], seed, report)


def measure(rate: int, sizes: Sizes, seed: int, report: Progress) -> Result:
    """Rows are minutes of a kind; the mean over seeds."""
    outcomes = []
    for number in range(sizes.seeds):
        report(f"seed {number + 1} of {sizes.seeds}: {len(KINDS)} kinds of half hours, {len(sizes.settings)} clusters")
        outcomes += half_hours(sizes, seed + number, rate)
    rows = [row for lines in grouped(outcomes).values() for row in _rows(lines)]
    return Result(rows, summary_of(outcomes), config_of(sizes, {"rate_per_s": rate}))


def _rows(outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    for minute, rates in enumerate(zip(*(outcome.minutes for outcome in outcomes), strict=True)):
        one = outcomes[0]
        hotspots = [sum(minute <= at_s / 60 < minute + 1 for at_s in outcome.hotspots_s) for outcome in outcomes]
        yield {
            "cluster": one.setting,
            "kind": one.kind,
            "minute": minute,
            "events_per_s": round(fmean(rates)),
            "malicious_hotspots": fmean(hotspots),
            "blocked": fmean(sum(at / 60 <= minute + 1 for at in o.blocked_at_s.values()) for o in outcomes),
        }


def config_of(sizes: Sizes, more: Mapping[str, Any]) -> dict[str, Any]:
    return {**sizes._asdict(), "burst_share": BURST_SHARE, "offered_share": OFFERED_SHARE, **more}


def draw(result: Result, title: str) -> "Figure":
    """A panel for each cluster. The attack starts at the dotted line."""
    names = list(dict.fromkeys(row["cluster"] for row in result.rows))
    drawn, panels = figure(len(names), width_in=6.5, height_in=4.6)
    for panel, name in zip(panels, names, strict=True):
        for kind in KINDS:
            rows = [row for row in result.rows if (row["cluster"], row["kind"]) == (name, kind)]
            panel.plot(
                [row["minute"] + 0.5 for row in rows],
                [row["events_per_s"] / 1e3 for row in rows],
                label=kind,
                markevery=3,
                linewidth=3.0 if kind == GUARDED else 1.6,
            )
        panel.axvline(ATTACK_S / 60, linestyle=":", color="black", linewidth=1.2)
        panel.set(title=f"{title}: {name}", xlabel="minutes", ylabel="thousand events/s")
        panel.set_ylim(bottom=0)
    panels[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)
    return drawn
