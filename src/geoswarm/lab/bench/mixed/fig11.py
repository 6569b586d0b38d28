"""Mixed Fig. 11: planning on vectors instead of keys: its time, and the error of its estimates, over the step R.

Three times are reported apart: rounding and grouping, which each executor does for its own keys; planning on the
vectors, the controller's part and what the paper reports; and finding the keys again. The error is what the plan
thought an executor's load would be, against what its keys load it with: of the worst executor in the worst interval,
with vectors that carry the mean of their loads, and with the paper's vectors, of which the paper seems to give the
average. What travels is counted, too: the reports of all executors with every key, and with heavy keys and sums.
"""

import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.control.keyed.compact import MixedCompact, expand, load_errors, summarise_keys, with_means
from geoswarm.control.keyed.mixed import Mixed, Search, mixed_trial
from geoswarm.control.keyed.problem import Case, Limits
from geoswarm.flow.keyed.key_report import KeyLoads
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, cpu_s
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.sweep import PlannerSetting, PlanStep, plan_steps, setting_config, warm_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL_BITS = (0, 1, 2, 3, 4, 5, 6, 7, 8)
MEASURED_MIN = 5
"""Interval from which on steps are measured: the window is full then."""


class CompactSizes(NamedTuple):
    keys: int
    intervals: int


SIZES = {Scale.SMALL: CompactSizes(1_000_000, 8), Scale.FULL: CompactSizes(1_000_000, 30)}


def measure(sizes: CompactSizes, seed: int, report: Progress) -> Result:
    keys, intervals = sizes
    report("compiling")
    warm_up(("mixed", "mixed-compact"))
    setting = PlannerSetting(keys=keys)
    report("the original key space")
    found: dict[int, list[dict[str, float]]] = {bits: [] for bits in LEVEL_BITS}
    times_ms: list[float] = []
    reported = (0, 0)
    for interval, step in enumerate(plan_steps(setting, Mixed(setting.limits), intervals, seed), 1):
        if interval >= MEASURED_MIN:
            report(f"interval {interval} of {intervals}")
            times_ms.append(1e3 * step.plan_s)
            reported = report_bytes(step)
            for bits in LEVEL_BITS:
                found[bits].append(plan_on_vectors(step, setting.with_limits(level_bits=bits).limits))
    rows: list[dict[str, Any]] = [{"space": "keys", "vectors": keys, "plan_ms": statistics.median(times_ms)}]
    for bits in LEVEL_BITS:
        row = {key: statistics.median(t[key] for t in found[bits]) for key in found[bits][0]}
        row |= {key: max(t[key] for t in found[bits]) for key in row if key.startswith("error")}
        rows.append({"space": f"R = {1 << bits}", "step": 1 << bits} | row)
    usual = next(row for row in rows if row.get("step") == 1 << setting.limits.level_bits)
    summary = {
        "estimate_error": max(row["error_pct"] for row in rows[1:]) / 100.0,
        "estimate_error_as_printed": max(row["error_printed_pct"] for row in rows[1:]) / 100.0,
        "estimate_error_as_printed_mean": max(row["error_printed_mean_pct"] for row in rows[1:]) / 100.0,
        "plan_s_k1e6": rows[0]["plan_ms"] / 1e3,
        "plan_s_compact": (usual["plan_ms"] + usual["expand_ms"]) / 1e3,
        "vectors_per_key": usual["vectors"] / keys,
        "report_bytes": reported[0],
        "report_bytes_short": reported[1],
    }
    return Result(rows, summary, setting_config(setting, intervals))


def report_bytes(step: PlanStep) -> tuple[int, int]:
    """The bytes that all executors report in an interval: with every key, and with heavy keys and sums."""
    owner, heavy_keys = step.plan.route(step.stats.keys), MixedCompact().heavy_keys
    whole, short = 0, 0
    for executor in step.plan.executors:
        mine = owner == executor
        loads = KeyLoads(step.stats.keys[mine], step.stats.load[mine], step.stats.state[mine])
        whole += len(loads.pack())
        short += len(loads.shorten(step.plan.is_listed(loads.ids), heavy_keys).pack())
    return whole, short


def plan_on_vectors(step: PlanStep, limits: Limits) -> dict[str, float]:
    case = Case.of(step.plan, step.stats)
    at_s = [cpu_s()]
    printed = summarise_keys(case, limits)
    compact = with_means(printed, case)
    at_s.append(cpu_s())
    trial = mixed_trial(Search(compact.vectors, limits))
    at_s.append(cpu_s())
    owner = expand(compact, trial, case, limits)
    at_s.append(cpu_s())
    summarise_ms, plan_ms, expand_ms = (1e3 * (b - a) for a, b in pairwise(at_s))
    printed_trial = mixed_trial(Search(printed.vectors, limits))
    printed_errors = load_errors(printed_trial, case, expand(printed, printed_trial, case, limits))
    return {
        "vectors": len(compact.vectors.load),
        "plan_ms": plan_ms,
        "expand_ms": expand_ms,
        "summarise_ms": summarise_ms / case.executors,
        "error_pct": 100.0 * float(load_errors(trial, case, owner).max()),
        "error_printed_pct": 100.0 * float(printed_errors.max()),
        "error_printed_mean_pct": 100.0 * float(printed_errors.mean()),
        "migration_pct": 100.0 * float(case.state[owner != case.owner].sum() / case.state.sum()),
    }


def plot(result: Result) -> "Figure":
    drawn, (time, error) = figure(2, width_in=5.6)
    vectors = result.rows[1:]
    at = [row["step"] for row in vectors]
    time.plot(at, [row["plan_ms"] + row["expand_ms"] for row in vectors], label="on vectors")
    time.axhline(result.rows[0]["plan_ms"], color="black", linestyle="--", marker="", label="on keys")
    time.set(title="Compact statistics (Mixed Fig. 11)", ylabel="plan in (ms, CPU)", yscale="log")
    for key, label in (
        ("error_pct", "worst executor"),
        ("error_printed_pct", "worst executor, as printed"),
        ("error_printed_mean_pct", "average, as printed"),
    ):
        error.plot(at, [row[key] for row in vectors], label=label)
    error.set(ylabel="error of the estimated load (%)", ylim=(0, None))
    for axes in (time, error):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("R")
        axes.legend()
    return drawn
