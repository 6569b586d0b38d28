"""Mixed Fig. 15: throughput while an executor joins, on Social and Stock, on the real engine, projected.

The streams are in `keyed_streams.py`, what is measured of a round, and Ideal, in `keyed_race.py`. When an executor
joins, the hash gives it its share of the keys at once; what is left to balance is balanced when the round is over.
Planning stands as `plan_ms` beside a round of 10 000 ms; the print's Readj took five minutes.

`vs_ideal_...` are of Mixed after the executor has joined and one round has passed; `gain_...` is throughput then over
throughput before, of which 15/14 can be had; `rounds_to_balance_...` is the first round after the joining in which no
executor takes more than θ_max and a hundredth above the average.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.keyed_race import EXECUTORS, PKG, Contestant, Race, Timed, line, raced, timed
from geoswarm.lab.bench.mixed.keyed_streams import WINDOW, Stream, social, stock
from geoswarm.lab.bench.mixed.task_costs import Costs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THETA = 0.1
MIXED = Contestant("mixed", THETA)
CONTESTANTS = (MIXED, Contestant("readj-searched", THETA), Contestant(PKG), Contestant("hash"))


class Sizes(NamedTuple):
    posts: int
    trades: int
    joins: int
    """In this round; before it the window fills, and a round takes longer than the one before."""
    rounds: int
    executors: int = EXECUTORS
    """Once the last has joined."""


SIZES = {Scale.SMALL: Sizes(25_000, 80_000, WINDOW + 1, 9), Scale.FULL: Sizes(100_000, 300_000, 10, 25)}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(SIZES[scale], seed, report)


def measure(sizes: Sizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    summary, config = dict[str, float](), dict[str, Any]()
    for stream in (social(sizes.posts, seed), stock(sizes.trades, seed)):
        told, costs = _raced(stream, sizes, seed, report)
        config[f"costs_{stream.name}"] = costs.to_json()
        for name, laps in told.items():
            rows += [{"stream": stream.name, "planner": name, "round": lap.round, **line([lap])} for lap in laps]
        summary |= {f"{key}_{stream.name}": value for key, value in _summary(told[MIXED.name], sizes).items()}
    return Result(rows, summary, {"theta_max": THETA, **sizes._asdict(), **config})


def _raced(stream: Stream, sizes: Sizes, seed: int, report: Progress) -> tuple[dict[str, list[Timed]], Costs]:
    contestants = [c for c in CONTESTANTS if c.planner != PKG or stream.can_split]
    race = Race(stream.operator, contestants, sizes.executors - 1, scaled={sizes.joins: sizes.executors})
    times, costs = timed([raced(race, stream.batches, sizes.rounds, seed, report, stream.name)])
    return times[0], costs


def _summary(laps: Sequence[Timed], sizes: Sizes) -> dict[str, float]:
    before, after = line(laps[min(WINDOW, sizes.joins) - 1 : sizes.joins]), line(laps[sizes.joins + 1 :])
    balanced = [n for n, lap in enumerate(laps[sizes.joins :]) if lap.makespan_s <= (1.01 + THETA) * lap.ideal_s]
    return {
        "vs_ideal": after["rows_per_s"] / after["ideal_rows_per_s"],
        "gain": after["rows_per_s"] / before["rows_per_s"],
        "rounds_to_balance": float(balanced[0] if balanced else sizes.rounds),
    }


def plot(result: Result) -> "Figure":
    drawn, panels = figure(2, width_in=5.6)
    for axes, stream in zip(panels, ("social", "stock"), strict=True):
        here = [row for row in result.rows if row["stream"] == stream]
        for name in dict.fromkeys(row["planner"] for row in here):
            of = [row for row in here if row["planner"] == name]
            axes.plot([r["round"] for r in of], [r["rows_per_s"] / 1e6 for r in of], label=name)
        axes.axvline(result.config["joins"], color="#BBBBBB", linestyle="--", marker="")
        axes.set(xlabel="round; an executor joins at the dashed line", ylabel="M rows/s, projected", ylim=(0, None))
        axes.set_title(f"{stream} (Mixed Fig. 15)")
    panels[0].legend()
    return drawn
