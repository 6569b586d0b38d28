"""Thesis Fig. 6.20: time to find malicious hotspots and to block the attackers, over the rate of the attack.

The print finds a hotspot within the round in which it is created, after 30 s on average, and needs two of them to
block. `rounds_to_block_max` counts the detection rounds that end after the second malicious hotspot until all attackers
are blocked. What is measured is in `guard_timeline.py`.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from geoswarm.lab.bench.guard.outcomes import GUARDED, Outcome, blocks_of, grouped, suffix_of
from geoswarm.lab.bench.guard.timeline import MANY, RATES, Sizes, config_of, half_hours
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import PALETTE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_DETECT_S = 30.0


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(MANY[scale], seed, report)


def measure(
    sizes: Sizes,
    seed: int,
    report: Progress,
    rates: Sequence[int] = RATES,
    attackers: Sequence[int] = (10,),
) -> Result:
    outcomes = []
    for number in range(sizes.seeds):
        for rate in rates:
            for users in attackers:
                report(f"seed {number + 1} of {sizes.seeds}: {users} attackers, {rate} changes/s")
                outcomes += half_hours(sizes, seed + number, rate, (GUARDED,), users)
    rows = [_row(group) for group in grouped(outcomes).values()]
    summary: dict[str, float] = {}
    for setting in sizes.settings:
        theirs, suffix = [o for o in outcomes if o.setting == setting], suffix_of(setting)
        summary |= blocks_of(theirs, suffix)
        for key, values in (("detect_s", [o.detect_s for o in theirs]), ("block_s", [o.block_s for o in theirs])):
            known = [value for value in values if value is not None]
            if known:
                summary[f"{key}_mean{suffix}"], summary[f"{key}_max{suffix}"] = fmean(known), max(known)
    return Result(rows, summary, config_of(sizes, {"rates": list(rates), "attackers": list(attackers)}))


def _row(group: Sequence[Outcome]) -> dict[str, Any]:
    one = group[0]
    rounds = [o.rounds_to_block for o in group if o.rounds_to_block is not None]
    return {
        "cluster": one.setting,
        "rate": one.rate,
        "attackers": one.attackers,
        "detect_s": _mean([o.detect_s for o in group]),
        "paper_detect_s": PAPER_DETECT_S,
        "block_s": _mean([o.block_s for o in group]),
        "rounds_to_block": max(rounds) if rounds else None,
        "hotspots_until_block": fmean(
            sum(o.blocked_s is None or at_s <= o.blocked_s for at_s in o.hotspots_s) for o in group
        ),
        "blocked": sum(len(o.blocked_at_s) for o in group),
        "missed": sum(len(o.missed) for o in group),
        "false_blocks": sum(len(o.false_blocks) for o in group),
        "seeds": len(group),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def plot(result: Result) -> "Figure":
    return draw(result, "rate", "changes/s", "Time to detect and block (Fig. 6.20)")


def draw(result: Result, by: str, label: str, title: str) -> "Figure":
    names = list(dict.fromkeys(row["cluster"] for row in result.rows))
    drawn, panels = figure(len(names), width_in=6.0)
    for panel, name in zip(panels, names, strict=True):
        rows = [row for row in result.rows if row["cluster"] == name]
        for i, (key, what) in enumerate((("detect_s", "detected"), ("block_s", "blocked"))):
            at = [n + (i - 0.5) * 0.4 for n in range(len(rows))]
            panel.bar(at, [row[key] or 0.0 for row in rows], 0.38, color=PALETTE[i], label=what)
        panel.set_xticks(range(len(rows)), [str(row[by]) for row in rows])
        panel.set(title=f"{title}: {name}", xlabel=label, ylabel="seconds")
    panels[0].legend()
    return drawn
