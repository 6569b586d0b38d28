"""The outcome of half an hour with an attack, and figures from several of them: losses, blocks, recovery.

Nothing is run here: `half_hours.py` runs them, and says what the kinds and the figures are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from geoswarm.lab.workload.attack import ATTACK_S
from geoswarm.run.sim.attack_world import SensedHotspot
from geoswarm.run.sim.service import MOVE_US_STORM
from geoswarm.run.sim.spans import Span, by_minute

CALM, EXTRA, ATTACK = "no attack", "extra activity", "attack"
GUARDED, KEPT, REMOVED = "guarded", "queries kept", "all removed"
WITH_GUARD = (GUARDED, KEPT, REMOVED)
KINDS = (CALM, EXTRA, ATTACK, *WITH_GUARD)
OURS, PRINTED, AUTO = "swarm-measured", "swarm, paid", "auto"
SETTINGS = {
    OURS: ("swarm-measured", 0.0),
    AUTO: ("auto", 0.0),
    PRINTED: ("swarm", MOVE_US_STORM),
    "swarm-measured, paid": ("swarm-measured", MOVE_US_STORM),
    "swarm": ("swarm", 0.0),
}
"""The strategy of each cluster, and microseconds for each moved query at either end."""
OFFERED_SHARE = 0.9
RECOVERED_SHARE = 0.95
ROUND_S = 60.0
"""Seconds of a detection round."""


KEYS = {
    EXTRA: "extra",
    ATTACK: "unguarded",
    GUARDED: "guarded",
    KEPT: "guarded_kept",
    REMOVED: "guarded_all_removed",
}


@dataclass(frozen=True)
class AttackOutcome:
    """One cluster's half hour. Times are seconds from minute 0, the warm-up cut off."""

    setting: str
    kind: str
    rate: int
    attackers: int
    seed: int
    spans: list[Span]
    sensed: list[SensedHotspot]
    blocked_at_s: dict[str, float]
    suspected_at_s: list[float]
    """Ends of the detection rounds that found an attacker suspicious."""
    false_blocks: list[str]
    missed: list[str]

    @property
    def minutes(self) -> list[float]:
        """Events a second."""
        return [span.events_per_s for span in by_minute(self.spans)]

    @property
    def hotspots_s(self) -> list[float]:
        """When malicious hotspots made the cluster rebalance."""
        return [hotspot.at_s for hotspot in self.sensed if hotspot.is_malicious]

    @property
    def blocked_s(self) -> float | None:
        """When all attackers were blocked."""
        return max(self.blocked_at_s.values()) if self.blocked_at_s and not self.missed else None

    @property
    def rounds_to_block(self) -> int | None:
        """Detection rounds that ended after the second malicious hotspot, until all attackers were blocked."""
        if self.blocked_s is None or len(self.hotspots_s) < 2:
            return None
        return max(0, math.ceil((self.blocked_s - self.hotspots_s[1]) / ROUND_S))

    @property
    def detect_s(self) -> float | None:
        """Mean seconds from a malicious hotspot to the end of the round that finds it, until the block."""
        until_s = self.blocked_s or math.inf
        waits = [min((end - at for end in self.suspected_at_s if end >= at), default=None) for at in self.hotspots_s]
        found = [wait for wait, at in zip(waits, self.hotspots_s, strict=True) if wait is not None and at <= until_s]
        return fmean(found) if found else None

    @property
    def block_s(self) -> float | None:
        """Seconds from the first malicious hotspot until all attackers are blocked (thesis Fig. 6.20)."""
        return None if self.blocked_s is None or not self.hotspots_s else self.blocked_s - self.hotspots_s[0]


def group_outcomes(outcomes: Sequence[AttackOutcome]) -> dict[tuple[str, str, int, int], list[AttackOutcome]]:
    """The outcomes of all seeds, by setting, kind, rate and number of attackers."""
    groups: dict[tuple[str, str, int, int], list[AttackOutcome]] = {}
    for o in outcomes:
        groups.setdefault((o.setting, o.kind, o.rate, o.attackers), []).append(o)
    return groups


def losses(outcomes: Sequence[AttackOutcome]) -> dict[tuple[str, str, int], float]:
    """How much less was done than without an attack, over the same half hours, by setting, kind and rate."""
    calm = {(o.setting, o.seed): fmean(o.minutes) for o in outcomes if o.kind == CALM}
    found: dict[tuple[str, str, int], float] = {}
    for (setting, kind, rate, _), group in group_outcomes(outcomes).items():
        if kind != CALM:
            found[setting, kind, rate] = 1 - sum(fmean(o.minutes) for o in group) / sum(
                calm[setting, o.seed] for o in group
            )
    return found


def outcome_summary(outcomes: Sequence[AttackOutcome]) -> dict[str, float]:
    """Keys without a name are of this engine."""
    summary: dict[str, float] = {}
    lost = losses(outcomes)
    for setting in dict.fromkeys(o.setting for o in outcomes):
        suffix = setting_suffix(setting)
        for kind, key in KEYS.items():
            values = [loss for (s, k, _), loss in lost.items() if (s, k) == (setting, kind)]
            if values:
                summary[f"{key}_loss_max{suffix}"] = max(values)
                summary[f"{key}_loss_min{suffix}"] = min(values)
        summary |= block_summary([o for o in outcomes if o.setting == setting and o.kind == GUARDED], suffix)
    return summary


def block_summary(guarded: Sequence[AttackOutcome], suffix: str = "") -> dict[str, float]:
    if not guarded:
        return {}
    summary = {
        f"false_blocks{suffix}": float(sum(len(o.false_blocks) for o in guarded)),
        f"missed{suffix}": float(sum(len(o.missed) for o in guarded)),
    }
    rounds = [o.rounds_to_block for o in guarded if o.rounds_to_block is not None]
    if rounds:
        summary[f"rounds_to_block_max{suffix}"] = float(max(rounds))
    return summary


def setting_suffix(setting: str) -> str:
    if setting == OURS:
        return ""
    return "_as_printed" if setting == PRINTED else "_" + setting.replace(", ", "_").replace("-", "_")


def availability_by_minute(outcome: AttackOutcome, calm_per_s: float) -> list[float]:
    """The availability of each minute."""
    return [min(1.0, rate / (OFFERED_SHARE * calm_per_s)) for rate in outcome.minutes]


def recovery_s(outcome: AttackOutcome, calm_per_s: float) -> float | None:
    """Seconds from the lowest round of the attack until a minute is nearly as it is without one (Fig. 6.22)."""
    if outcome.blocked_s is None:
        return None
    rates = [span.events_per_s for span in outcome.spans]
    during = [i for i, s in enumerate(outcome.spans) if ATTACK_S <= s.start_s <= outcome.blocked_s + 5 * ROUND_S]
    lowest = min(during, key=rates.__getitem__)
    per_minute = max(1, round(60.0 / outcome.spans[0].span_s))
    for i in range(lowest, len(rates) - per_minute + 1):
        if fmean(rates[i : i + per_minute]) >= RECOVERED_SHARE * calm_per_s:
            return outcome.spans[i].start_s - outcome.spans[lowest].start_s
    return None
