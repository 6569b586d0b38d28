"""Thesis Figures 6.20 and 6.21: time to find malicious hotspots and to block the attackers.

The figures differ in what is varied (`FIGURES`): the rate of the attack, or the number of attackers. The thesis finds a
hotspot within the round in which it is created, after 30 s on average, and needs two of them to block; it takes about
two minutes, however many the attackers are. `rounds_to_block_max` counts the detection rounds that end after the second
malicious hotspot until all attackers are blocked. What is measured is in `half_hours.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from geoswarm.lab.bench.guard.half_hours import MANY, HalfHourSizes, half_hour_config, half_hours
from geoswarm.lab.bench.guard.outcomes import GUARDED, AttackOutcome, block_summary, group_outcomes, setting_suffix
from geoswarm.lab.bench.kit.catalogue import FigureRow
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import PALETTE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_DETECT_S = 30.0


@dataclass(frozen=True)
class BlockingFigure(FigureRow):
    varied: str
    """The column of the rows."""
    label: str
    sizes: Mapping[Scale, HalfHourSizes]


BY_NUMBER = {
    Scale.SMALL: MANY[Scale.SMALL]._replace(rates=(600,), attackers=(1, 10, 50)),
    Scale.FULL: MANY[Scale.FULL]._replace(rates=(600,), attackers=(1, 5, 10, 20, 30, 40, 50)),
}
FIGURES = {
    "guard-fig6.20": BlockingFigure(
        "Thesis Fig. 6.20",
        "time to find malicious hotspots and to block the attackers, over the rate of the attack",
        "rate",
        "changes/s",
        MANY,
    ),
    "guard-fig6.21": BlockingFigure(
        "Thesis Fig. 6.21",
        "time to find malicious hotspots and to block the attackers, over their number, at 600 changes/s",
        "attackers",
        "attackers",
        BY_NUMBER,
    ),
}


def measure(shown: BlockingFigure, sizes: HalfHourSizes, seed: int, report: Progress) -> Result:
    outcomes = []
    for number in range(sizes.seeds):
        for rate in sizes.rates:
            for users in sizes.attackers:
                report(f"seed {number + 1} of {sizes.seeds}: {users} attackers, {rate} changes/s")
                outcomes += half_hours(sizes, seed + number, rate, (GUARDED,), users)
    rows = [_row(group) for group in group_outcomes(outcomes).values()]
    summary: dict[str, float] = {}
    for setting in sizes.settings:
        theirs, suffix = [o for o in outcomes if o.setting == setting], setting_suffix(setting)
        summary |= block_summary(theirs, suffix)
        for key, values in (("detect_s", [o.detect_s for o in theirs]), ("block_s", [o.block_s for o in theirs])):
            known = [value for value in values if value is not None]
            if known:
                summary[f"{key}_known_mean{suffix}"], summary[f"{key}_max{suffix}"] = fmean(known), max(known)
    return Result(rows, summary, half_hour_config(sizes, {"varied": shown.varied}))


def _row(group: Sequence[AttackOutcome]) -> dict[str, Any]:
    one = group[0]
    rounds = [o.rounds_to_block for o in group if o.rounds_to_block is not None]
    return {
        "cluster": one.setting,
        "rate": one.rate,
        "attackers": one.attackers,
        "detect_s": _mean_of_known([o.detect_s for o in group]),
        "paper_detect_s": PAPER_DETECT_S,
        "block_s": _mean_of_known([o.block_s for o in group]),
        "rounds_to_block": max(rounds) if rounds else None,
        "hotspots_until_block": fmean(
            sum(o.blocked_s is None or at_s <= o.blocked_s for at_s in o.hotspots_s) for o in group
        ),
        "blocked": sum(len(o.blocked_at_s) for o in group),
        "missed": sum(len(o.missed) for o in group),
        "false_blocks": sum(len(o.false_blocks) for o in group),
        "seeds": len(group),
    }


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def plot(shown: BlockingFigure, result: Result) -> "Figure":
    names = list(dict.fromkeys(row["cluster"] for row in result.rows))
    drawn, panels = figure(len(names), width_in=6.0)
    for panel, name in zip(panels, names, strict=True):
        rows = [row for row in result.rows if row["cluster"] == name]
        for i, (key, what) in enumerate((("detect_s", "detected"), ("block_s", "blocked"))):
            at = [n + (i - 0.5) * 0.4 for n in range(len(rows))]
            panel.bar(at, [row[key] or 0.0 for row in rows], 0.38, color=PALETTE[i], label=what)
        panel.set_xticks(range(len(rows)), [str(row[shown.varied]) for row in rows])
        where = shown.where.removeprefix("Thesis ")
        panel.set(title=f"Detect and block ({where}): {name}", xlabel=shown.label, ylabel="seconds")
    panels[0].legend()
    return drawn
