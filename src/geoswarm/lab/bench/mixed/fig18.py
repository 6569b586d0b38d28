"""Mixed Fig. 18: how MinMig's table grows with the number of adjustments, towards (N_D - 1) / N_D of all keys.

As in the paper, there are 10^4 keys. `sweep.py` says what a step is.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.control.keyed.mixed import MinMig
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.sweep import PlannerSetting, draw_lines, plan_steps, setting_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THETAS = (0.02, 0.08, 0.15)
POINTS = 30


class TableGrowthSizes(NamedTuple):
    adjustments: int
    keys: int = 10_000


SIZES = {Scale.SMALL: TableGrowthSizes(2_000), Scale.FULL: TableGrowthSizes(10_000)}


def measure(sizes: TableGrowthSizes, seed: int, report: Progress) -> Result:
    adjustments, keys = sizes
    usual = PlannerSetting(keys=keys)
    rows: list[dict[str, Any]] = []
    summary: dict[str, float] = {"limit": keys * (usual.executors - 1) / usual.executors}
    for theta in THETAS:
        report(f"theta_max {theta}")
        setting = usual.with_limits(theta_max=theta)
        tables = [int(s.answer.why["table"]) for s in plan_steps(setting, MinMig(setting.limits), adjustments, seed)]
        rows += [
            {"planner": "min-mig", "theta_max": theta, "adjustments": n + 1, "table": tables[n]}
            for n in range(0, adjustments, max(1, adjustments // POINTS))
        ]
        summary[f"table_share_theta_{theta}"] = tables[-1] / keys
    return Result(rows, summary, setting_config(usual, adjustments))


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    draw_lines(axes, result.rows, "adjustments", "table", "theta_max")
    axes.axhline(result.summary["limit"], color="black", linestyle="--", linewidth=1, marker="")
    axes.set(title="MinMig's table grows (Mixed Fig. 18)", xlabel="adjustments", ylabel="entries in the table")
    axes.legend()
    return drawn
