"""Thesis Fig. 6.22: seconds from the lowest throughput under attack until it is again what it is without one.

Reached when the mean of a minute is 95 % of that without an attack; 0 where the lowest round already began such a
minute. `queries kept` is the same with the queries of blocked users left where they are, as in the thesis. What is
measured is in `half_hours.py`. The text of the thesis gives no number: it grows with the rate.
"""

from statistics import fmean
from typing import TYPE_CHECKING, Any

from geoswarm.lab.bench.guard.half_hours import MANY, HalfHourSizes, half_hour_config, half_hours
from geoswarm.lab.bench.guard.outcomes import (
    CALM,
    GUARDED,
    KEPT,
    KEYS,
    block_summary,
    group_outcomes,
    recovery_s,
    setting_suffix,
)
from geoswarm.lab.bench.kit.harness import Progress, Result
from geoswarm.lab.bench.kit.plots import PALETTE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SIZES = MANY


def measure(sizes: HalfHourSizes, seed: int, report: Progress) -> Result:
    outcomes = []
    for number in range(sizes.seeds):
        for i, rate in enumerate(sizes.rates):
            report(f"seed {number + 1} of {sizes.seeds}, {rate} changes/s")
            outcomes += half_hours(sizes, seed + number, rate, (*((CALM,) if i == 0 else ()), GUARDED, KEPT))
    calm = {(o.setting, o.seed): fmean(o.minutes) for o in outcomes if o.kind == CALM}
    rows: list[dict[str, Any]] = []
    for (setting, kind, rate, _), group in group_outcomes(outcomes).items():
        if kind == CALM:
            continue
        took_s = [s for o in group if (s := recovery_s(o, calm[setting, o.seed])) is not None]
        lowest = fmean(min(s.events_per_s for s in o.spans) / calm[setting, o.seed] for o in group)
        row = {"cluster": setting, "kind": kind, "rate": rate, "recovery_s": fmean(took_s) if took_s else None}
        rows.append(row | {"recovered": len(took_s), "lowest_share": lowest, "seeds": len(group)})
    summary: dict[str, float] = {}
    for setting in sizes.settings:
        suffix = setting_suffix(setting)
        summary |= block_summary([o for o in outcomes if (o.setting, o.kind) == (setting, GUARDED)], suffix)
        for kind in (GUARDED, KEPT):
            theirs = [row for row in rows if (row["cluster"], row["kind"]) == (setting, kind)]
            known = [row["recovery_s"] for row in theirs if row["recovery_s"] is not None]
            if known:
                summary[f"recovery_s_max_{KEYS[kind]}{suffix}"] = max(known)
            summary[f"not_recovered_{KEYS[kind]}{suffix}"] = sum(row["seeds"] - row["recovered"] for row in theirs)
    return Result(rows, summary, half_hour_config(sizes, {}))


def plot(result: Result) -> "Figure":
    names = list(dict.fromkeys(row["cluster"] for row in result.rows))
    drawn, panels = figure(len(names), width_in=6.0)
    for panel, name in zip(panels, names, strict=True):
        for i, kind in enumerate((GUARDED, KEPT)):
            rows = [row for row in result.rows if (row["cluster"], row["kind"]) == (name, kind)]
            at = [n + (i - 0.5) * 0.4 for n in range(len(rows))]
            panel.bar(at, [row["recovery_s"] or 0.0 for row in rows], 0.38, color=PALETTE[i], label=kind)
            panel.set_xticks(range(len(rows)), [str(row["rate"]) for row in rows])
        panel.set(title=f"Time to recover (Fig. 6.22): {name}", xlabel="changes/s", ylabel="seconds")
    panels[0].legend()
    return drawn
