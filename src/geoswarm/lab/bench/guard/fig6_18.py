"""Thesis Fig. 6.18: mean throughput over half hours with extra activity, with an attack, and with Guard.

Five seeds at full scale. The thesis loses 18 % at 150 changes/s to 48 % at 1200; with Guard 5 %, and 10 % at 300.
`unguarded_loss_max` and `guarded_loss_max` are the largest of the four rates, each the mean over its seeds; what is
measured is in `half_hours.py`.
"""

from statistics import fmean
from typing import TYPE_CHECKING

from geoswarm.lab.bench.guard.half_hours import MANY, HalfHourSizes, half_hour_config, half_hours
from geoswarm.lab.bench.guard.outcomes import CALM, KINDS, AttackOutcome, group_outcomes, losses, outcome_summary
from geoswarm.lab.bench.kit.harness import Progress, Result
from geoswarm.lab.bench.kit.plots import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = MANY
PAPER_LOSS = {150: 0.18, 1200: 0.48}
"""Without Guard, from the text of the thesis; the other two are only in the picture."""


def measure(sizes: HalfHourSizes, seed: int, report: Progress) -> Result:
    outcomes = run_all_rates(sizes, seed, report)
    lost = losses(outcomes)
    rows = []
    for (setting, kind, rate, _), group in group_outcomes(outcomes).items():
        mean = [fmean(o.minutes) for o in group]
        rows.append(
            {
                "cluster": setting,
                "kind": kind,
                "rate": 0 if kind == CALM else rate,
                "events_per_s": round(fmean(mean)),
                "events_per_s_min": round(min(mean)),
                "events_per_s_max": round(max(mean)),
                "loss": lost.get((setting, kind, rate), 0.0),
                "paper_loss": PAPER_LOSS.get(rate) if kind == "attack" else None,
                "seeds": len(group),
            }
        )
    summary = outcome_summary(outcomes)
    for (setting, kind, rate), loss in lost.items():
        if setting == sizes.settings[0]:
            summary[f"loss_{kind.replace(' ', '_')}_{rate}"] = loss
    return Result(rows, summary, half_hour_config(sizes, {}))


def run_all_rates(sizes: HalfHourSizes, seed: int, report: Progress) -> list[AttackOutcome]:
    """Every kind at every rate; without an attack there is no rate, so that is run once for a seed."""
    outcomes = []
    for number in range(sizes.seeds):
        for i, rate in enumerate(sizes.rates):
            report(f"seed {number + 1} of {sizes.seeds}, {rate} changes/s")
            outcomes += half_hours(sizes, seed + number, rate, KINDS if i == 0 else KINDS[1:])
    return outcomes


def plot(result: Result) -> "Figure":
    names = list(dict.fromkeys(row["cluster"] for row in result.rows))
    drawn, panels = figure(len(names), width_in=6.5, height_in=4.6)
    for panel, name in zip(panels, names, strict=True):
        rows = [row for row in result.rows if row["cluster"] == name]
        calm = next(row["events_per_s"] for row in rows if row["kind"] == CALM)
        panel.axhline(calm / 1e3, linestyle="--", color="black", linewidth=1.2, label=CALM)
        for kind in KINDS[1:]:
            of_kind = [row for row in rows if row["kind"] == kind]
            at = range(len(of_kind))
            panel.plot(at, [row["events_per_s"] / 1e3 for row in of_kind], label=kind)
            panel.set_xticks(list(at), [str(row["rate"]) for row in of_kind])
        panel.set(title=f"Mean throughput (Fig. 6.18): {name}", xlabel="changes/s", ylabel="thousand events/s")
        panel.set_ylim(bottom=0)
    panels[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=4)
    return drawn
