"""Mixed Fig. 16: throughput of TPC-H Q5 while the distribution of its keys changes, on the real engine, projected.

The stream is `lab/workload/tpch.py`, the query `flow/keyed/q5.py` with the region joined last, as in the paper's chain
of joins; it is the join by order that is measured, since what comes behind it are a few sums. What is measured of a
round, and Ideal, is in `keyed_race.py`. In the paper other orders take most lines every 90 rounds, here much sooner,
and the orders themselves come and go: no plan fits the next round quite.

`..._q5` keys are of Mixed at its best tolerance, all rounds after the first; `worst_tolerance_...` is at its worst.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from geoswarm.flow.keyed.q5 import Q5Join, nations_of
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.keyed_race import (
    EXECUTORS,
    KeyedContestant,
    KeyedRace,
    cpu_vs_hash,
    rounds_row,
    run_keyed_race,
    time_rounds,
)
from geoswarm.lab.workload.tpch import SHIP_DAYS_MAX, Tpch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TPCH_REGION = "ASIA"
DAYS_PER_ROUND = 12
ROUNDS_PER_INTERVAL, WINDOW = 5, 3
"""A window of 15 rounds holds an order until its last line has come."""
WARM = SHIP_DAYS_MAX // DAYS_PER_ROUND + 1
"""Rounds of the stream that are left out, until there are as many orders to draw from as later."""


class Q5Sizes(NamedTuple):
    scale: float
    shift_every: int
    thetas: tuple[float, ...]
    rounds: int
    executors: int = EXECUTORS


SIZES = {Scale.SMALL: Q5Sizes(0.3, 5, (0.02, 0.3), 10), Scale.FULL: Q5Sizes(2.0, 15, (0.02, 0.08, 0.3), 45)}


def measure(sizes: Q5Sizes, seed: int, report: Progress) -> Result:
    report("drawing the tables")
    stream = Tpch(sizes.scale, seed=seed, days_per_interval=DAYS_PER_ROUND, shift_every=sizes.shift_every)
    static = stream.static()
    nations = nations_of(TPCH_REGION, static.region_names, static.nation_region)
    query = Q5Join(static.customer_nation, static.supplier_nation, nations, WINDOW, early=False)
    contestants = [
        *(KeyedContestant("mixed", theta) for theta in sizes.thetas),
        KeyedContestant("readj-searched", sizes.thetas[0]),
        KeyedContestant("hash"),
    ]
    race = KeyedRace(query, contestants, sizes.executors, rounds_per_interval=ROUNDS_PER_INTERVAL)
    laps = run_keyed_race(race, lambda n: pa.table(stream.rows(WARM + n)), sizes.rounds, seed, report, "Q5")
    (timed,), costs = time_rounds([laps])
    rows = [
        {
            "planner": name,
            "round": lap.round,
            "shifted": (WARM + lap.round) % sizes.shift_every == 0,
            **rounds_row([lap]),
        }
        for name, laps in timed.items()
        for lap in laps
    ]
    config = {"window_rounds": WINDOW * ROUNDS_PER_INTERVAL, **sizes._asdict()}
    config["costs"] = costs.to_json()
    summary = _summary({name: rounds_row(laps[1:]) for name, laps in timed.items()})
    summary |= {
        f"cpu_vs_hash_theta_{c.theta_max:g}": cpu_vs_hash(timed, c.name) for c in contestants if c.planner == "mixed"
    }
    return Result(rows, summary, config)


def _summary(timed: dict[str, dict[str, Any]]) -> dict[str, float]:
    mixed: Sequence[dict[str, Any]] = sorted(
        (row for name, row in timed.items() if name.startswith("mixed")), key=lambda row: row["rows_per_s"]
    )
    readj = next(row for name, row in timed.items() if name.startswith("readj"))
    best, worst = mixed[-1]["rows_per_s"], mixed[0]["rows_per_s"]
    return {
        "vs_hash_q5": best / timed["hash"]["rows_per_s"],
        "vs_readj_q5": best / readj["rows_per_s"],
        "vs_ideal_q5": best / mixed[-1]["ideal_rows_per_s"],
        "worst_tolerance_vs_hash_q5": worst / timed["hash"]["rows_per_s"],
    }


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure(width_in=8.0)
    for name in dict.fromkeys(row["planner"] for row in result.rows):
        of = [row for row in result.rows if row["planner"] == name]
        axes.plot([row["round"] for row in of], [row["rows_per_s"] / 1e6 for row in of], label=name)
    for round_ in sorted({row["round"] for row in result.rows if row["shifted"]}):
        axes.axvline(round_, color="#BBBBBB", linestyle="--", marker="")
    axes.set(xlabel="round; other orders from the dashed lines on", ylabel="M rows/s, projected", ylim=(0, None))
    axes.set_title("TPC-H Q5 (Mixed Fig. 16)")
    axes.legend()
    return drawn
