"""SWARM Fig. 19: microseconds per operation of executors, after an hour of SWARM.

(1) an event's statistics: 0.41 µs in the paper, its partition found included, as here; (2) close a round, over all
partitions of an executor: 58 µs; (3) find what to hand over; (4) receive a partition. The two numbers are from the text
to thesis Fig. 6.1; of the other two the texts give none, and the pictures are lost. A parcel costs about 30 µs however
few events it holds, so (1) is below the paper's from some 8000 events a batch on, and above it for smaller ones.

Here (2) to (4) are the driver's work: the statistics rest there. An executor receives a partition by a new plan, since
all map the same subscriptions: the plan is written to a file, and after a split the statistics of both halves are
counted again from all live subscriptions, so that they are exact along both axes. The paper sends the queries over.
"""

import tempfile
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.control.balance.split import find_split
from geoswarm.control.balance.subset import find_subset
from geoswarm.control.estimate import executor_costs
from geoswarm.control.strategy import RoundReport
from geoswarm.core.arrays.batches import xy
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.redraw import queries_near, redraw_stats, split_stat
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.flow.observe import LoadReport, count_points
from geoswarm.flow.route import locate_slots, route
from geoswarm.lab.bench.kit.harness import Progress, Result
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.swarm import hour as after
from geoswarm.lab.bench.swarm.fig18 import Finder
from geoswarm.lab.bench.swarm.hour import SMALL_BATCH_EVENTS, Hour, HourSizes, Spent, nothing, operation_row, time_calls
from geoswarm.store.checkpoint import Checkpoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_STATS_US = 0.41
PAPER_CLOSE_US = 58.0


SIZES = after.SIZES


def measure(sizes: HourSizes, seed: int, report: Progress) -> Result:
    hour = after.run_hour(sizes, seed, report)
    report("(1) statistics of events")
    counted, counted_few = (_counting(hour, n, sizes.repeats) for n in (sizes.batch_events, SMALL_BATCH_EVENTS))
    report("(2) closing a round")
    closed = {m: _closing(hour, ids, sizes.repeats) for m, ids in hour.held.items()}
    average = Spent(*(float(np.mean(times)) for times in zip(*closed.values(), strict=True)))
    fullest = max(closed, key=lambda m: len(hour.held[m]))
    report("(3) finding a reduction")
    subset, cut, halves = _reduction(hour, sizes.repeats)
    report("(4) receiving a partition: registering the subscriptions")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = _checkpoint(hour, sizes, folder)
        report("(4) receiving a partition")
        live, redraw, written = _receiving(hour, checkpoint, sizes.repeats)
        checkpoint.close()
    received = Spent(*(sum(times) for times in zip(live, redraw, written, strict=True)))
    few, many = f"{SMALL_BATCH_EVENTS:,} at once", f"{sizes.batch_events:,} at once"
    subs = f"{sizes.subscriptions:,} live subscriptions"
    rows = [
        operation_row(1, "an event's statistics", counted, PAPER_STATS_US, f"partition found and counted, {many}"),
        operation_row(
            1, f"an event's statistics, {few}", counted_few, PAPER_STATS_US, "a parcel has a price of its own"
        ),
        operation_row(
            2, "close a round, mean executor", average, PAPER_CLOSE_US, f"{len(hour.plan.partitions)} partitions in all"
        ),
        operation_row(
            2,
            "close a round, fullest executor",
            closed[fullest],
            PAPER_CLOSE_US,
            f"{len(hour.held[fullest])} partitions",
        ),
        operation_row(3, "find a subset", subset),
        operation_row(3, "find a split", cut, what="four binary searches a partition"),
        operation_row(3, "statistics of the halves", halves, what="estimated from the whole's"),
        operation_row(4, "receive moved partitions", written, what="a plan file, with two fsyncs"),
        operation_row(4, "live subscriptions", live, what=f"part: {subs}"),
        operation_row(4, "count the halves anew", redraw, what="part: those near them"),
        operation_row(4, "receive half of a split", received, what=f"both and the plan file; {subs}"),
    ]
    summary = {
        "stats_us_per_event": counted.cpu_us,
        "stats_us_per_event_small_batch": counted_few.cpu_us,
        "close_round_us": average.cpu_us,
        "close_round_us_max": max(took.cpu_us for took in closed.values()),
        "find_reduction_us": subset.cpu_us + cut.cpu_us + halves.cpu_us,
        "receive_moved_us": written.cpu_us,
        "receive_split_us": received.cpu_us,
        "stats_vs_paper": counted.cpu_us / PAPER_STATS_US,
        "close_round_vs_paper": average.cpu_us / PAPER_CLOSE_US,
    }
    return Result(rows, summary, after.hour_config(hour, sizes))


def plot(result: Result) -> "Figure":
    return after.draw_operations(result, "Executors (SWARM Fig. 19, thesis Fig. 6.1)")


def _counting(hour: Hour, events: int, repeats: int) -> Spent:
    """In the paper an executor first finds the partition of an object. Here the router has, but both are timed."""
    parcels, plan = list(route(hour.workload.events(0, events), hour.plan)), hour.plan

    def work(_: None) -> None:
        for parcel in parcels:
            locate_slots(*xy(parcel.events), plan.grid.frame, plan.slot_of_cell)
            count_points(parcel.events, plan, parcel.partition)

    return time_calls(work, nothing, repeats).per(events)


def _closing(hour: Hour, ids: list[int], repeats: int) -> Spent:
    """Bring the statistics up to date, read the cost, and return two numbers."""

    def work(held: list[TrioStat]) -> tuple[float, float]:
        cost = arrived = 0.0
        for stat in held:
            stat.close_round()
            trio = stat.trio
            cost, arrived = cost + trio.cost, arrived + trio.r
        return cost, arrived

    def fresh() -> list[TrioStat]:  # closed too often, old points fade into numbers too small to calculate fast with
        held = [hour.stats[i] for i in ids]
        return [TrioStat(s.box, s.by_row.copy(), s.by_column.copy()) for s in held]

    return time_calls(work, fresh, repeats, turn_us=500.0)


def _reduction(hour: Hour, repeats: int) -> tuple[Spent, Spent, Spent]:
    """What the costliest executor searches. The split is searched though a subset may have been found."""
    plan, stats = hour.plan, hour.stats
    high, low = Finder().find(plan, RoundReport(1, 0.0, LoadReport(), stats))
    costs = executor_costs(plan, stats)
    held = {i: stats[i] for i in hour.held[high]}
    ends = float(costs[high]), float(costs[low])
    subset = time_calls(lambda _: find_subset({i: s.cost for i, s in held.items()}, *ends), nothing, repeats)
    cut = hour.cut
    searched = time_calls(lambda _: find_split(held, *ends), nothing, repeats)
    halved = time_calls(lambda _: split_stat(stats[cut.partition], cut.axis, cut.after), nothing, repeats)
    return subset, searched, halved


def _checkpoint(hour: Hour, sizes: HourSizes, folder: str) -> Checkpoint:
    grid = hour.plan.grid
    contract = Contract(bounds=US, columns=grid.columns, rows=grid.rows, executors=sizes.executors)
    checkpoint = Checkpoint(folder, contract, Tuning(), first_plan=lambda _, __: hour.plan)
    checkpoint.take_in(pa.Table.from_batches([hour.workload.subscriptions(0, sizes.subscriptions)]), 0, {})
    return checkpoint


def _receiving(hour: Hour, checkpoint: Checkpoint, repeats: int) -> tuple[Spent, Spent, Spent]:
    """What the driver does with a plan that cuts a partition, step by step as in `ControlLoop` and `adopt_plan`."""
    plan = hour.plan.apply([hour.cut])
    new = [p for p in plan.partitions if p.id not in hour.stats]
    rects = checkpoint.live_rects()
    epochs = count(checkpoint.plan.epoch + 1)

    def redraw(_: None) -> dict[int, TrioStat]:
        near = queries_near(rects, plan.grid, new)
        return redraw_stats(hour.stats, plan, {p.id: near for p in new})

    def later_plans() -> list[Plan]:
        return [replace(plan, epoch=next(epochs)) for _ in range(2)]  # the second is for the first turn's second call

    live = time_calls(lambda _: checkpoint.live_rects(), nothing, repeats)
    redrawing = time_calls(redraw, nothing, repeats)
    written = time_calls(lambda waiting: checkpoint.adopt_plan(waiting.pop(0)), later_plans, repeats, turn_us=1.0)
    return live, redrawing, written
