"""The virtual cluster: queues that keep the books, sources that stop, memory that ends, statistics like a count."""

import dataclasses

import numpy as np
import pytest

from geoswarm.control.balance.per_batch import PerBatch
from geoswarm.control.coordinator import Coordinator
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.registry import strategies, strategy
from geoswarm.control.strategy import Decision, RoundReport, Sample
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.change import Change, Merge, Move, Split
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.errors import SettingsError
from geoswarm.lab.bench.swarm.fig12_to_16 import recovery_of
from geoswarm.lab.workload.hotspots import Hotspot, Hotspots
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.sim.cluster import Cluster, ClusterSetup
from geoswarm.run.sim.holdings import Holdings
from geoswarm.run.sim.queues import QueueTimes, serve, serve_batch
from geoswarm.run.sim.race import STRATEGY_NAMES, cluster, race
from geoswarm.run.sim.routing import ByBatch, ByPlan, ByTask, RoutingBatch
from geoswarm.run.sim.service import Measurement, Service, fit, measure_service
from geoswarm.run.sim.spans import Span, by_minute, total
from geoswarm.run.sim.world import World

BOUNDS = (-125.0, 24.0, -66.0, 50.0)
GRID = Grid(*BOUNDS, columns=100, rows=100)
SPOT = Hotspot((0.2, 0.2), start_s=60.0, life_s=60.0, queries=2000, intensity="step")
SLOW = Service(base_us=40.0, met_us=0.5, index_us=1.0)  # less than the sources offer, as SWARM §2 has it
SETUP = ClusterSetup(executors=4, routers=2, round_s=15.0, pending_max=2000, sources=4, service=SLOW)
WEIGHT = 100


def density_of(grid: Grid, boxes: CellBox) -> Ints:
    """How many of the boxes meet each cell, one by one."""
    density = np.zeros((grid.rows, grid.columns), np.int64)
    for row0, col0, row1, col1 in zip(*boxes, strict=True):
        density[row0 : row1 + 1, col0 : col1 + 1] += 1
    return density.ravel()


def world(seed: int = 1, spots: tuple[Hotspot, ...] = (SPOT,)) -> World:
    base = Tweets(seed=seed, country="US", bounds=BOUNDS, events_per_s=2000.0, side_share=0.01)
    return World(Hotspots(base, spots), GRID, 3000, weight=WEIGHT)


def run(cluster_: Cluster, in_world: World, horizon_s: float = 150.0) -> list[Span]:
    for _ in race(in_world, [cluster_], horizon_s):
        pass
    return cluster_.spans


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_one_seed_is_one_world_for_every_strategy(name: str) -> None:
    first, second = (run(cluster(name, w, SETUP), w) for w in (world(), world()))
    assert first == second
    other = world(seed=2)
    assert run(cluster(name, other, SETUP), other) != first


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_machines_never_work_longer_than_time_goes_on_and_the_busiest_holds_back_the_stream(name: str) -> None:
    w = world()
    spans = run(cluster(name, w, SETUP), w)
    assert len(spans) > 1
    for span in spans:
        low, mean, high = span.utilisation
        assert -1e-9 <= low <= mean <= high <= 1 + 1e-6
        assert 0 < span.events_per_s < w.offered_per_s
        assert 0 <= span.wait_s <= span.latency_s
        assert span.service_s * WEIGHT <= span.latency_s * (1 + 1e-9)  # drawn events stand for many, served together


def test_work_done_is_work_sent_but_for_what_still_waits() -> None:
    w = world(spots=())
    c = cluster("static-uniform", w, SETUP)
    spans = run(c, w)
    served, sent = sum(sum(s.busy_s) for s in spans), sum(s.service_s for s in spans)
    waits = np.maximum(c._clock.free_at_s - 150.0, 0.0).sum()
    assert served + waits == pytest.approx(sent, rel=1e-9)


def test_the_number_under_way_is_fixed_so_latency_is_that_number_over_throughput() -> None:
    w = world(spots=())
    for name in ("static-uniform", "replicated"):
        for pending_max in (1000, 4000):
            c = cluster(name, w, dataclasses.replace(SETUP, pending_max=pending_max))
            steady = total(run(c, w, 90.0)[1:])
            assert steady.latency_ms * steady.events_per_s / 1e3 == pytest.approx(4 * pending_max, rel=0.1)


def test_serving_by_credits_equals_the_obvious_simulation() -> None:
    rng = np.random.default_rng(5)
    machines, work_s = rng.integers(0, 3, 400), rng.exponential(0.02, 400)
    clock = QueueTimes(np.zeros(3), np.zeros(7), np.zeros(1))
    got = [serve(clock, machines, work_s, 0.0, 1.5, 0.001), serve(clock, machines, work_s, 1.5, 1.5, 0.001)]

    free, now_s = [0.0] * 3, 0.0
    under_way, want = list[float](), list[tuple[int, float]]()
    for start_s in (0.0, 1.5):
        sent, waited_s, now_s = 0, 0.0, max(now_s, start_s)
        for machine, taken_s in zip(machines.tolist(), work_s.tolist(), strict=True):
            if sum(done_s > now_s for done_s in under_way) == 7:
                now_s = sorted(under_way)[-7]
            if now_s >= start_s + 1.5:
                break
            free[machine] = max(free[machine], now_s) + taken_s
            under_way.append(free[machine])
            sent, waited_s, now_s = sent + 1, waited_s + free[machine] - now_s, now_s + 0.001
        want.append((sent, waited_s))
    assert [sent for sent, _ in got] == [sent for sent, _ in want]
    assert [waited_s for _, waited_s in got] == pytest.approx([waited_s for _, waited_s in want])
    assert 20 < got[0][0] < 400


def test_a_batch_takes_what_its_slowest_machine_can_do_in_a_step() -> None:
    machines, work_s = np.array([0, 1, 0, 0, 0, 1]), np.full(6, 0.3)
    sent, latency_s, load_s = serve_batch(np.array([0.1, 0.0]), machines, work_s, 1.0, 0.001)
    assert (sent, load_s.tolist()) == (4, pytest.approx([1.0, 0.3]))
    assert latency_s == pytest.approx(0.4 + 0.3 + 0.7 + 1.0)
    assert serve_batch(np.array([0.2, 0.0]), machines, work_s, 1.0, 0.001)[0] == 3


def test_no_batch_begins_before_all_machines_have_done_the_one_before() -> None:
    """Else a task that is too long for its batch would run beside the next one, on another machine."""
    w, flat = world(spots=()), Service(base_us=100.0, met_us=0.0, index_us=0.0, task_us=0.0)
    c = cluster("over-partitioned", w, dataclasses.replace(SETUP, service=flat))
    share = np.bincount(c.plan.route(w.cells(0, 40_000))).max() / 40_000
    spans = run(c, w, 60.0)
    assert len(spans) > 1
    for span in spans[1:]:
        assert span.events_per_s <= 10_000 / share * 1.15


def test_the_stream_runs_at_the_pace_of_the_machine_with_the_largest_share() -> None:
    w, flat = world(spots=()), Service(base_us=100.0, met_us=0.0, index_us=0.0)
    c = cluster("static-uniform", w, dataclasses.replace(SETUP, service=flat))
    spans = run(c, w, 60.0)
    cells = w.cells(0, 60 * w.events_per_step)
    share = np.bincount(c.plan.executor_of_slot[c.plan.route(cells)]).max() / len(cells)
    assert len(spans) > 1
    for span in spans[1:]:
        assert span.events_per_s == pytest.approx(10_000 / share, rel=0.15)


def test_replicated_uses_all_machines_alike_and_a_uniform_grid_does_not() -> None:
    w = world(spots=())
    even, skewed = (run(cluster(name, w, SETUP), w)[-1] for name in ("replicated", "static-uniform"))
    assert len(even.busy_s) == 6
    assert even.utilisation[0] > 0.8
    assert skewed.utilisation[0] < 0.5 < skewed.utilisation[2]
    assert even.events_per_s > skewed.events_per_s
    assert even.latency_ms < skewed.latency_ms


def test_machines_without_memory_for_their_queries_fail_and_a_plan_needs_less_of_it() -> None:
    w = world()
    small = dataclasses.replace(SETUP, memory_bytes=4050 * 100, query_bytes=100)  # 3000 queries, 5000 in the hotspot
    whole, parted = cluster("replicated", w, small), cluster("static-history", w, small)
    assert len(run(whole, w)) == 6
    assert whole.failed_at_s == 91.0  # 2000 come within a minute from 60 s on
    assert len(run(parted, w)) == 10
    assert parted.failed_at_s is None
    none = cluster("replicated", w, dataclasses.replace(small, memory_bytes=2999 * 100))
    assert (none.failed_at_s, run(none, w)) == (0.0, [])


def test_swarm_ends_with_more_work_done_than_the_grid_it_started_from() -> None:
    w = world(spots=())
    still, moving = (run(cluster(name, w, SETUP), w, 1200.0) for name in ("static-uniform", "swarm"))
    assert moving[0] == dataclasses.replace(still[0], coordinator_bytes=moving[0].coordinator_bytes)
    assert moving[-1].latency_ms < still[-1].latency_ms / 1.2
    assert moving[-1].units_of_work > 1.2 * still[-1].units_of_work
    assert sum(s.moved for s in moving) > 0 == sum(s.moved for s in still)


def test_auto_ends_with_more_work_done_than_swarm() -> None:
    w = world(spots=())
    swarm, auto = (run(cluster(name, w, SETUP), w, 600.0) for name in ("swarm", "auto"))
    assert auto[-1].units_of_work > swarm[-1].units_of_work
    assert auto[-1].partitions <= 8 * SETUP.executors


def test_what_is_spread_is_dealt_out_by_turns_and_its_queries_go_to_every_owner() -> None:
    w, plan = world(), uniform(GRID, 4)
    slots = plan.route(np.arange(GRID.cells, dtype=np.int32))
    hot = plan.partitions[0]
    spread = plan.spread(hot.id, (hot.executor, 2, 2, 3))
    batch = RoutingBatch(
        np.arange(GRID.cells, dtype=np.int32), slots, np.ones(GRID.cells), np.zeros(4, np.int64), 0, np.zeros(4)
    )
    machines = ByPlan(spread).route(batch).machines[slots == 0]
    want = [hot.cells / 4, 0, hot.cells / 2, hot.cells / 4]
    assert np.bincount(machines, minlength=4).tolist() == pytest.approx(want, rel=0.1)
    held = Holdings(w, plan, counts=False)
    held.register(plan, np.arange(w.subscriptions))
    queries = held.queries_of_slot(plan)
    assert held.redraw(plan, spread).tolist() == [2 * queries[0], 0, 0, 0], "two more have a copy"
    assert held.redraw(spread, spread.move(hot.id, hot.executor)).tolist() == [0, 0, 0, 0]


def test_moving_queries_costs_time_only_if_the_service_says_so() -> None:
    w = world(spots=())
    free, dear = (
        run(cluster("swarm", w, dataclasses.replace(SETUP, service=dataclasses.replace(SLOW, move_us=us))), w, 450.0)
        for us in (0.0, 10_000.0)
    )
    first = next(i for i, s in enumerate(free) if s.moved)
    assert free[: first + 1] == dear[: first + 1]
    assert free[first + 1].events > dear[first + 1].events


@pytest.mark.parametrize("name", ["over-partitioned", "per-batch-weighed"])
def test_strategies_that_move_queries_at_every_batch_pay_for_them_where_moves_are_dear(name: str) -> None:
    w = world(spots=())
    free, dear = (
        total(run(cluster(name, w, dataclasses.replace(SETUP, service=dataclasses.replace(SLOW, move_us=us))), w, 60.0))
        for us in (0.0, 500.0)
    )
    assert free.moved > 0
    assert dear.events < free.events


def test_planning_is_measured_by_the_clock_that_is_given_and_changes_nothing_in_the_world() -> None:
    w = world(spots=())
    ticks = iter(range(100_000))
    for name in ("swarm", "per-batch", "static-history"):
        plain, timed = (run(cluster(name, w, SETUP, *clock), w, 60.0) for clock in ((), (lambda: float(next(ticks)),)))
        assert plain == timed
        assert sum(s.driver_s for s in plain) == 0
        assert sum(s.driver_s for s in timed) == {"swarm": 4, "per-batch": 60, "static-history": 0}[name]


def test_a_plan_may_run_in_batches_as_well_and_then_its_events_wait_for_them() -> None:
    w = world(spots=())
    setups = (dataclasses.replace(SETUP, batches=batches) for batches in (False, True))
    stream, batches = (run(cluster("static-history", w, setup), w)[-1] for setup in setups)
    assert (stream.wait_ms, batches.wait_ms) == (0.0, 500.0)
    assert batches.events_per_s == pytest.approx(stream.events_per_s, rel=0.1)


def test_events_of_a_shared_partition_go_to_the_executors_in_turn_across_steps() -> None:
    w = world(spots=())
    routing = ByPlan(strategy("replicated").first_plan(GRID, 3))
    cells = w.cells(0, 8)
    batch = RoutingBatch(cells, routing.plan.route(cells), np.ones(8), np.array([1]), 5, np.zeros(3))
    assert routing.route(batch).machines.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert routing.route(batch).machines.tolist() == [2, 0, 1, 2, 0, 1, 2, 0]  # five were sent


def test_tasks_go_to_the_machine_that_is_free_first() -> None:
    plan = strategy("over-partitioned").first_plan(GRID, 1)
    assert len(plan.partitions) == 16
    cells = np.array([p.row0 * GRID.columns + p.col0 for p in plan.partitions[:4]], np.int32)
    routing = ByTask(plan, 2, Service(task_us=0.0))
    work_s = np.array([5.0, 1.0, 1.0, 1.0])
    batch = RoutingBatch(cells, plan.route(cells), work_s, np.ones(16, np.int64), 4, np.array([0.0, 0.5]))
    assert routing.route(batch).machines.tolist() == [0, 1, 1, 1]
    assert routing.route(batch._replace(free_at_s=np.array([9.0, 0.0]))).moved == 1


def test_a_batch_is_routed_by_the_plan_that_its_own_cells_gave_and_moves_are_counted() -> None:
    w = world(spots=())
    kind = PerBatch()
    routing = ByBatch(kind, kind.first_plan(GRID, 4), w, Service(), lambda: 0.0)
    routing.note_changes(np.arange(3000), np.empty(0, np.int64))
    cells = w.cells(0, 4000)
    first = routing.route(
        RoutingBatch(cells, np.empty(0, np.int32), np.ones(4000), np.empty(0, np.int64), 4000, np.zeros(4))
    )
    assert np.bincount(first.machines, minlength=4).max() < 1100
    before = uniform(GRID, 4)
    corner = w.boxes.row0[:3000] * GRID.columns + w.boxes.col0[:3000]
    owners = [p.executor_of_slot[p.route(corner.astype(np.int32))] for p in (before, routing.plan)]
    assert first.moved == np.count_nonzero(owners[0] != owners[1]) > 0


def test_a_round_must_be_whole_steps() -> None:
    w = World(world().workload, GRID, 10, weight=WEIGHT, step_s=2.0)
    with pytest.raises(SettingsError, match="no whole steps of 2 s"):
        cluster("static-uniform", w, SETUP)


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
    live, compared = set(range(3000)), 0
    for step in w.steps(130.0):
        live |= set(step.registered.tolist())
        live -= set(step.cancelled.tolist())
        if step.number in (0, 75, 125):
            compared += 1
            boxes = w.of(np.array(sorted(live)))
            np.testing.assert_array_equal(step.met, density_of(GRID, boxes)[step.cells])
            assert step.queries == len(live)
    assert compared == 3


class Restless:
    """Splits, moves and merges by turns, whatever the load."""

    name = "restless"
    needs_stats = True
    needs_sample = False

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

    def estimate(self, plan: Plan, report: RoundReport) -> float:
        return 0.0  # the coordinator trusts it, and does not ask


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


def test_a_drawn_query_stands_for_many_in_all_that_is_counted() -> None:
    one, many = world(), World(world().workload, GRID, 3000, weight=WEIGHT, query_weight=8)
    worlds = (one, many)
    clusters = [
        Cluster(w, SETUP, "restless", ByPlan(uniform(GRID, 4)), Coordinator(Restless(), trusts=True)) for w in worlds
    ]
    for steps in zip(*(w.steps(150.0) for w in worlds), strict=True):
        assert steps[1].queries == 8 * steps[0].queries
        np.testing.assert_array_equal(steps[1].met, 8 * steps[0].met)
        for c, step in zip(clusters, steps, strict=True):
            c.advance(step)
    single, eight = (c._held for c in clusters)
    assert single is not None
    assert eight is not None
    np.testing.assert_array_equal(8 * single.queries_of_slot(clusters[0].plan), eight.queries_of_slot(clusters[1].plan))
    for i, stat in single.stats.items():
        assert eight.stats[i].trio.q == 8 * stat.trio.q
    assert [s.moved for s in clusters[1].spans] == [8 * s.moved for s in clusters[0].spans]


def test_the_coordinator_hears_two_numbers_from_each_executor_and_tells_routers_what_changed() -> None:
    w = world(spots=())
    spans = run(cluster("swarm", w, SETUP), w, 450.0)
    quiet = {s.coordinator_bytes for s in spans if not s.moved}
    assert 4 * 2 * 8 in quiet
    assert min(s.coordinator_bytes for s in spans if s.moved) > 4 * 2 * 8


@pytest.mark.parametrize(
    ("levels", "rounds", "lowest"),
    [
        ([80] * 20, 0, 1.0),
        ([80] * 8 + [76] * 12, 0, 0.95),
        ([80] * 8 + [40, 50, 75, 76] + [80] * 8, 3, 0.5),
        ([80] * 8 + [40, 80, 20] + [80] * 9, 3, 0.25),  # a single good round is no recovery
        ([80] * 8 + [60, 80, 75] + [80] * 9, 1, 0.75),  # nor is a single weaker one a relapse
        ([80] * 8 + [40] * 12, 12, 0.5),
        ([80] * 8 + [60] + [80] * 8 + [40] * 3, 1, 0.5),  # what falls later is another story, but counts as lowest
    ],
)
def test_a_strategy_has_recovered_when_its_machines_serve_as_much_of_their_time_as_before(
    levels: list[int], rounds: int, lowest: float
) -> None:
    """However many events and queries that is: those of a hotspot may be cheap or dear."""
    spans = [
        Span(15.0 * i, 15.0, 7.0 + i, 15.0 + i, 0.0, 2 * 15 * level / 100, (0.0, 0.0), 0, 0, 1)
        for i, level in enumerate(levels)
    ]
    got = recovery_of(spans, 120.0, 300.0)
    assert (got.rounds, got.from_cold_rounds) == (rounds, 0)
    assert got.lowest == pytest.approx(lowest)
    cold = [dataclasses.replace(spans[0], start_s=15.0 * (i - 5), service_s=1.0) for i in range(5)]
    assert recovery_of([*cold, *spans], 120.0, 300.0).from_cold_rounds == 5


def test_every_strategy_of_the_paper_and_the_issue_can_be_simulated() -> None:
    w = world(spots=())
    assert set(STRATEGY_NAMES) <= set(strategies())
    for name in STRATEGY_NAMES:
        assert run(cluster(name, w, SETUP), w, 30.0)[-1].events > 0


def test_the_service_times_that_made_the_figures_are_found_again() -> None:
    true = Service(base_us=0.7, met_us=0.02, index_us=0.05)
    points = [
        Measurement(indexed, met, float(true.event_s(np.array([met]), indexed)[0] * 1e6))
        for indexed, met in ((1000, 5.0), (50_000, 90.0), (30_000, 10.0), (1_000_000, 700.0))
    ]
    got = fit(points)
    assert (got.base_us, got.met_us, got.index_us) == pytest.approx((0.7, 0.02, 0.05))
    falling = [Measurement(2**k, 10.0, 5.0 - 0.1 * k) for k in range(10)]
    assert fit(falling).index_us == 0.0


def test_the_matcher_is_measured_at_the_density_that_the_events_meet() -> None:
    w = world(spots=())
    got = measure_service(w.workload.base, GRID, 3000, 1.0, 4000, 1)
    cells = w.cells(0, 16_000)[:4000]
    assert got.met == pytest.approx(density_of(GRID, w.of(np.arange(3000)))[cells].mean())
    assert got.indexed == 3000
    assert got.event_us > 0
