"""Thesis Figures 6.14 to 6.17: thirty minutes with an attack, with Guard and without, minute by minute.

The figures differ in the rate of the attack (`FIGURES`). What is measured and what the thesis leaves open is in
`half_hours.py`; the attack itself is in `lab/workload/attack.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from geoswarm.lab.bench.guard.half_hours import HalfHourSizes, half_hour_config, half_hours
from geoswarm.lab.bench.guard.outcomes import GUARDED, KINDS, SETTINGS, AttackOutcome, group_outcomes, outcome_summary
from geoswarm.lab.bench.kit.catalogue import FigureRow
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.attack import ATTACK_S

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = {Scale.SMALL: HalfHourSizes(2048, 10, 1), Scale.FULL: HalfHourSizes(5120, 5, 5, tuple(SETTINGS))}


@dataclass(frozen=True)
class AttackFigure(FigureRow):
    rate: int
    """Changes a second of all attackers together."""


FIGURES = {
    "guard-fig6.14": AttackFigure("Thesis Fig. 6.14", "half an hour with an attack of 150 changes a second", 150),
    "guard-fig6.15": AttackFigure("Thesis Fig. 6.15", "half an hour with an attack of 300 changes a second", 300),
    "guard-fig6.16": AttackFigure("Thesis Fig. 6.16", "half an hour with an attack of 600 changes a second", 600),
    "guard-fig6.17": AttackFigure("Thesis Fig. 6.17", "half an hour with an attack of 1200 changes a second", 1200),
}


def measure(shown: AttackFigure, sizes: HalfHourSizes, seed: int, report: Progress) -> Result:
    """Rows are minutes of a kind; the mean over seeds."""
    outcomes = []
    for number in range(sizes.seeds):
        report(f"seed {number + 1} of {sizes.seeds}: {len(KINDS)} kinds of half hours, {len(sizes.settings)} clusters")
        outcomes += half_hours(sizes, seed + number, shown.rate)
    rows = [row for lines in group_outcomes(outcomes).values() for row in _rows(lines)]
    return Result(rows, outcome_summary(outcomes), half_hour_config(sizes, {"rate_per_s": shown.rate}))


def _rows(outcomes: Sequence[AttackOutcome]) -> Iterator[dict[str, Any]]:
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


def plot(shown: AttackFigure, result: Result) -> "Figure":
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
        panel.set(title=f"{shown.rate} changes/s ({shown.where}): {name}", xlabel="minutes", ylabel="thousand events/s")
        panel.set_ylim(bottom=0)
    panels[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)
    return drawn
