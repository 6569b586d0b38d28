"""Thesis §6.4, more worlds: attacks of its kind, days without any, and attackers that it did not try.

No user who is not an attacker may ever be blocked (`false_blocks`, over all worlds); no attacker of the thesis' kind
may be left (`missed`: of worlds with a second malicious hotspot two detection rounds before the end, or earlier; where
the cluster never rebalanced because of them there is nothing to find). Of the new attackers the rates are reported as
found: `caught_KIND` is the share of their worlds in which all names that attacked are blocked, `stopped_KIND` the
share of what they wished to do after their second malicious hotspot that was refused. `half_hours.py` says what is
measured.

    thesis         rates 150 to 1200 changes/s × 1 to 50 attackers
    calm           an ordinary day, without a burst                       festival     one place, for an hour
    six-pm         a city's queries move to its suburbs                   news         all users, one place, two minutes
    drip           half as active as the normal user in the middle        rotating     new names every three minutes
    pool           the same, out of 40 names                              mimic        5000 users, 20 queries each, once
    in-hotspot     begins where a festival is                             poisoned     100 000 invented users meanwhile

Small worlds: one drawn query stands for five, so a user shows up in Guard's tables with a fifth of what it does;
for two where an attacker does less than five changes a second.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from geoswarm.guard.guard import Guard
from geoswarm.guard.rules import GuardRules
from geoswarm.lab.bench.guard.half_hours import (
    BURST_SHARE,
    NORMAL_PER_S,
    RATES,
    HalfHourSizes,
    attack_world,
    cluster_setup,
    half_hour_config,
    outcome_of,
)
from geoswarm.lab.bench.guard.outcomes import OURS, PRINTED, ROUND_S, SETTINGS, AttackOutcome
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.workload.attack import Attackers, Poisoners, flash_crowd, slow_drip
from geoswarm.lab.workload.crowds import Commuters, Gathering, NormalUsers
from geoswarm.lab.workload.hotspots import Hotspot, Hotspots
from geoswarm.lab.workload.traffic import EventStream, Party, Traffic
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.sim.attack_world import AttackCluster
from geoswarm.run.sim.attack_world import run as run_world

SMALL_WORLD = HalfHourSizes(1024, 5, 1, warm_s=120.0, minutes=13, step_s=7.5)
CALM_S = 120.0
"""Seconds from minute 0 to whatever happens."""
PLACES = ((0.85, 0.65), (0.63, 0.69), (0.12, 0.4), (0.48, 0.35))
"""Places of festivals and news, as shares of the sides: near Philadelphia, Chicago, Los Angeles and Dallas."""
ATTACKERS = (1, 2, 5, 10, 20, 50)
NATURAL = ("calm", "festival", "six-pm", "news")
NEW = ("drip", "rotating", "pool", "mimic", "in-hotspot", "poisoned")
THESIS = "thesis"


class GuardWorld(NamedTuple):
    kind: str
    setting: str
    seed: int
    rate: int = 600
    attackers: int = 10

    @property
    def is_faint(self) -> bool:
        """Whether an attacker does so little that a fifth of it would be no more than chance."""
        return self.rate / self.attackers < 5.0


def guard_worlds(scale: Scale, seed: int) -> list[GuardWorld]:
    """More than 200 worlds at full scale; at small scale each kind once or twice."""
    settings = (OURS, PRINTED)
    if scale is Scale.SMALL:
        few = [GuardWorld(THESIS, OURS, seed, rate, n) for rate, n in zip(RATES, (10, 50, 10, 1), strict=True)]
        return [*few, *(GuardWorld(kind, OURS, seed) for kind in (*NATURAL, *NEW))]
    attacks = [
        GuardWorld(THESIS, setting, seed + i, rate, n)
        for i, setting in ((0, OURS), (1, OURS), (2, OURS), (3, PRINTED), (4, PRINTED))
        for rate, n in product(RATES, ATTACKERS)
    ]
    natural = [GuardWorld(kind, settings[i % 2], seed + i) for kind in NATURAL for i in range(12)]
    return attacks + natural + [GuardWorld(kind, settings[i % 2], seed + i) for kind in NEW for i in range(8)]


class GuardWorldsSizes(NamedTuple):
    scale: Scale
    """Which worlds."""
    each: HalfHourSizes = SMALL_WORLD


SIZES = {scale: GuardWorldsSizes(scale) for scale in Scale}


def measure(sizes: GuardWorldsSizes, seed: int, report: Progress) -> Result:
    return measure_worlds(guard_worlds(sizes.scale, seed), sizes.each, report)


def measure_worlds(chosen: Sequence[GuardWorld], sizes: HalfHourSizes, report: Progress) -> Result:
    rows = []
    for number, case in enumerate(chosen):
        report(f"world {number + 1} of {len(chosen)}: {case.kind}, {case.setting}")
        fine = sizes._replace(query_weight=min(sizes.query_weight, 2)) if case.is_faint else sizes
        rows.append(_row(case, *play_world(case, fine), fine))
    summary: dict[str, float] = {
        "worlds": len(rows),
        "false_blocks": sum(row["false_blocks"] for row in rows),
        "missed": sum(row["missed"] for row in rows if row["kind"] == THESIS and row["due"]),
        "attacks_due": sum(row["due"] for row in rows if row["kind"] == THESIS),
    }
    waited = [row["rounds_to_block"] for row in rows if row["kind"] == THESIS and row["rounds_to_block"] is not None]
    if waited:
        summary["rounds_to_block_max"] = max(waited)
    for kind in NEW:
        theirs = [row for row in rows if row["kind"] == kind]
        if theirs:
            summary[f"caught_{kind}"] = fmean(row["missed"] == 0 for row in theirs)
            summary[f"stopped_{kind}"] = fmean(row["stopped"] for row in theirs)
    return Result(rows, summary, half_hour_config(sizes, {"calm_s": CALM_S}))


def play_world(case: GuardWorld, sizes: HalfHourSizes) -> tuple[AttackOutcome, float]:
    """The outcome, and the share of the attackers' wishes after their second hotspot that was refused."""
    cluster = guarded_cluster(case, sizes)
    for _ in run_world(cluster.world, [cluster]):
        pass
    outcome = outcome_of(cluster, sizes, case.setting, case.kind, case.rate, case.attackers, case.seed)
    since_s = outcome.hotspots_s[1] + sizes.warm_s if len(outcome.hotspots_s) > 1 else float("inf")
    return outcome, cluster.refused_share(since_s)


def guarded_cluster(case: GuardWorld, sizes: HalfHourSizes) -> AttackCluster:
    world = attack_world(world_traffic(case, sizes), sizes)
    rules = GuardRules()
    if case.kind == "poisoned":  # as many fewer rows as fewer names are drawn: the flood must not fit
        rows = max(2048, 50_000 // sizes.query_weight)
        rules = GuardRules(users_max=rows, hotspots_max=64, makers_max=rows // 128)
    named = "mimic" if case.kind == "mimic" else "attacker"
    strategy = SETTINGS[case.setting][0]
    return AttackCluster(world, cluster_setup(case.setting), strategy, Guard(rules, case.seed), attackers=named)


def world_traffic(case: GuardWorld, sizes: HalfHourSizes) -> Traffic:
    weight, start_s, place = sizes.query_weight, sizes.warm_s + CALM_S, PLACES[case.seed % len(PLACES)]
    calm = Tweets(
        seed=case.seed,
        country="US",
        bounds=US,
        events_per_s=sizes.drawn_per_s,
        burst_share=0.0 if case.kind == "calm" else BURST_SHARE,
    )
    stream = _stream_of_place(case, calm, place, start_s)
    attacks = case.kind == THESIS or case.kind in NEW
    theirs = sizes.queries // 10 if attacks else 0
    normal = NormalUsers(stream, queries=(sizes.queries - theirs) // weight, changes_per_s=NORMAL_PER_S / weight)
    others: tuple[Party, ...] = ()
    crowd = 50_000 // weight
    attack = Attackers(stream, case.attackers, max(1, theirs // weight), case.rate / weight, start_s)
    match case.kind:
        case "festival":
            others = (Gathering(stream, place, start_s, 3600.0, crowd),)
        case "six-pm":
            others = (Commuters(stream, place, start_s, 1800.0, crowd),)
        case "news":
            others = (Gathering(stream, place, start_s, 120.0, crowd),)
        case "drip":
            others = (slow_drip(stream, start_s, queries=attack.queries, share=0.5 / weight),)
        case "rotating":
            others = (replace(attack, rename_s=180.0),)
        case "pool":
            others = (replace(attack, rename_s=180.0, names_max=40),)
        case "mimic":
            others = (flash_crowd(stream, place, start_s, users=5000, queries=attack.queries),)
        case "in-hotspot":
            others = (Gathering(stream, place, start_s - 60.0, 1800.0, crowd), replace(attack, target=place))
        case "poisoned":
            horizon_s = sizes.warm_s + sizes.minutes * 60.0
            others = (attack, Poisoners(stream, 100_000 // weight, 0.0, horizon_s))
        case "thesis":
            others = (attack,)
    return Traffic(stream, (normal, *others))


def _stream_of_place(case: GuardWorld, calm: Tweets, place: tuple[float, float], start_s: float) -> EventStream:
    """The stream with more posts at the place of an event, as people there also post."""
    lasts_s = {"festival": 3600.0, "in-hotspot": 3600.0, "news": 900.0}.get(case.kind)
    if lasts_s is None:
        return calm
    crowd = Hotspot(place, start_s, lasts_s, 0, peak_share=0.05, side_share=0.02)
    return Hotspots(calm, (replace(crowd, intensity="step") if case.kind == "news" else crowd,))


def _row(case: GuardWorld, outcome: AttackOutcome, stopped: float, sizes: HalfHourSizes) -> dict[str, Any]:
    hotspots, end_s = outcome.hotspots_s, sizes.minutes * 60.0
    attacks = case.kind == THESIS or case.kind in NEW
    return {
        **case._asdict(),
        "rebalances": len(outcome.sensed),
        "malicious_hotspots": len(hotspots),
        "due": len(hotspots) > 1 and hotspots[1] <= end_s - 2 * ROUND_S,
        "blocked": len(outcome.blocked_at_s),
        "missed": len(outcome.missed) if attacks else 0,
        "false_blocks": len(outcome.false_blocks),
        "rounds_to_block": outcome.rounds_to_block,
        "stopped": stopped,
    }
