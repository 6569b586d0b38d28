"""Mixed Fig. 18: how MinMig's table grows with the number of adjustments, towards (N_D - 1) / N_D of all keys.

As in the print, 10^4 keys. What a step is, is in `mixed_sweep.py`.
"""

from typing import TYPE_CHECKING, Any

from geoswarm.control.keyed.mixed import MinMig
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.sweep import Setting, config_of, lines, steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THETAS, KEYS = (0.02, 0.08, 0.15), 10_000
ADJUSTMENTS = {Scale.SMALL: 2_000, Scale.FULL: 10_000}
POINTS = 30


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(KEYS, ADJUSTMENTS[scale], seed, report)


def measure(keys: int, adjustments: int, seed: int, report: Progress) -> Result:
    usual = Setting(keys=keys)
    rows: list[dict[str, Any]] = []
    summary: dict[str, float] = {"limit": keys * (usual.executors - 1) / usual.executors}
    for theta in THETAS:
        report(f"theta_max {theta}")
        setting = usual.limited(theta_max=theta)
        tables = [int(s.answer.why["table"]) for s in steps(setting, MinMig(setting.limits), adjustments, seed)]
        rows += [
            {"planner": "min-mig", "theta_max": theta, "adjustments": n + 1, "table": tables[n]}
            for n in range(0, adjustments, max(1, adjustments // POINTS))
        ]
        summary[f"table_share_theta_{theta}"] = tables[-1] / keys
    return Result(rows, summary, config_of(usual, adjustments))


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    lines(axes, result.rows, "adjustments", "table", "theta_max")
    axes.axhline(result.summary["limit"], color="black", linestyle="--", linewidth=1, marker="")
    axes.set(title="MinMig's table grows (Mixed Fig. 18)", xlabel="adjustments", ylabel="entries in the table")
    axes.legend()
    return drawn
