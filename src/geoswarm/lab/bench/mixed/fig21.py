"""Mixed Fig. 21: the migration cost of MinMig over β, the weight of load against state.

As in the print, each figure is the mean of ten adjustments. What a step is, is in `mixed_sweep.py`.
"""

from typing import TYPE_CHECKING

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.sweep import Setting, config_of, lines, sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BETAS, THETAS = (1.0, 1.2, 1.4, 1.5, 1.6, 1.8, 2.0), (0.02, 0.08, 0.15)
KEYS, ADJUSTMENTS = {Scale.SMALL: 100_000, Scale.FULL: 1_000_000}, 10


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(KEYS[scale], ADJUSTMENTS, seed, report)


def measure(keys: int, adjustments: int, seed: int, report: Progress) -> Result:
    usual = Setting(keys=keys)
    points = [({"beta": b, "theta_max": t}, usual.limited(beta=b, theta_max=t)) for t in THETAS for b in BETAS]
    rows = sweep(points, ("min-mig",), adjustments + 1, seed, report)
    held = {b: sum(row["migration_pct"] for row in rows if row["beta"] == b) for b in BETAS}
    summary = {"migration_beta2_vs_beta1": held[2.0] / held[1.0], "migration_beta2_vs_beta1_5": held[2.0] / held[1.5]}
    return Result(rows, summary, config_of(usual, adjustments))


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    lines(axes, result.rows, "beta", "migration_pct", "theta_max")
    axes.set(title="Over β (Mixed Fig. 21)", xlabel="β", ylabel="state migrated (%)")
    axes.set_ylim(bottom=0)
    axes.legend()
    return drawn
