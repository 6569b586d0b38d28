"""PS2Stream Fig. 8: how long a tuple stays in the system at a moderate rate, with hybrid, kd-tree and metric.

Simulated (`layouts.py`). All three are offered the same, a share of what the slowest of them can take. Tuples come
at random, so that each machine is a queue with one server (Pollaczek and Khinchine); an event that several workers have
stays until the last is done. The network, which the paper's 15 to 25 ms must mostly be, is left out.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.plan import Plan
from geoswarm.lab.bench.kit.harness import Progress, Result
from geoswarm.lab.bench.ps2 import layouts
from geoswarm.lab.bench.ps2.layouts import RIVALS, LayoutSizes, LayoutWorld, layout_bars, layout_worlds, way_of
from geoswarm.run.sim.words import MachinesSetup
from geoswarm.run.sim.words_kernels import ServedTuples, serve_changes, serve_events

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = layouts.SIZES
MODERATE = 0.7
"""What is offered, of what the slowest layout can take. The paper says only that its rate is moderate."""


def measure(sizes: LayoutSizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    for world in layout_worlds(("Q1", "Q2", "Q3"), sizes, seed):
        report(world.case.name)
        plans = {layout: world.plan(layout) for layout in RIVALS}
        served = {layout: _Tuples.of(world, plan) for layout, plan in plans.items()}
        offered_per_s = MODERATE * min(tuples.taken_per_s for tuples in served.values())
        for layout, tuples in served.items():
            seconds = tuples.latencies_s(offered_per_s, world.setup)
            mean_s, p99_s = tuples.mean_and_p99(seconds)
            rows.append(
                {
                    "case": world.case.name,
                    "layout": layout,
                    "latency_ms": mean_s * 1e3,
                    "p99_ms": p99_s * 1e3,
                    "offered_per_s": offered_per_s,
                    "busiest_pct": 100.0 * offered_per_s / tuples.taken_per_s,
                }
            )
    by = {(row["case"], row["layout"]): row["latency_ms"] for row in rows}
    cases = dict.fromkeys(row["case"] for row in rows)
    summary = {
        f"hybrid_latency_vs_{rival.replace('-', '')}_worst": max(by[c, "hybrid"] / by[c, rival] for c in cases)
        for rival in ("kd-tree", "metric")
    }
    summary["kdtree_latency_vs_metric_us_q2"] = by["US-Q2", "kd-tree"] / by["US-Q2", "metric"]
    return Result(rows, summary, {**sizes._asdict(), "moderate": MODERATE})


class _Tuples:
    """The tuples of a step, by the workers that have them, and how often each comes."""

    def __init__(self, parts: tuple[ServedTuples, ...], weights: Floats, workers: int) -> None:
        self.offsets = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)]).cumsum()
        self.workers = np.concatenate([part.workers for part in parts])
        self.seconds = np.concatenate([part.us for part in parts]) * 1e-6
        self.weights, self.count = weights / weights.sum(), workers
        each = np.repeat(self.weights, np.diff(self.offsets))
        self.work_s, self._squares = (
            np.bincount(self.workers, each * self.seconds**power, minlength=workers) for power in (1, 2)
        )

    @classmethod
    def of(cls, world: LayoutWorld, plan: Plan) -> "_Tuples":
        stream, costs, workers = world.stream, world.setup.costs, world.setup.workers
        step, way, none = stream.step(1), way_of(stream, plan), np.zeros(stream.count, np.bool_)
        check_us, still = costs.c1_check * stream.scale.query_weight, np.zeros(stream.lists, np.bool_)
        events = serve_events(
            step.events, stream.of_events, way, way, False, still, still, (check_us, costs.c2_event), workers
        )
        inserted, deleted = (
            serve_changes(rows, stream.of_queries, way, way, none, costs_us, workers)
            for rows, costs_us in ((step.inserted, (0.0, costs.c3_entry)), (step.deleted, (costs.c4_deletion, 0.0)))
        )
        weight = float(stream.scale.query_weight)
        weights = np.repeat((stream.scale.event_weight, weight, weight), [len(rows) for rows in step])
        return cls((events, inserted, deleted), weights, workers)

    @property
    def taken_per_s(self) -> float:
        """Tuples per second at saturation."""
        return 1.0 / float(self.work_s.max())

    def latencies_s(self, offered_per_s: float, setup: MachinesSetup) -> Floats:
        """The latency of each tuple. The mean wait in a queue is λ·E[S²] / (2·(1 - ρ))."""
        wait_s = offered_per_s * self._squares / (2.0 * (1.0 - offered_per_s * self.work_s))
        dispatch_s = setup.dispatch_us * 1e-6
        busy = offered_per_s * dispatch_s / setup.dispatchers
        latest_s = np.zeros(len(self.weights))
        rows = np.repeat(np.arange(len(self.weights)), np.diff(self.offsets))
        np.maximum.at(latest_s, rows, wait_s[self.workers] + self.seconds)
        found: Floats = latest_s + dispatch_s * (1.0 + busy / (2.0 * (1.0 - busy)))
        return found

    def mean_and_p99(self, seconds: Floats) -> tuple[float, float]:
        """The mean, and the 99th percentile."""
        order = np.argsort(seconds)
        at = int(np.searchsorted(np.cumsum(self.weights[order]), 0.99))
        return float(seconds @ self.weights), float(seconds[order[min(at, len(order) - 1)]])


def plot(result: Result) -> "Figure":
    panels = [
        (f"{title} (PS2Stream Fig. 8)", [row for row in result.rows if row["case"].endswith(queries)], "latency_ms")
        for queries, title in (("Q1", "5 M queries"), ("Q2", "10 M queries"), ("Q3", "10 M queries"))
    ]
    return layout_bars(panels, "ms from dispatcher to match", scale=1.0)
