"""Mixed Fig. 15: throughput while an executor joins, on Social and Stock, on the real engine, projected.

The streams are in `keyed_streams.py`, what is measured of a round, and Ideal, in `keyed_race.py`. When an executor
joins, the hash gives it its share of the keys at once; what is left to balance is balanced when the round is over.
Planning stands as `plan_ms` beside a round of 10 000 ms; the paper's Readj took five minutes.

Mixed splits the stock that is traded most, as in Fig. 14; rivals have whole keys.

`vs_ideal_...` are of Mixed after the executor has joined and one round has passed; `gain_...` is throughput then over
throughput before, of which 15/14 can be had; `rounds_to_balance_...` is the first round after the joining in which no
executor takes more than θ_max and a hundredth above the average.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.mixed.keyed_race import (
    EXECUTORS,
    PKG,
    KeyedContestant,
    KeyedRace,
    TimedRound,
    rounds_row,
    run_keyed_race,
    time_rounds,
)
from geoswarm.lab.bench.mixed.keyed_streams import WINDOW, KeyedWorkload, draw_streams, social, stock
from geoswarm.lab.bench.mixed.task_costs import TaskCosts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THETA = 0.1
MIXED = KeyedContestant("mixed", THETA, splits=True)
CONTESTANTS = (MIXED, KeyedContestant("readj-searched", THETA), KeyedContestant(PKG), KeyedContestant("hash"))


class JoiningSizes(NamedTuple):
    posts: int
    trades: int
    joins: int
    """The round in which an executor joins; before it the window fills, and each round takes longer."""
    rounds: int
    executors: int = EXECUTORS
    """Executors once the last has joined."""


SIZES = {Scale.SMALL: JoiningSizes(25_000, 80_000, WINDOW + 1, 9), Scale.FULL: JoiningSizes(100_000, 300_000, 10, 25)}


def measure(sizes: JoiningSizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    summary, config = dict[str, float](), dict[str, Any]()
    for stream in (social(sizes.posts, seed), stock(sizes.trades, seed)):
        timed, costs = _run_stream(stream, sizes, seed, report)
        config[f"costs_{stream.name}"] = costs.to_json()
        for name, laps in timed.items():
            rows += [{"stream": stream.name, "planner": name, "round": lap.round, **rounds_row([lap])} for lap in laps]
        summary |= {f"{key}_{stream.name}": value for key, value in _summary(timed[MIXED.name], sizes).items()}
    return Result(rows, summary, {"theta_max": THETA, **sizes._asdict(), **config})


def _run_stream(
    stream: KeyedWorkload, sizes: JoiningSizes, seed: int, report: Progress
) -> tuple[dict[str, list[TimedRound]], TaskCosts]:
    contestants = [c for c in CONTESTANTS if c.planner != PKG or stream.counts]
    race = KeyedRace(stream.operator, contestants, sizes.executors - 1, scaled={sizes.joins: sizes.executors})
    times, costs = time_rounds([run_keyed_race(race, stream.batches, sizes.rounds, seed, report, stream.name)])
    return times[0], costs


def _summary(laps: Sequence[TimedRound], sizes: JoiningSizes) -> dict[str, float]:
    before, after = rounds_row(laps[min(WINDOW, sizes.joins) - 1 : sizes.joins]), rounds_row(laps[sizes.joins + 1 :])
    balanced = [n for n, lap in enumerate(laps[sizes.joins :]) if lap.makespan_s <= (1.01 + THETA) * lap.ideal_s]
    return {
        "vs_ideal": after["rows_per_s"] / after["ideal_rows_per_s"],
        "gain": after["rows_per_s"] / before["rows_per_s"],
        "rounds_to_balance": float(balanced[0] if balanced else sizes.rounds),
    }


def plot(result: Result) -> "Figure":
    drawn = draw_streams(result, "Mixed Fig. 15", "round", "round; an executor joins at the dashed line")
    for axes in drawn.axes:
        axes.axvline(result.config["joins"], color="#BBBBBB", linestyle="--", marker="")
    return drawn
