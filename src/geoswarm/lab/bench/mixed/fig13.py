"""Mixed Fig. 13: throughput and latency of a word count over the fluctuation f, on the real engine, projected.

Zipf keys as in `sweep.py`; all contestants get the same rows, so frequencies are swapped between the executors of
plain hash. The paper swaps at the start of each interval, and does not say how long one is: here a distribution holds
for 20 rounds of 10 s. The first is run under the plan of before; what the planner makes of it is in force from the
second on, or later if planning takes long. One of the later rounds is run, and stands for all. What is measured of a
round, and what Ideal is, is in `keyed_race.py`.

`vs_ideal` is Mixed's at θ_max = 0.02, the best in the paper (Fig. 14), over the worst f; `..._theta_008` is at the
default of Table II, which lets an executor lie 8 % above the average. `..._settled` leaves the first round out.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.flow.keyed.count import Count
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.keyed_race import (
    EXECUTORS,
    IDEAL,
    PKG,
    ROUND_S,
    KeyedContestant,
    KeyedRace,
    TimedRound,
    run_keyed_race,
    time_rounds,
)
from geoswarm.lab.workload.zipf import Zipf

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDS_PER_CHANGE = 20
MIXED, MIXED_LOOSE = KeyedContestant("mixed", 0.02, turns=4), KeyedContestant("mixed", 0.08)
READJ = KeyedContestant("readj-searched", 0.08)
CONTESTANTS = (MIXED, MIXED_LOOSE, READJ, KeyedContestant(PKG), KeyedContestant("hash"))


class WordCountSizes(NamedTuple):
    keys: int
    fluctuations: tuple[float, ...]
    changes: int
    executors: int = EXECUTORS


SIZES = {
    Scale.SMALL: WordCountSizes(40_000, (0.2, 1.0, 2.0), 2),
    Scale.FULL: WordCountSizes(200_000, (0.1, 0.5, 1.0, 1.5, 2.0), 5),
}


def measure(sizes: WordCountSizes, seed: int, report: Progress) -> Result:
    # Two rounds of each distribution; those of the first, in which all start from plain hash, are not counted.
    race, rounds = KeyedRace(Count(window=5), CONTESTANTS, sizes.executors), 2 * (sizes.changes + 1)
    laps = [
        run_keyed_race(race, _word_stream(sizes, f, seed), rounds, seed, report, f"f {f:g}", n)
        for n, f in enumerate(sizes.fluctuations)
    ]
    times, costs = time_rounds(laps)
    rows: list[dict[str, Any]] = []
    for f, timed in zip(sizes.fluctuations, times, strict=True):
        rows += [_row(f, name, some[2:]) for name, some in timed.items()]
        rows.append(_ideal_row(f, timed[MIXED.name][2:]))
    config = {"rounds_per_change": ROUNDS_PER_CHANGE, "costs": costs.to_json()}
    return Result(rows, _summary(rows), config | sizes._asdict())


def _word_stream(sizes: WordCountSizes, f: float, seed: int) -> Any:
    workload = Zipf(sizes.keys, fluctuation=f, seed=seed)
    owner = KeyPlan.first(range(sizes.executors)).route(np.arange(sizes.keys))

    @lru_cache(maxsize=2)
    def counts(change: int) -> Ints:
        return workload.first() if change == 0 else workload.next(counts(change - 1), owner, change)

    return lambda number: pa.table({"key": workload.tuples_of(counts(number // 2), number)})


def _row(f: float, name: str, laps: Sequence[TimedRound]) -> dict[str, Any]:
    rates = []
    for first, later in zip(laps[::2], laps[1::2], strict=True):
        behind = min(1.0, (ROUND_S + later.plan_s) / (ROUNDS_PER_CHANGE * ROUND_S))  # share of the time
        times = {"": (first.makespan_s, later.makespan_s), "_raw": (first.makespan_raw_s, later.makespan_raw_s)}
        rates.append(
            {
                f"{what}{kind}": value
                for kind, (old_s, new_s) in times.items()
                for what, value in (
                    ("rows_per_s", behind * first.rows / old_s + (1.0 - behind) * later.rows / new_s),
                    ("settled_rows_per_s", later.rows / new_s),
                    ("latency_ms", 1e3 * (behind * old_s + (1.0 - behind) * new_s)),
                )
            }
        )
    row: dict[str, Any] = {"f": f, "planner": name}
    row |= {key: float(np.mean([t[key] for t in rates])) for key in rates[0]}
    return row | {"plan_ms": 1e3 * float(np.mean([lap.plan_s for lap in laps])), "table": laps[-1].table}


def _ideal_row(f: float, laps: Sequence[TimedRound]) -> dict[str, Any]:
    even = [lap._replace(makespan_s=lap.ideal_s, makespan_raw_s=lap.ideal_raw_s, plan_s=0.0, table=0) for lap in laps]
    return _row(f, IDEAL, even)


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    def ratios(name: str, rival: str, key: str = "rows_per_s") -> list[float]:
        of = {who: {row["f"]: row[key] for row in rows if row["planner"] == who} for who in (name, rival)}
        return [of[name][f] / of[rival][f] for f in of[name]]

    summary = {
        "vs_ideal": min(ratios(MIXED.name, IDEAL)),
        "vs_ideal_theta_008": min(ratios(MIXED_LOOSE.name, IDEAL)),
        "vs_ideal_settled": min(ratios(MIXED.name, IDEAL, "settled_rows_per_s")),
        "vs_ideal_raw": min(ratios(MIXED.name, IDEAL, "rows_per_s_raw")),
    }
    for rival in (READJ.name, PKG, "hash"):
        summary[f"vs_{rival.split()[0].split('-')[0]}"] = min(ratios(MIXED.name, rival))
    summary["latency_vs_ideal"] = max(ratios(MIXED.name, IDEAL, "latency_ms"))
    return summary


def plot(result: Result) -> "Figure":
    drawn, (left, right) = figure(2, width_in=5.6)
    for axes, key, label, unit in ((left, "rows_per_s", "M rows/s", 1e6), (right, "latency_ms", "ms a batch", 1.0)):
        for name in dict.fromkeys(row["planner"] for row in result.rows):
            here = [row for row in result.rows if row["planner"] == name]
            values = [row[key] / unit for row in here]
            axes.plot([row["f"] for row in here], values, linestyle="--" if name == IDEAL else "-", label=name)
        axes.set(xlabel="fluctuation f", ylabel=f"{label}, projected", ylim=(0, None))
    left.set_title("Word count (Mixed Fig. 13)")
    right.legend()
    return drawn
