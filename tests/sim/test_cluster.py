"""The virtual cluster: queues that keep the books, sources that stop, statistics that equal a count, one seed."""

import dataclasses

import numpy as np
import pytest

from geoswarm.bench.timeline import rounds_to_recover
from geoswarm.control.coordinator import Coordinator
from geoswarm.control.registry import strategy
from geoswarm.control.strategy import Decision, RoundReport, Sample
from geoswarm.layout.uniform import uniform
from geoswarm.sim.cluster import NAMES, NEEDS_NO_PLAN, Cluster, Setup, cluster, race
from geoswarm.sim.holdings import Holdings
from geoswarm.sim.routing import ByPlan
from geoswarm.sim.service import Measured, Service, density_of, fitted, measure
from geoswarm.sim.spans import Span, by_minute
from geoswarm.sim.world import World
from geoswarm.space.grid import Grid
from geoswarm.space.plan import Change, Merge, Move, Plan, Split
from geoswarm.stats.triostat import TrioStat
from geoswarm.workload.hotspots import Hotspot, Hotspots
from geoswarm.workload.tweets import Tweets

BOUNDS = (-125.0, 24.0, -66.0, 50.0)
GRID = Grid(*BOUNDS, columns=100, rows=100)
SPOT = Hotspot((0.2, 0.2), start_s=60.0, life_s=60.0, queries=2000, intensity="step")
SLOW = Service(base_us=40.0, met_us=0.5, index_us=1.0)  # less than the sources offer, as SWARM §2 has it
SETUP = Setup(executors=4, routers=2, round_s=15.0, pending_max=2000, service=SLOW)
WEIGHT = 100


def world(seed: int = 1, spots: tuple[Hotspot, ...] = (SPOT,)) -> World:
    base = Tweets(seed=seed, country="US", bounds=BOUNDS, events_per_s=2000.0, side_share=0.01)
    return World(Hotspots(base, spots), GRID, 3000, weight=WEIGHT)


def run(cluster_: Cluster, in_world: World, horizon_s: float = 150.0) -> list[Span]:
    for _ in race(in_world, [cluster_], horizon_s):
        pass
    return cluster_.spans


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_is_one_world_for_every_strategy(name: str) -> None:
    first, second = (run(cluster(name, w, SETUP), w) for w in (world(), world()))
    assert first == second
    other = world(seed=2)
    assert run(cluster(name, other, SETUP), other) != first


@pytest.mark.parametrize("name", NAMES)
def test_machines_never_work_longer_than_time_goes_on_and_the_busiest_holds_back_the_stream(name: str) -> None:
    w = world()
    for span in run(cluster(name, w, SETUP), w):
        low, mean, high = span.utilisation
        assert -1e-9 <= low <= mean <= high <= 1 + 1e-6
        assert 0 < span.events_per_s < w.offered_per_s
        assert span.service_s * WEIGHT <= span.latency_s * (1 + 1e-9)  # drawn events stand for many, served together


def test_work_done_is_work_sent_but_for_what_still_waits() -> None:
    w = world(spots=())
    c = cluster("static-uniform", w, SETUP)
    spans = run(c, w)
    served, sent = sum(sum(s.busy_s) for s in spans), sum(s.service_s for s in spans)
    waits = np.maximum(c._clock.free_at_s - 150.0, 0.0).sum()
    assert served + waits == pytest.approx(sent, rel=1e-9)


def test_a_queue_never_holds_more_than_its_limit_and_so_bounds_the_wait() -> None:
    w, slow = world(spots=()), Service(base_us=100.0, met_us=0.0, index_us=0.0)
    waits = []
    for pending_max in (1000, 4000):
        setup = dataclasses.replace(SETUP, pending_max=pending_max, service=slow)
        c = cluster("static-uniform", w, setup)
        for span in run(c, w, 60.0):
            assert span.latency_ms <= pending_max * 0.1 + 1e-6
            waits.append(span.latency_ms)
    assert waits[-1] > 2 * waits[0]


def test_the_stream_runs_at_the_pace_of_the_machine_with_the_largest_share() -> None:
    w, flat = world(spots=()), Service(base_us=100.0, met_us=0.0, index_us=0.0)
    c = cluster("static-uniform", w, dataclasses.replace(SETUP, service=flat))
    spans = run(c, w, 60.0)
    cells = w.cells(0, 60 * w.events_per_step)
    assert c.plan is not None
    share = np.bincount(c.plan.executor_of_slot[c.plan.route(cells)]).max() / len(cells)
    for span in spans[1:]:
        assert span.events_per_s == pytest.approx(10_000 / share, rel=0.15)


def test_replicated_uses_all_machines_alike_and_a_uniform_grid_does_not() -> None:
    w = world(spots=())
    even, skewed = (run(cluster(name, w, SETUP), w)[-1] for name in ("replicated", "static-uniform"))
    assert len(even.busy_s) == 6
    assert even.utilisation[0] > 0.8
    assert skewed.utilisation[0] < 0.5 < skewed.utilisation[2]
    assert even.events_per_s > skewed.events_per_s


def test_swarm_ends_with_more_work_done_than_the_grid_it_started_from() -> None:
    w = world(spots=())
    still, moving = (run(cluster(name, w, SETUP), w, 1200.0) for name in ("static-uniform", "swarm"))
    assert moving[0] == dataclasses.replace(still[0], coordinator_bytes=moving[0].coordinator_bytes)
    assert moving[-1].units_of_work > 1.2 * still[-1].units_of_work
    assert sum(s.moved for s in moving) > 0 == sum(s.moved for s in still)


def test_moving_queries_costs_time_only_if_the_service_says_so() -> None:
    w = world(spots=())
    free, dear = (
        run(cluster("swarm", w, dataclasses.replace(SETUP, service=dataclasses.replace(SLOW, move_us=us))), w, 450.0)
        for us in (0.0, 10_000.0)
    )
    first = next(i for i, s in enumerate(free) if s.moved)
    assert free[: first + 1] == dear[: first + 1]
    assert free[first + 1].events > dear[first + 1].events


def test_queries_come_and_go_with_their_hotspot() -> None:
    w = world()
    queries = [round(s.queries) for s in by_minute(run(cluster("static-uniform", w, SETUP), w, 240.0))]
    assert queries[0] == queries[3] == 3000
    assert 3000 < queries[1] < 5000
    met = [step.met.mean() for step in world().steps(240.0)]
    assert np.mean(met[90:110]) != pytest.approx(np.mean(met[:50]), rel=0.01)
    np.testing.assert_array_equal([s.queries for s in world().steps(240.0)][-1], 3000)


def test_the_density_of_a_step_is_a_count_of_the_live_queries() -> None:
    w = world()
    live = set(range(3000))
    for step in w.steps(130.0):
        live |= set(step.registered.tolist())
        live -= set(step.cancelled.tolist())
        if step.number in (0, 75, 125):
            boxes = w.of(np.array(sorted(live)))
            np.testing.assert_array_equal(step.met, density_of(GRID, boxes)[step.cells])
            assert step.queries == len(live)


class Restless:
    """Splits, moves and merges by turns, whatever the load."""

    name = "restless"

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        return uniform(grid, executors)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        largest = max(plan.partitions, key=lambda p: (p.cells, p.id))
        changes: list[Change] = [Split(largest.id, "row", (largest.row0 + largest.row1) // 2, (0, 3))]
        if report.round % 3 == 1:
            changes = [Move(largest.id, (largest.executor + 1) % plan.executors)]
        elif report.round % 3 == 2:
            halves = [p for p in plan.partitions if p.parent and p.parent == plan.partitions[-1].parent]
            changes = [Merge(tuple(p.id for p in halves), 1)] if len(halves) == 2 else changes
        return Decision(changes)


def test_statistics_and_holdings_stay_right_through_splits_moves_and_merges() -> None:
    w = world()
    c = Cluster(w, SETUP, "restless", ByPlan(uniform(GRID, 4)), Coordinator(Restless(), trusts=True))
    live: set[int] = set(range(3000))
    plans = set()
    for step in w.steps(150.0):
        live |= set(step.registered.tolist())
        live -= set(step.cancelled.tolist())
        c.advance(step)
        if (step.number + 1) % 15 == 0:
            assert c.plan is not None
            assert c._held is not None
            plans.add(c.plan.epoch)
            ordinals = np.array(sorted(live))
            for p, held in zip(c.plan.partitions, c._held.queries_of_slot(c.plan), strict=True):
                want = np.count_nonzero(w.meets(ordinals, p.row0, p.col0, p.row1, p.col1))
                assert held == want == c._held.stats[p.id].trio.q
    assert len(plans) == 10


def test_a_drawn_event_counts_in_the_statistics_for_all_that_it_stands_for() -> None:
    w = world(spots=())
    plan = uniform(GRID, 4)
    held = Holdings(w, plan, counts=True)
    cells = w.cells(0, 5000)
    held.count(plan, cells)
    for stat in held.stats.values():
        stat.close_round()
    assert sum(s.trio.n for s in held.stats.values()) == 5000 * WEIGHT
    p = plan.partitions[0]
    want = TrioStat.empty(p)
    rows, columns = np.divmod(cells[plan.route(cells) == 0].astype(np.int64), GRID.columns)
    want.add_points(np.repeat(rows, WEIGHT), np.repeat(columns, WEIGHT))
    want.close_round()
    np.testing.assert_array_equal(held.stats[p.id].by_row, want.by_row)


def test_the_coordinator_hears_two_numbers_from_each_executor_and_tells_routers_what_changed() -> None:
    w = world(spots=())
    spans = run(cluster("swarm", w, SETUP), w, 450.0)
    quiet = {s.coordinator_bytes for s in spans if not s.moved}
    assert 4 * 2 * 8 in quiet
    assert min(s.coordinator_bytes for s in spans if s.moved) > 4 * 2 * 8


@pytest.mark.parametrize(
    ("levels", "rounds"),
    [
        ([100] * 20, 0),
        ([100] * 8 + [96] * 12, 0),
        ([100] * 8 + [50, 60, 94, 95] + [100] * 8, 3),
        ([100] * 8 + [50, 100, 60] + [100] * 9, 3),  # a single good round is no recovery
        ([100] * 8 + [50] * 12, 12),
        ([100] * 8 + [50] + [100] * 8 + [50] * 3, 1),  # what falls later is another story
    ],
)
def test_rounds_to_recover_are_counted_from_the_start_of_the_hotspot(levels: list[int], rounds: int) -> None:
    spans = [Span(15.0 * i, 15.0, 7.0, 15.0 * n, 0.0, 0.0, (0.0,), 0, 0, 1) for i, n in enumerate(levels)]
    assert rounds_to_recover(spans, 120.0) == rounds


def test_every_strategy_of_the_registry_can_be_simulated() -> None:
    w = world(spots=())
    for name in NAMES:
        if name not in NEEDS_NO_PLAN:
            assert strategy(name).name == name
        assert run(cluster(name, w, SETUP), w, 30.0)[-1].events > 0


def test_the_service_times_that_made_the_figures_are_found_again() -> None:
    true = Service(base_us=0.7, met_us=0.02, index_us=0.05)
    points = [
        Measured(indexed, met, float(true.event_s(np.array([met]), indexed)[0] * 1e6))
        for indexed, met in ((1000, 5.0), (50_000, 90.0), (30_000, 10.0), (1_000_000, 700.0))
    ]
    got = fitted(points)
    assert (got.base_us, got.met_us, got.index_us) == pytest.approx((0.7, 0.02, 0.05))
    falling = [Measured(2**k, 10.0, 5.0 - 0.1 * k) for k in range(10)]
    assert fitted(falling).index_us == 0.0


def test_the_matcher_is_measured_at_the_density_that_the_events_meet() -> None:
    w = world(spots=())
    got = measure(w.workload.base, GRID, 3000, 1.0, 4000, 1)
    cells = w.cells(0, 16_000)[:4000]
    assert got.met == pytest.approx(density_of(GRID, w.of(np.arange(3000)))[cells].mean())
    assert got.indexed == 3000
    assert got.event_us > 0
