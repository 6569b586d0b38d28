"""Mixed Figures 8 to 10, 17 and 19 to 21: planning time, migration cost and table over one parameter at a time.

The figures differ in what is varied, for which planners (`FIGURES`). What a step is, and what is measured of it, is in
`sweep.py`. The claims at a million keys are made in Fig. 10. Fig. 17 has two tables: the paper's, which outgrows A_max
when balance needs it, and ours, which does not; `balanced_pct` says what that costs. As in the paper, the numbers of
Figures 20 and 21 are means of ten adjustments.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.lab.bench.kit.catalogue import FigureRow
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.sweep import (
    PlannerSetting,
    SweepPoint,
    migration_ratio,
    one_panel,
    setting_config,
    sweep,
    two_panels,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXECUTORS, WINDOWS, LONG_WINDOWS = (5, 10, 15, 20, 25, 30, 35, 40), (1, 5), (1, 5, 10, 15, 20)
THETAS, FEW_THETAS = (0.02, 0.05, 0.08, 0.1, 0.2, 0.3), (0.02, 0.08, 0.15)
BETAS = (1.0, 1.2, 1.4, 1.5, 1.6, 1.8, 2.0)
BOTH = ("mixed", "min-table")
RowDicts = Sequence[dict[str, Any]]


class SweepSizes(NamedTuple):
    keys: tuple[int, ...]
    """The last is the usual number."""
    intervals: int
    table_exponents: tuple[int, ...] = ()
    """A_max of Fig. 17, as powers of 2."""

    @property
    def usual(self) -> PlannerSetting:
        return PlannerSetting(keys=self.keys[-1])


def _sizes(small: int, full: int) -> dict[Scale, SweepSizes]:
    return {Scale.SMALL: SweepSizes((100_000,), small), Scale.FULL: SweepSizes((1_000_000,), full)}


KEYS = (5_000, 10_000, 100_000, 1_000_000)
KEYS_SIZES = {Scale.SMALL: SweepSizes(KEYS, 12), Scale.FULL: SweepSizes(KEYS, 50)}
TABLE_SIZES = {
    Scale.SMALL: SweepSizes((100_000,), 20, (3, 5, 7, 8, 9, 10, 11, 12)),
    Scale.FULL: SweepSizes((1_000_000,), 50, (4, 6, 8, 9, 10, 11, 12, 13, 14)),
}


def _over_executors(sizes: SweepSizes) -> list[SweepPoint]:
    return [
        ({"executors": n, "window": w}, PlannerSetting(keys=sizes.keys[-1], executors=n).with_limits(window=w))
        for w in WINDOWS
        for n in EXECUTORS
    ]


def _over_tolerance(sizes: SweepSizes) -> list[SweepPoint]:
    return [
        ({"theta_max": t, "window": w}, sizes.usual.with_limits(theta_max=t, window=w)) for w in WINDOWS for t in THETAS
    ]


def _over_keys(sizes: SweepSizes) -> list[SweepPoint]:
    return [
        ({"keys": k, "window": w}, PlannerSetting(keys=k).with_limits(window=w)) for w in WINDOWS for k in sizes.keys
    ]


def _over_table(sizes: SweepSizes) -> list[SweepPoint]:
    return [
        (
            {"theta_max": t, "soft": s, "table_max": 2**i},
            sizes.usual.with_limits(theta_max=t, table_max=2**i, table_is_soft=s),
        )
        for s in (True, False)
        for t in FEW_THETAS
        for i in sizes.table_exponents
    ]


def _over_window(sizes: SweepSizes) -> list[SweepPoint]:
    return [({"window": w}, sizes.usual.with_limits(window=w)) for w in LONG_WINDOWS]


def _over_beta(sizes: SweepSizes) -> list[SweepPoint]:
    return [
        ({"beta": b, "theta_max": t}, sizes.usual.with_limits(beta=b, theta_max=t)) for t in FEW_THETAS for b in BETAS
    ]


def _by_window(rows: RowDicts) -> dict[str, float]:
    return {f"migration_vs_mintable_w{w}": migration_ratio([r for r in rows if r["window"] == w]) for w in WINDOWS}


def _executors_summary(rows: RowDicts) -> dict[str, float]:
    return _by_window(rows) | {"skew_max": max(row["skew"] for row in rows if row["planner"] == "mixed")}


def _tolerance_summary(rows: RowDicts) -> dict[str, float]:
    strict = [row for row in rows if row["planner"] == "mixed" and row["theta_max"] == THETAS[0]]
    return _by_window(rows) | {"plan_s_strict": max(row["plan_ms_max"] for row in strict) / 1e3}


def _keys_summary(rows: RowDicts) -> dict[str, float]:
    most = [row for row in rows if row["keys"] == rows[-1]["keys"] and row["window"] == WINDOWS[-1]]
    mixed = next(row for row in most if row["planner"] == "mixed")
    return {
        "plan_s_k1e6": mixed["plan_ms"] / 1e3,
        "plan_s_k1e6_max": mixed["plan_ms_max"] / 1e3,
        "migration_vs_mintable": migration_ratio(most),
    }


def _table_summary(rows: RowDicts) -> dict[str, float]:
    soft = [row for row in rows if row["soft"] and row["theta_max"] == 0.08]
    return {"migration_widest_vs_narrowest": soft[-1]["migration_pct"] / soft[0]["migration_pct"]}


def _window_summary(rows: RowDicts) -> dict[str, float]:
    mixed = [row["migration_pct"] for row in rows if row["planner"] == "mixed"]
    return {"migration_vs_mintable": migration_ratio(rows), "migration_w20_vs_w1": mixed[-1] / mixed[0]}


def _beta_summary(rows: RowDicts, column: str, key: str) -> dict[str, float]:
    held = {b: sum(row[column] for row in rows if row["beta"] == b) for b in BETAS}
    return {f"{key}_beta2_vs_beta1": held[2.0] / held[1.0], f"{key}_beta2_vs_beta1_5": held[2.0] / held[1.5]}


def _draw_table(result: Result, title: str) -> "Figure":
    drawn, panels = figure(2, width_in=5.6)
    for axes, y, label in zip(
        panels, ("migration_pct", "skew"), ("state migrated (%)", "heaviest / average"), strict=True
    ):
        for soft in (True, False):
            for theta in FEW_THETAS:
                here = [r for r in result.rows if r["soft"] == soft and r["theta_max"] == theta]
                name = f"θ_max {theta}, {'as in the paper' if soft else 'A_max kept'}"
                axes.plot([r["table_max"] for r in here], [r[y] for r in here], "-" if soft else "--", label=name)
        axes.set(xlabel="A_max (entries)", ylabel=label, xscale="log")
    panels[0].set(title=title, ylim=(0, None))
    panels[1].legend()
    return drawn


@dataclass(frozen=True)
class PlannerFigure(FigureRow):
    planners: tuple[str, ...]
    points: Callable[[SweepSizes], list[SweepPoint]]
    summarise: Callable[[RowDicts], dict[str, float]]
    draw: "Callable[[Result, str], Figure]"
    title: str
    sizes: Mapping[Scale, SweepSizes]


FIGURES = {
    "mixed-fig8": PlannerFigure(
        "Mixed Fig. 8",
        "planning time and migration cost of Mixed and MinTable over the number of executors",
        BOTH,
        _over_executors,
        _executors_summary,
        partial(two_panels, x="executors", label="executors"),
        "Over the executors",
        _sizes(10, 30),
    ),
    "mixed-fig9": PlannerFigure(
        "Mixed Fig. 9",
        "planning time and migration cost of Mixed and MinTable over the tolerated imbalance",
        BOTH,
        _over_tolerance,
        _tolerance_summary,
        partial(two_panels, x="theta_max", label="θ_max"),
        "Over the tolerance",
        _sizes(10, 30),
    ),
    "mixed-fig10": PlannerFigure(
        "Mixed Fig. 10",
        "planning time and migration cost of Mixed and MinTable over the number of keys",
        BOTH,
        _over_keys,
        _keys_summary,
        partial(two_panels, x="keys", label="keys", log_x=True),
        "Over the keys",
        KEYS_SIZES,
    ),
    "mixed-fig17": PlannerFigure(
        "Mixed Fig. 17",
        "migration cost of Mixed over the size of its table, for several tolerances",
        ("mixed",),
        _over_table,
        _table_summary,
        _draw_table,
        "Over the size of the table",
        TABLE_SIZES,
    ),
    "mixed-fig19": PlannerFigure(
        "Mixed Fig. 19",
        "migration cost of Mixed and MinTable over the window that keeps state",
        BOTH,
        _over_window,
        _window_summary,
        partial(one_panel, x="window", y="migration_pct", by=None, label="window (intervals)"),
        "Over the window",
        _sizes(25, 50),
    ),
    "mixed-fig20": PlannerFigure(
        "Mixed Fig. 20",
        "the size of MinMig's table over β, the weight of load against state",
        ("min-mig",),
        _over_beta,
        partial(_beta_summary, column="table", key="table"),
        partial(one_panel, x="beta", y="table", by="theta_max", label="β"),
        "Over β",
        _sizes(11, 11),
    ),
    "mixed-fig21": PlannerFigure(
        "Mixed Fig. 21",
        "the migration cost of MinMig over β, the weight of load against state",
        ("min-mig",),
        _over_beta,
        partial(_beta_summary, column="migration_pct", key="migration"),
        partial(one_panel, x="beta", y="migration_pct", by="theta_max", label="β"),
        "Over β",
        _sizes(11, 11),
    ),
}


def measure(shown: PlannerFigure, sizes: SweepSizes, seed: int, report: Progress) -> Result:
    rows = sweep(shown.points(sizes), shown.planners, sizes.intervals, seed, report)
    return Result(rows, shown.summarise(rows), setting_config(sizes.usual, sizes.intervals))


def plot(shown: PlannerFigure, result: Result) -> "Figure":
    return shown.draw(result, f"{shown.title} ({shown.where})")
