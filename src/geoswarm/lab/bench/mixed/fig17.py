"""Mixed Fig. 17: migration cost of Mixed over the size of its table, for several tolerances.

Twice: with the paper's table, which outgrows A_max when balance needs it, and with ours, which does not; `balanced_pct`
says what that costs. What a step is, is in `mixed_sweep.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.sweep import Setting, config_of, sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THETAS = (0.02, 0.08, 0.15)
EXPONENTS = {Scale.SMALL: (3, 5, 7, 8, 9, 10, 11, 12), Scale.FULL: (4, 6, 8, 9, 10, 11, 12, 13, 14)}
KEYS, INTERVALS = {Scale.SMALL: 100_000, Scale.FULL: 1_000_000}, {Scale.SMALL: 20, Scale.FULL: 50}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(KEYS[scale], EXPONENTS[scale], INTERVALS[scale], seed, report)


def measure(keys: int, exponents: tuple[int, ...], intervals: int, seed: int, report: Progress) -> Result:
    usual = Setting(keys=keys)
    points = [
        ({"theta_max": t, "soft": s, "table_max": 2**i}, usual.limited(theta_max=t, table_max=2**i, table_is_soft=s))
        for s in (True, False)
        for t in THETAS
        for i in exponents
    ]
    rows = sweep(points, ("mixed",), intervals, seed, report)
    soft = [row for row in rows if row["soft"] and row["theta_max"] == 0.08]
    summary = {"migration_widest_vs_narrowest": soft[-1]["migration_pct"] / soft[0]["migration_pct"]}
    return Result(rows, summary, config_of(usual, intervals))


def plot(result: Result) -> "Figure":
    drawn, panels = figure(2, width_in=5.6)
    for axes, y, label in zip(
        panels, ("migration_pct", "skew"), ("state migrated (%)", "heaviest / average"), strict=True
    ):
        for soft in (True, False):
            for theta in THETAS:
                here = [r for r in result.rows if r["soft"] == soft and r["theta_max"] == theta]
                name = f"θ_max {theta}, {'as printed' if soft else 'A_max kept'}"
                axes.plot([r["table_max"] for r in here], [r[y] for r in here], "-" if soft else "--", label=name)
        axes.set(xlabel="A_max (entries)", ylabel=label, xscale="log")
    panels[0].set(title="Over the size of the table (Mixed Fig. 17)", ylim=(0, None))
    panels[1].legend()
    return drawn
