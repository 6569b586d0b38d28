"""PS2Stream's machines on a virtual clock: nothing is lost, what moves is paid for, and one seed is one world."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from geoswarm.control.balance.adjust import Ps2Adjusted
from geoswarm.control.layout.hybrid import hybrid
from geoswarm.control.layout.load_model import Costs
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.strategy import Decision, RoundReport, Sample
from geoswarm.core.arrays.jit import Bools
from geoswarm.core.space.change import Change, Divide, Move
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.cut import TermCut
from geoswarm.errors import InputError
from geoswarm.lab.workload.posts import POSTS_PER_CHANGE, Posts
from geoswarm.run.sim.words import Machines, MachinesSetup, in_cells
from geoswarm.run.sim.words_spans import MachinesSpan, figures_of, throughput
from geoswarm.run.sim.words_stream import TextRun, TextScale

US = (-125.0, 24.0, -66.0, 50.0)
GRID = Grid(*US, columns=8, rows=8)
SETUP = MachinesSetup(workers=3, offered_per_s=20_000.0, sample_events=300, sample_queries=400)


def stream(steps: int = 6, seed: int = 1) -> TextRun:
    posts = Posts(seed=seed, country="US", bounds=US, events_per_s=1.0, words=2000)
    return TextRun(
        posts, GRID, TextScale(live=500, query_weight=20, events=300, changes=100), steps, "Q3", interval=200
    )


def test_a_run_has_as_many_posts_for_a_change_as_the_workload() -> None:
    assert TextScale(live=1, query_weight=1, events=1, changes=1).posts_per_change == POSTS_PER_CHANGE


def plan_with_divided_terms() -> Plan:
    """Three workers; the terms of a third of the map are divided."""
    plan = uniform(GRID, 3)
    return in_cells(plan.apply([Divide(plan.partitions[0].id, TermCut.of(4, {}), (0, 1, 2, 0))]))


class Once:
    """Does what it is told in the first round."""

    name, needs_stats, needs_sample = "once", False, False

    def __init__(self, *changes: Change, fresh: Plan | None = None) -> None:
        self.changes, self.fresh = changes, fresh

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        return uniform(grid, executors)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        return Decision(self.changes, {}, self.fresh) if report.round == 1 else Decision()

    def estimate(self, plan: Plan, report: RoundReport) -> float:
        return 0.0


def slow_entries(world: TextRun, step: int) -> dict[int, float]:
    """By event: entries of lists that it is compared with, counted one by one from texts and rectangles."""
    at = world.step(step)
    alive = set(range(world.scale.live))
    for number in range(step + 1):
        alive |= set(world.step(number).inserted.tolist())
        if number < step:
            alive -= set(world.step(number).deleted.tolist())
    text, found = world.text, {}
    boxes = np.stack(text.boxes, axis=1)
    for event in at.events.tolist():
        said = set(text.said.terms[text.said.offsets[event] : text.said.offsets[event + 1]].tolist())
        row, column, entries = text.rows[event], text.columns[event], 0
        for query in alive:
            row0, col0, row1, col1 = boxes[query]
            if row0 <= row <= row1 and col0 <= column <= col1:
                posted = text.postings.terms[text.postings.offsets[query] : text.postings.offsets[query + 1]]
                entries += len(said & set(posted.tolist()))
        found[event] = float(entries)
    return found


@pytest.mark.parametrize(
    "plan", [in_cells(uniform(GRID, 3)), plan_with_divided_terms()], ids=["by space", "by space and terms"]
)
def test_all_work_is_done_whatever_the_plan(plan: Plan) -> None:
    world = stream()
    costs = Costs(c1_check=1.0, c2_event=0.0, c3_insertion=0.0, c4_deletion=0.0, c3_entry=0.0)
    machines = Machines(world, plan, None, replace(SETUP, costs=costs))
    for number in range(3):
        span = machines.step(number)
        want = sum(slow_entries(world, number).values()) * world.scale.query_weight * world.scale.event_weight * 1e-6
        assert span.busy_s.sum() == pytest.approx(want)


def test_a_query_that_comes_costs_by_its_entries_wherever_they_are() -> None:
    world = stream()
    costs = Costs(c1_check=0.0, c2_event=0.0, c3_insertion=0.0, c4_deletion=0.0, c3_entry=2.0)
    inserted, of = world.step(0).inserted, world.of_queries
    entries = int((of.offsets[inserted + 1] - of.offsets[inserted]).sum())
    for plan in (in_cells(uniform(GRID, 3)), plan_with_divided_terms()):
        span = Machines(world, plan, None, replace(SETUP, costs=costs)).step(0)
        assert span.busy_s.sum() == pytest.approx(entries * 2e-6 * world.scale.query_weight)


def test_copies_and_dropped_events_are_counted() -> None:
    world = stream()
    whole, shared = (
        Machines(world, plan, None, SETUP).step(0) for plan in (in_cells(uniform(GRID, 3)), plan_with_divided_terms())
    )
    assert whole.copies == 0 < shared.copies
    silent = sum(entries == 0 for entries in slow_entries(world, 0).values()) * world.scale.event_weight
    assert whole.dropped == pytest.approx(silent)
    assert shared.dropped == pytest.approx(silent)


def test_a_cell_that_moves_takes_its_queries_along_and_its_events_wait() -> None:
    world, plan = stream(), in_cells(uniform(GRID, 3))
    quiet = Machines(world, plan, Once(), SETUP)
    spans = quiet.run()
    busiest = int(np.argmax(np.bincount(world.cell_of_list[world.of_queries.terms])))
    part = plan.partitions[plan.slot_of_cell[busiest]]
    to = (part.executor + 1) % 3
    machines = Machines(world, plan, Once(Move(part.id, to)), replace(SETUP, bytes_per_s=20_000.0))
    moved = machines.run()
    assert moved[0].moved_bytes == 0  # decided after the first step
    alive = np.flatnonzero(_alive_after(world, 1))
    lists = world.of_queries
    there = [q for q in alive if busiest in world.cell_of_list[lists.terms[lists.offsets[q] : lists.offsets[q + 1]]]]
    assert moved[1].moved_queries == len(there) * world.scale.query_weight
    assert moved[1].moved_bytes == world.query_bytes[there].sum() * world.scale.query_weight
    assert moved[1].cells == 1
    assert moved[1].migration_s == pytest.approx(moved[1].moved_bytes / 20_000.0)
    assert moved[1].latency[2] > spans[1].latency[2] == 0  # who waits for the cell waits for more than a second
    assert sum(span.moved_bytes for span in moved[2:]) == 0
    assert moved[3].busy_s[to] > spans[3].busy_s[to]
    assert moved[3].busy_s.sum() == pytest.approx(spans[3].busy_s.sum(), rel=0.05)


def _alive_after(world: TextRun, steps: int) -> Bools:
    alive = np.zeros(world.count, np.bool_)
    alive[: world.scale.live] = True
    for number in range(steps):
        alive[world.step(number).inserted] = True
        alive[world.step(number).deleted] = False
    return alive


def test_two_plans_are_in_force_until_the_older_one_has_drained() -> None:
    world = stream(steps=16)
    thirds = uniform(GRID, 3)
    fresh = thirds.apply([Move(p.id, (p.executor + 1) % 3) for p in thirds.partitions])
    machines = Machines(world, plan_with_divided_terms(), Once(fresh=replace(fresh, epoch=0)), SETUP)
    spans = machines.run()
    shares = [span.old_share for span in spans]
    assert shares[0] == 0.0
    assert shares[1] > 0.5
    assert shares == sorted(shares[:1]) + sorted(shares[1:], reverse=True)  # no query comes under the older plan
    drained = shares.index(0.0, 1)
    assert 2 < drained < 15
    moves = [number for number, span in enumerate(spans) if span.moved_bytes]
    assert moves == [drained]  # and what was left was migrated once
    assert spans[drained].moved_queries <= SETUP.old_share_min * 1.5 * 500 * 20 * 9
    assert spans[2].copies > 0  # events go to both
    costs = Costs(c1_check=1.0, c2_event=0.0, c3_insertion=0.0, c4_deletion=0.0)
    both, one = (
        Machines(world, plan, strategy, replace(SETUP, costs=costs, move_us=0.0)).run()
        for plan, strategy in (
            (plan_with_divided_terms(), Once(fresh=replace(fresh, epoch=0))),
            (in_cells(uniform(GRID, 3)), None),
        )
    )
    assert [s.busy_s.sum() for s in both] == pytest.approx(
        [s.busy_s.sum() for s in one]
    )  # each match is looked for once


def test_a_worker_that_cannot_keep_up_makes_tuples_wait() -> None:
    world, plan = stream().standing_for(2000), in_cells(uniform(GRID, 3))
    idle = Machines(world, plan, None, SETUP)
    spans = idle.run()
    most = throughput(spans)
    slow, fast = (
        figures_of(Machines(world, plan, None, replace(SETUP, offered_per_s=share * most)).run())
        for share in (0.5, 3.0)
    )
    assert slow["below_100ms_pct"] > 99
    assert fast["above_1s_pct"] > 10
    assert slow["tuples_per_s"] == fast["tuples_per_s"] == most  # at saturation, whatever is offered


def test_adjustment_lowers_the_bottleneck_and_one_seed_is_one_world() -> None:
    world = stream(steps=10)
    costs = SETUP.sample_costs(world.scale)

    def run() -> list[MachinesSpan]:
        strategy = Ps2Adjusted(costs=costs, query_weight=25.0, layout=partial(hybrid, costs=costs))
        return Machines(world, in_cells(uniform(GRID, 3)), strategy, SETUP).run()

    adjusted, again = run(), run()
    assert [span.busy_s.tolist() for span in adjusted] == [span.busy_s.tolist() for span in again]
    assert [span.latency.tolist() for span in adjusted] == [span.latency.tolist() for span in again]
    never = Machines(world, in_cells(uniform(GRID, 3)), None, SETUP).run()
    assert throughput(adjusted[3:]) > 1.1 * throughput(never[3:])


def test_forks_go_on_from_the_same_queries_each_with_its_own_plan() -> None:
    world, plan = stream(), in_cells(uniform(GRID, 3))
    machines = Machines(world, plan, Once(Move(0, 2)), SETUP)
    machines.run(0, 2)
    first, second = machines.fork(None), machines.fork(Once(Move(1, 2)))
    assert first.run(2, 4)[0].busy_s.tolist() == second.run(2, 4)[0].busy_s.tolist()
    assert first.plan == machines.plan != second.plan
    fresh = Machines(world, plan, Once(fresh=uniform(GRID, 3)), SETUP)
    fresh.run(0, 1)
    with pytest.raises(InputError, match="two plans"):
        fresh.fork(None)


def test_the_same_draws_can_stand_for_more_queries() -> None:
    world = stream()
    more = world.standing_for(200)
    assert more.text is world.text
    one, ten = (Machines(w, in_cells(uniform(GRID, 3)), None, SETUP).step(0) for w in (world, more))
    assert ten.tuples == pytest.approx(10 * one.tuples)
    assert ten.busy_s.sum() > 10 * one.busy_s.sum()  # longer lists, too
