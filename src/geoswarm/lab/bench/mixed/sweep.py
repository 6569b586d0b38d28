"""Planners of keyed state over intervals of Zipf keys: what Mixed's Figures 8 to 12 and 17 to 21 share.

Measures nothing by itself: `planners.py` and the figures name what they vary. Each planner lives in a world of its own
from the same seed: frequencies are swapped between its executors (Mixed §V, "Synthetic Data"), it plans, and
the next interval starts from its plan. Time is CPU time of one thread for the whole step from statistics to plan:
routing all keys, searching, building the new table. Migration is the share of all state that moves. The first interval,
which starts from plain hash, is left out.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from geoswarm.control.keyed.problem import KeyStats, Limits, Planner, Rebalance
from geoswarm.control.keyed.registry import planner
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.lab.bench.kit.harness import Progress, Result, cpu_s
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.zipf import Window, Zipf

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlannerSetting:
    """Defaults are those in bold in Mixed Table II."""

    keys: int = 1_000_000
    executors: int = 15
    fluctuation: float = 1.0
    skew: float = 0.85
    limits: Limits = field(default_factory=Limits)

    def with_limits(self, **changes: Any) -> "PlannerSetting":
        return replace(self, limits=replace(self.limits, **changes))


SweepPoint = tuple[dict[str, Any], PlannerSetting]
"""The columns that rows of this point begin with, and its setting."""


@dataclass(frozen=True)
class PlanStep:
    plan: KeyPlan
    """Before."""
    stats: KeyStats
    answer: Rebalance
    plan_s: float


def plan_steps(setting: PlannerSetting, rebalancer: Planner, intervals: int, seed: int) -> Iterator[PlanStep]:
    workload = Zipf(setting.keys, setting.skew, setting.fluctuation, seed)
    keys, plan, window = np.arange(setting.keys), KeyPlan.first(range(setting.executors)), Window(setting.limits.window)
    counts = workload.first()
    for interval in range(1, intervals + 1):
        stats = KeyStats(keys, counts.astype(np.float64), window.add(counts))
        start_s = cpu_s()
        answer = rebalancer.rebalance(plan, stats)
        yield PlanStep(plan, stats, answer, cpu_s() - start_s)
        plan = answer.plan
        counts = workload.next(counts, plan.route(keys), interval)


def warm_up(names: Sequence[str]) -> None:
    """Compile what will be measured: with a table, and with one that is too small."""
    for name in names:
        for table_max in (3000, 20):
            setting = PlannerSetting(keys=2000, executors=4).with_limits(table_max=table_max)
            for _ in plan_steps(setting, planner(name, setting.limits), 4, 0):
                pass


def planner_row(name: str, setting: PlannerSetting, intervals: int, seed: int) -> dict[str, Any]:
    """One planner at one setting, over all intervals but the first."""
    done = list(plan_steps(setting, planner(name, setting.limits), intervals, seed))[1:]
    times_ms = [1e3 * step.plan_s for step in done]
    return {
        "planner": name,
        "plan_ms": statistics.median(times_ms),
        "plan_ms_mean": statistics.mean(times_ms),
        "plan_ms_max": max(times_ms),
        "migration_pct": 100.0 * statistics.mean(step.answer.migration_share for step in done),
        "table": statistics.mean(float(step.answer.why["table"]) for step in done),
        "skew": statistics.mean(float(step.answer.why["skew"]) for step in done),
        "balanced_pct": 100.0 * statistics.mean(float(step.answer.balanced) for step in done),
    }


def sweep(
    points: Sequence[SweepPoint],
    names: Sequence[str],
    intervals: int,
    seed: int,
    report: Progress,
) -> list[dict[str, Any]]:
    """A row for each planner at each point."""
    report("compiling")
    warm_up(names)
    rows: list[dict[str, Any]] = []
    for shown, setting in points:
        for name in names:
            report(", ".join(f"{k} {v}" for k, v in shown.items()) + f": {name}")
            rows.append(shown | planner_row(name, setting, intervals, seed))
    return rows


def migration_ratio(rows: Sequence[dict[str, Any]], name: str = "mixed", rival: str = "min-table") -> float:
    """Migration of one planner against another's, summed over the rows."""
    total = {n: sum(row["migration_pct"] for row in rows if row["planner"] == n) for n in (name, rival)}
    return float(total[name] / total[rival])


def setting_config(setting: PlannerSetting, intervals: int) -> dict[str, Any]:
    fields = {k: v for k, v in vars(setting).items() if k != "limits"}
    return {"intervals": intervals, **fields, **vars(setting.limits)}


def two_panels(
    result: Result,
    title: str,
    *,
    x: str,
    label: str,
    log_x: bool = False,
    by: str | None = "window",
    time: str = "plan_ms",
) -> "Figure":
    """Planning time and migration cost over `x`, a line for each planner and window."""
    drawn, (left, migration) = figure(2, width_in=5.6)
    for axes, y, what in ((left, time, "plan in (ms, CPU)"), (migration, "migration_pct", "state migrated (%)")):
        draw_lines(axes, result.rows, x, y, by)
        axes.set(xlabel=label, ylabel=what)
        if log_x:
            axes.set_xscale("log")
    left.set(title=title, yscale="log")
    migration.set_ylim(bottom=0)
    migration.legend()
    return drawn


def one_panel(result: Result, title: str, *, x: str, y: str, by: str | None, label: str) -> "Figure":
    """One column over `x`, a line for each planner and value of `by`."""
    drawn, (axes,) = figure()
    draw_lines(axes, result.rows, x, y, by)
    named = {"migration_pct": "state migrated (%)", "table": "entries in the table"}
    axes.set(title=title, xlabel=label, ylabel=named[y])
    axes.set_ylim(bottom=0)
    axes.legend()
    return drawn


def draw_lines(axes: "Axes", rows: Sequence[dict[str, Any]], x: str, y: str, by: str | None) -> None:
    """One line for each planner and value of `by`."""
    for key in dict.fromkeys((row["planner"], row[by] if by else None) for row in rows):
        here = [row for row in rows if (row["planner"], row[by] if by else None) == key]
        name = key[0] if by is None else f"{key[0]}, {by} {key[1]}"
        axes.plot([row[x] for row in here], [row[y] for row in here], label=name)
