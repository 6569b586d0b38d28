"""SWARM Fig. 18: microseconds per operation of those who route and of the coordinator, after an hour of SWARM.

(1) find an object's executor and send it there; (2) take up a plan with a moved subset or a split; (3) receive what
the executors counted; (4) see whether to rebalance, and who is costliest and cheapest. The text of the paper gives no
number of this figure, and its picture is lost, so nothing stands beside ours.

Two of the four are other operations than the paper's. A router here takes up a whole plan, read from its sealed file
and painted on the grid, since any worker may have missed any number of plans before. And executors send the lines that
they counted (`triostat/fig6_2.py`), not two numbers, since the coordinator keeps the statistics and a worker nothing.
"""

import json
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from geoswarm.control.balance.swarm import DecisionMachine, Swarm
from geoswarm.control.strategy import RoundReport, Why
from geoswarm.core.space.change import Change, Move
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.flow.observe import Load, LoadReport, count_points
from geoswarm.flow.route import executors_of, route
from geoswarm.lab.bench.kit.harness import Progress, Result
from geoswarm.lab.bench.swarm import hour as after
from geoswarm.lab.bench.swarm.hour import SMALL_BATCH_EVENTS, Hour, HourSizes, Spent, nothing, operation_row, time_calls
from geoswarm.store import plans
from geoswarm.store.storage import Storage

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SIZES = after.SIZES


def measure(sizes: HourSizes, seed: int, report: Progress) -> Result:
    hour = after.run_hour(sizes, seed, report)
    report("(1) routing")
    found, routed, routed_few = _routing(hour, sizes)
    report("(2) taking up a plan")
    drawn, taken = _plans(hour, sizes)
    report("(3) receiving what executors counted")
    texts = _texts(hour, sizes)
    received = time_calls(lambda _: _receive(texts, hour), nothing, sizes.repeats)
    report("(4) finding the costliest and the cheapest")
    round_report = RoundReport(1, 0.0, LoadReport(), hour.stats)
    finder = Finder()
    decided = time_calls(lambda _: finder.find(hour.plan, round_report), nothing, sizes.repeats)
    kilobytes = sum(map(len, texts)) / 1e3
    few = f"{SMALL_BATCH_EVENTS} at once"
    rows = [
        operation_row(1, "find an event's executor", found, what=f"part: {sizes.batch_events:,} at once"),
        operation_row(1, "route an event", routed, what=f"and gather it into a parcel, {sizes.batch_events:,} at once"),
        operation_row(1, f"route an event, {few}", routed_few),
        *(operation_row(2, f"draw the next plan, {kind}", took, what="coordinator") for kind, took in drawn.items()),
        *(operation_row(2, f"take up a plan, {kind}", took, what="each worker, once") for kind, took in taken.items()),
        operation_row(3, f"receive from {len(texts)} executors", received, what=f"a batch: {kilobytes:.0f} kB"),
        operation_row(4, "find m_H and m_L", decided, what=f"of {len(hour.plan.partitions)} partitions"),
    ]
    summary = {
        "route_us": routed.cpu_us,
        "update_index_us": taken["split"].cpu_us,
        "receive_costs_us": received.cpu_us,
        "receive_costs_us_per_executor": received.cpu_us / len(texts),
        "find_high_low_us": decided.cpu_us,
    }
    return Result(rows, summary, after.hour_config(hour, sizes))


def plot(result: Result) -> "Figure":
    return after.draw_operations(result, "Coordinator and routers (SWARM Fig. 18)")


class Finder(Swarm):
    """SWARM up to the moment when the costliest executor would search what to hand over."""

    pair = (-1, -1)

    def find(self, plan: Plan, report: RoundReport) -> tuple[int, int]:
        self.machine = DecisionMachine(rebalances=True)
        self.rebalance(plan, report)
        return self.pair

    def _hand_over(
        self, held: dict[int, TrioStat], executors: tuple[int, int], cost_high: float, cost_low: float
    ) -> tuple[list[Change], Why]:
        self.pair = executors
        return [Move(-1, executors[1])], {}  # never applied; it ends the search


def _routing(hour: Hour, sizes: HourSizes) -> tuple[Spent, Spent, Spent]:
    def us(count: int, work: Any) -> Spent:
        events = hour.workload.events(0, count)
        return time_calls(lambda _: work(events), nothing, sizes.repeats).per(count)

    def all_parcels(events: Any) -> int:
        return sum(1 for _ in route(events, hour.plan))

    found = us(sizes.batch_events, lambda events: executors_of(events, hour.plan))
    return found, us(sizes.batch_events, all_parcels), us(SMALL_BATCH_EVENTS, all_parcels)


def _plans(hour: Hour, sizes: HourSizes) -> tuple[dict[str, Spent], dict[str, Spent]]:
    asked: dict[str, Sequence[Change]] = {"move": hour.moves, "split": [hour.cut]}
    drawn = {kind: time_calls(hour.plan.apply, partial(list, c), sizes.repeats) for kind, c in asked.items()}
    taken = {kind: _measure_read(hour.plan.apply(c), sizes.repeats) for kind, c in asked.items()}
    return drawn, taken


def _measure_read(plan: Plan, repeats: int) -> Spent:
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        seal = plans.write(storage, plan)
        return time_calls(lambda _: plans.read(storage, plan.epoch, seal).slot_of_cell, nothing, repeats)


def _texts(hour: Hour, sizes: HourSizes) -> list[str]:
    """What the executors' tasks write after a batch."""
    reports = {m: LoadReport() for m in range(hour.plan.executors)}
    for parcel in route(hour.workload.events(0, sizes.batch_events), hour.plan):
        counted, events = reports[parcel.executor], len(parcel.events)
        counted.add(parcel.partition, parcel.executor, Load(events, events, events, events))
        counted.add_stat(parcel.partition, count_points(parcel.events, hour.plan, parcel.partition))
    return [json.dumps(counted.to_json()) for counted in reports.values()]


def _receive(texts: list[str], hour: Hour) -> dict[int, TrioStat]:
    total = LoadReport()
    for text in texts:
        total += LoadReport.from_json(json.loads(text))
    return {i: hour.stats[i] + counted for i, counted in total.stats.items()}
