"""Thesis Fig. 6.19: availability, minute by minute over all half hours of Fig. 6.18, as a box for each rate.

Availability is the share of a real-time stream that is done in time, where the stream is 90 % of what the cluster does
without an attack (`half_hours.py`). The thesis: about 90 % on average with Guard.
"""

from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Any

from geoswarm.lab.bench.guard.fig6_18 import run_all_rates
from geoswarm.lab.bench.guard.half_hours import MANY, HalfHourSizes, half_hour_config
from geoswarm.lab.bench.guard.outcomes import (
    ATTACK,
    CALM,
    GUARDED,
    KEPT,
    KEYS,
    availability_by_minute,
    group_outcomes,
    outcome_summary,
    setting_suffix,
)
from geoswarm.lab.bench.kit.harness import Progress, Result
from geoswarm.lab.bench.kit.plots import PALETTE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = MANY
DRAWN = (ATTACK, GUARDED, KEPT)


def measure(sizes: HalfHourSizes, seed: int, report: Progress) -> Result:
    outcomes = run_all_rates(sizes, seed, report)
    calm = {(o.setting, o.seed): fmean(o.minutes) for o in outcomes if o.kind == CALM}
    rows: list[dict[str, Any]] = []
    for (setting, kind, rate, _), group in group_outcomes(outcomes).items():
        minutes = [share for o in group for share in availability_by_minute(o, calm[setting, o.seed])]
        low, middle, high = quantiles(minutes, n=4, method="inclusive")
        figures = {"min": min(minutes), "q1": low, "median": middle, "q3": high, "max": max(minutes)}
        row = {"cluster": setting, "kind": kind, "rate": 0 if kind == CALM else rate, **figures}
        rows.append(row | {"mean": fmean(minutes), "minutes": len(minutes)})
    summary = outcome_summary(outcomes)
    for setting in sizes.settings:
        for kind, key in KEYS.items():
            theirs = [row for row in rows if (row["cluster"], row["kind"]) == (setting, kind)]
            summary[f"{key}_availability_mean{setting_suffix(setting)}"] = fmean(row["mean"] for row in theirs)
            summary[f"{key}_availability_min{setting_suffix(setting)}"] = min(row["min"] for row in theirs)
    return Result(rows, summary, half_hour_config(sizes, {}))


def plot(result: Result) -> "Figure":
    names = list(dict.fromkeys(row["cluster"] for row in result.rows))
    drawn, panels = figure(len(names), width_in=6.5, height_in=4.6)
    for panel, name in zip(panels, names, strict=True):
        rows = [row for row in result.rows if row["cluster"] == name and row["kind"] in DRAWN]
        rates = sorted({row["rate"] for row in rows})
        for i, kind in enumerate(DRAWN):
            boxes = [row for row in rows if row["kind"] == kind]
            stats = [
                {"whislo": b["min"], "q1": b["q1"], "med": b["median"], "q3": b["q3"], "whishi": b["max"]}
                | {"mean": b["mean"]}
                for b in boxes
            ]
            at = [rates.index(b["rate"]) + (i - 1) * 0.27 for b in boxes]
            panel.bxp(
                stats,
                positions=at,
                widths=0.22,
                showfliers=False,
                showmeans=True,
                patch_artist=True,
                boxprops={"facecolor": PALETTE[i], "alpha": 0.5},
                medianprops={"color": "black", "marker": ""},
                meanprops={"marker": "x", "markeredgecolor": "black"},
                manage_ticks=False,
            )
            panel.plot([], [], color=PALETTE[i], linewidth=8, alpha=0.5, marker="", label=kind)
        panel.set_xticks(range(len(rates)), [str(rate) for rate in rates])
        panel.set(title=f"Availability (Fig. 6.19): {name}", xlabel="changes/s", ylabel="of 90 % of capacity")
        panel.set_ylim(0, 1.05)
    panels[0].legend(loc="lower left")
    return drawn
