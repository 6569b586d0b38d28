"""A virtual cluster through thirty minutes with an attack: what the thesis' Figures 6.14 to 6.22 share.

Measures nothing by itself: `fig6_14_to_17.py`, `blocking.py` and the figures do. Time is simulated
(`run/sim/attack_world.py`), so a figure depends on its seed alone. Thesis §6.4: a million queries, 100 normal users,
600 changes a second, 22 executors, rounds of 15 s, detection rounds of 60 s; the attack starts at minute 5. The thesis
starts cold; here the cluster has run for a while before minute 0, because what a cold start costs is shown elsewhere
(`swarm/fig12_to_16.py`) and does not come from an attack.

Four kinds of half hours, in the same world until minute 5, and the last one three times:

    no attack        the attackers' 100 000 queries just stand
    extra activity   normal users change them, as often as the attackers would
    attack           attackers move them from target to target
    guarded          the same with Guard as it is by default: what the blocked registered in the last five detection
                     rounds is removed
    queries kept     Guard blocks users and leaves their queries, as in the thesis; none expires here
    all removed      all that the blocked have is removed: the cluster then has up to 10 % fewer queries than without an
                     attack, and does more

Clusters: `swarm-measured` is this engine as it runs, whose moves are free; `swarm, paid` is the strategy of the paper
on machines that send and index each moved query. `SETTINGS` has all four.

*Throughput* is events done per second when sources offer more than can be done. *Availability* of a minute is the share
of a real-time stream that is done in time, where that stream is `OFFERED_SHARE` of what the cluster does without an
attack: the minute's throughput over that rate, at most 1. What a cluster under back-pressure does not take is what a
stream that cannot be slowed would lose or delay (thesis §6.4.2); a backlog from the minute before is not counted twice.

A hotspot is *malicious* if most of its queries of the last five minutes are the attackers'.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

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
    AttackOutcome,
)
from geoswarm.lab.bench.kit.harness import Scale
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.swarm.fig12_to_16 import CELLS_PER_SIDE, OFFERED_PER_S
from geoswarm.lab.workload.attack import ATTACK_S, Attackers, Extra
from geoswarm.lab.workload.crowds import NormalUsers
from geoswarm.lab.workload.traffic import Party, Traffic
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.sim.attack_world import AttackCluster, AttackWorld, run
from geoswarm.run.sim.cluster import ClusterSetup

RATES = (150, 300, 600, 1200)
"""Changes a second of all attackers together."""
NORMAL_PER_S = 600
REMOVES: dict[str, Literal["recent", "all"]] = {GUARDED: "recent", REMOVED: "all"}
BURST_SHARE = 0.01
"""The share of the stream that goes to one place in one city while a burst lasts. Normal users' queries follow it, so
that with the 5 % of `Tweets` one cell would limit the whole cluster, attack or no attack."""


class HalfHourSizes(NamedTuple):
    drawn_per_s: int
    query_weight: int
    seeds: int
    settings: tuple[str, ...] = (OURS, PRINTED)
    rates: tuple[int, ...] = RATES
    attackers: tuple[int, ...] = (10,)
    queries: int = 1_000_000
    warm_s: float = 300.0
    minutes: int = 30
    step_s: float = 5.0
    offered_per_s: int = OFFERED_PER_S
    cells_per_side: int = CELLS_PER_SIDE


MANY = {
    Scale.SMALL: HalfHourSizes(1024, 20, 1, (OURS,), step_s=7.5),
    Scale.FULL: HalfHourSizes(2048, 10, 5),
}
"""Sizes for figures that need many runs."""


def half_hours(
    sizes: HalfHourSizes,
    seed: int,
    rate: int,
    kinds: Sequence[str] = KINDS,
    attackers: int = 10,
    settings: Sequence[str] | None = None,
) -> list[AttackOutcome]:
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
        world = attack_world(Traffic(stream, (normal, party)), sizes)
        clusters = {(s, kind): _cluster(world, s, kind, seed) for s in settings or sizes.settings for kind in alike}
        for _ in run(world, list(clusters.values())):
            pass
        outcomes += [outcome_of(c, sizes, s, kind, rate, attackers, seed) for (s, kind), c in clusters.items()]
    return outcomes


def attack_world(traffic: Traffic, sizes: HalfHourSizes) -> AttackWorld:
    grid = Grid(*US, columns=sizes.cells_per_side, rows=sizes.cells_per_side)
    horizon_s = sizes.warm_s + sizes.minutes * 60.0
    weight = max(1, round(sizes.offered_per_s / sizes.drawn_per_s))
    return AttackWorld(traffic, grid, horizon_s, weight=weight, query_weight=sizes.query_weight, step_s=sizes.step_s)


def cluster_setup(setting: str) -> ClusterSetup:
    setup = ClusterSetup()
    return replace(setup, service=replace(setup.service, move_us=SETTINGS[setting][1]))


def _cluster(world: AttackWorld, setting: str, kind: str, seed: int) -> AttackCluster:
    guard = Guard(seed=seed) if kind in WITH_GUARD else None
    return AttackCluster(
        world, cluster_setup(setting), SETTINGS[setting][0], guard, removes=REMOVES.get(kind, "nothing")
    )


def outcome_of(
    cluster: AttackCluster, sizes: HalfHourSizes, setting: str, kind: str, rate: int, attackers: int, seed: int
) -> AttackOutcome:
    warm_s = sizes.warm_s
    return AttackOutcome(
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


def half_hour_config(sizes: HalfHourSizes, more: Mapping[str, Any]) -> dict[str, Any]:
    return {**sizes._asdict(), "burst_share": BURST_SHARE, "offered_share": OFFERED_SHARE, **more}
