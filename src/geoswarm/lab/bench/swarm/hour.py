"""The control plane after an hour of SWARM, and a stopwatch for what it does: what SWARM's Figures 18 and 19 share.

Measures nothing by itself: `fig18.py` times the coordinator's and the routers' side, `fig19.py` the executors'. The
hour is the engine's own statistics and coordinator, round by round, on posts of the US between its coasts; nothing is
matched, since that changes no plan of SWARM's.

SWARM §6.2: "the average time each operation takes in microseconds after running the system for an hour".
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from geoswarm.control.balance.swarm import Swarm
from geoswarm.control.coordinator import Coordinator
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.change import Move, Split
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.redraw import queries_near, redraw_stats
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.flow.observe import LoadReport, count_points
from geoswarm.flow.route import route
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, cpu_s, median
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.kit.plots import PALETTE, figure
from geoswarm.lab.bench.swarm.fig12_to_16 import CELLS_PER_SIDE
from geoswarm.lab.workload.tweets import Tweets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUND_S = 15.0
SMALL_BATCH_EVENTS = 1_000
Given = TypeVar("Given")


@dataclass(frozen=True)
class HourSizes:
    subscriptions: int = 1_000_000
    executors: int = 22
    cells_per_side: int = CELLS_PER_SIDE
    rounds: int = 240
    drawn_per_s: int = 2_048
    """Posts that are counted in the hour; a plan asks for their shares only."""
    batch_events: int = 262_144
    repeats: int = 9


SIZES = {Scale.SMALL: HourSizes(), Scale.FULL: HourSizes(drawn_per_s=16_384, batch_events=1_000_000, repeats=25)}


@dataclass(frozen=True)
class Hour:
    workload: Tweets
    rects: Floats
    """(n, 4): all subscriptions, live throughout."""
    plan: Plan
    stats: dict[int, TrioStat]
    """The statistics of each partition after the last round was closed."""
    plans: int
    """How often the plan was redrawn."""

    @property
    def held(self) -> dict[int, list[int]]:
        """The partitions of each executor."""
        owned: dict[int, list[int]] = {m: [] for m in range(self.plan.executors)}
        for p in self.plan.partitions:
            owned[p.executor].append(p.id)
        return owned

    @property
    def moves(self) -> list[Move]:
        """What SWARM may ask for: two partitions of the fullest executor to another."""
        owned = max(self.held.values(), key=len)[:2]
        return [Move(i, (self.plan.partition(i).executor + 1) % self.plan.executors) for i in owned]

    @property
    def cut(self) -> Split:
        """Or the costliest partition cut in the middle."""
        many = [p for p in self.plan.partitions if p.cells > 1]
        costliest = max(many, key=lambda p: self.stats[p.id].cost)
        owners = (costliest.executor, (costliest.executor + 1) % self.plan.executors)
        rows, columns = costliest.row1 - costliest.row0, costliest.col1 - costliest.col0
        if rows >= columns:
            return Split(costliest.id, "row", costliest.row0 + (rows - 1) // 2, owners)
        return Split(costliest.id, "column", costliest.col0 + (columns - 1) // 2, owners)


def run_hour(sizes: HourSizes, seed: int, report: Progress) -> Hour:
    report(f"drawing {sizes.subscriptions:,} subscriptions")
    workload = Tweets(seed=seed, country="US", bounds=US, events_per_s=sizes.drawn_per_s)
    grid = Grid(*US, columns=sizes.cells_per_side, rows=sizes.cells_per_side)
    operations = workload.subscriptions(0, sizes.subscriptions)
    sides = [np.asarray(operations.column(side), np.float64) for side in ("xmin", "ymin", "xmax", "ymax")]
    rects, boxes = np.stack(sides, axis=1), grid.cover(*sides)
    strategy = Swarm()
    coordinator, plan = Coordinator(strategy), strategy.first_plan(grid, sizes.executors)
    stats = {p.id: TrioStat.empty(p) for p in plan.partitions}
    for stat in stats.values():
        stat.add_queries(boxes)
        stat.close_round()
    per_round, plans = round(sizes.drawn_per_s * ROUND_S), 0
    for number in range(sizes.rounds):
        report(f"round {number + 1} of {sizes.rounds}, {len(plan.partitions)} partitions")
        for parcel in route(workload.events(number * per_round, per_round), plan):
            stats[parcel.partition] += count_points(parcel.events, plan, parcel.partition)
        outcome = coordinator.close_round(plan, LoadReport(), stats, (number + 1) * ROUND_S)
        if outcome.plan is not None:
            plan, plans = outcome.plan, plans + 1
            new = [p for p in plan.partitions if p.id not in stats]
            near = queries_near(rects, grid, new) if new else None
            stats = redraw_stats(stats, plan, {p.id: near for p in new} if near else {})
    return Hour(workload, rects, plan, stats, plans)


class Spent(NamedTuple):
    """What one call took: the median of several turns."""

    cpu_us: float
    """CPU time of this thread."""
    wall_us: float

    def per(self, count: int) -> "Spent":
        return Spent(self.cpu_us / count, self.wall_us / count)


def time_calls(
    work: Callable[[Given], object], fresh: Callable[[], Given], repeats: int, turn_us: float = 2_000.0
) -> Spent:
    """`fresh` makes what the calls of a turn are given, off the clock; a turn takes `turn_us` or more."""
    given = fresh()
    began_s = cpu_s()
    work(given)  # also loads kernels
    work(given)
    calls = max(1, round(turn_us / max((cpu_s() - began_s) / 2 * 1e6, 1.0)))
    cpu, wall = [], []
    for _ in range(repeats):
        given = fresh()
        began_s, wall_began_s = cpu_s(), time.perf_counter()
        for _ in range(calls):
            work(given)
        cpu.append((cpu_s() - began_s) / calls * 1e6)
        wall.append((time.perf_counter() - wall_began_s) / calls * 1e6)
    return Spent(median(cpu), median(wall))


def nothing() -> None:
    """A maker for work that needs nothing made anew."""


def operation_row(
    number: int, operation: str, took: Spent, paper_us: float | None = None, what: str = ""
) -> dict[str, Any]:
    """`number` is the bar of the paper's figure; operations whose `what` begins with "part:" are within it."""
    return {
        "bar": number,
        "operation": operation,
        "cpu_us": round(took.cpu_us, 4),
        "wall_us": round(took.wall_us, 4),
        "paper_us": paper_us,
        "what": what,
    }


def hour_config(hour: Hour, sizes: HourSizes) -> dict[str, Any]:
    return {
        **vars(sizes),
        "partitions": len(hour.plan.partitions),
        "partitions_per_executor": sorted(len(ids) for ids in hour.held.values()),
        "plans": hour.plans,
    }


def draw_operations(result: Result, title: str) -> "Figure":
    """Bars on a logarithmic scale, as in the paper; a black line where the paper's number is known."""
    drawn, (axes,) = figure(width_in=9.5, height_in=1.2 + 0.45 * len(result.rows))
    rows: Sequence[dict[str, Any]] = result.rows[::-1]
    places = np.arange(len(rows))
    colours = [PALETTE[r["bar"] - 1] for r in rows]
    axes.barh(places, [r["cpu_us"] for r in rows], color=colours)
    for place, r in enumerate(rows):
        axes.text(1.3 * max(r["cpu_us"], r["paper_us"] or 0), place, _label(r), va="center")
        if r["paper_us"]:
            axes.plot([r["paper_us"]] * 2, [place - 0.4, place + 0.4], color="black", marker="", linewidth=3)
    axes.set(title=title, xlabel="CPU time (µs)", xscale="log", yticks=places)
    axes.set_yticklabels([f"({r['bar']}) {r['operation']}" for r in rows])
    axes.set_xlim(right=axes.get_xlim()[1] * 40)  # room for the labels
    axes.grid(visible=False, axis="y")
    return drawn


def _label(r: dict[str, Any]) -> str:
    ours = f"{r['cpu_us']:,.0f}" if r["cpu_us"] >= 100 else f"{r['cpu_us']:.2g}"
    return f"{ours}   (paper {r['paper_us']:g})" if r["paper_us"] else ours
