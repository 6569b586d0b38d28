"""`auto` while subscriptions are few: who gets how many turns, and when executors get places instead."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from control.law_worlds import Queries
from geoswarm.control.balance.auto import Auto
from geoswarm.control.balance.dealing import EVENTS_MIN, TURNS
from geoswarm.control.coordinator import Coordinator
from geoswarm.control.layout.dealt import dealt, is_dealt
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.loop import ControlLoop
from geoswarm.control.strategy import RoundReport, Sample, WatchedRound, watch_places
from geoswarm.core.space.change import TURNS_MAX
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.cell_counts import CellCounts
from geoswarm.flow.observe import Load, LoadReport
from geoswarm.guard.sensing import triggers

GRID = Grid(0.0, 0.0, 1.0, 1.0, columns=20, rows=20)
FEW, MOST = 500, 1000


def report_of(plan: Plan, slowness: Sequence[float], subscriptions: int, events: int = 6000) -> RoundReport:
    """A round with events in a corner, dealt out by turns, on executors that take so long for each."""
    load, turns = LoadReport(events_in=events), plan.partitions[0].turns
    for executor in plan.partitions[0].owners:
        mine = events * turns.count(executor) // len(turns)
        load.add(plan.partitions[0].id, executor, Load(mine, 0, 0, int(mine * slowness[executor] * 100)))
    cells = np.arange(20)
    load.cells = CellCounts(cells, np.full(20, events / 20), np.zeros(20))
    return RoundReport(1, 0.0, load, {}, subscriptions=subscriptions)


def turns_after(slowness: Sequence[float], rounds: int, events: int = 6000) -> list[int]:
    """How many turns each executor has in the end."""
    coordinator, plan = Coordinator(Auto()), dealt(GRID, len(slowness))
    for _ in range(rounds):
        outcome = coordinator.decide(plan, report_of(plan, slowness, FEW, events))
        assert outcome.entry.outcome in ("kept", "applied"), outcome.entry
        plan = outcome.plan or plan
    return [plan.partitions[0].turns.count(executor) for executor in range(len(slowness))]


@pytest.mark.parametrize(
    ("slowness", "turns"),
    [
        ([1.0, 1.0, 1.0], [1, 1, 1]),
        ([1.0, 1.1, 0.9], [1, 1, 1]),  # as chance has it
        ([1.0, 1.0, 2.0], [TURNS, TURNS, TURNS // 2]),
        ([4.0, 1.0, 1.0], [TURNS // 4, TURNS, TURNS]),
        ([1.0, 1.0, 1000.0], [TURNS, TURNS, 1]),
        ([1.0], [1]),
    ],
)
def test_slow_executors_get_fewer_turns(slowness: list[float], turns: list[int]) -> None:
    assert turns_after(slowness, 12) == turns


def test_a_round_of_few_events_says_nothing_of_speed() -> None:
    assert turns_after([1.0, 3.0], 12, events=2 * EVENTS_MIN - 2) == [1, 1]


def test_turns_go_back_once_an_executor_is_fast_again() -> None:
    coordinator, plan = Coordinator(Auto()), dealt(GRID, 22)
    seen = set[int]()
    for slow in (20.0,) * 8 + (1.0,) * 20:
        report = report_of(plan, [1.0] * 21 + [slow], FEW, events=44_000)
        plan = coordinator.decide(plan, report).plan or plan
        seen.add(len(plan.partitions[0].turns))
    assert max(seen) > 22
    assert plan.partitions[0].turns == tuple(range(22))


def test_an_executor_that_is_slow_once_keeps_its_turn_and_so_do_those_that_differ_by_chance() -> None:
    rng, coordinator, plan = np.random.default_rng(1), Coordinator(Auto()), dealt(GRID, 8)
    for number in range(40):
        slowness = rng.normal(1.0, 0.08, 8).tolist()
        slowness[3] *= 9.0 if number == 5 else 1.0
        assert coordinator.decide(plan, report_of(plan, slowness, FEW)).plan is None


@pytest.mark.parametrize(
    ("rounds", "changes"),
    [
        ([[2.0, 1.0, 1.1, 0.9], [1.9, 1.1, 0.9, 1.0], [2.1, 1.0, 1.0, 1.1]], True),
        ([[1.0, 0.5, 1.0, 1.0], [1.1, 0.5, 1.0, 0.9], [0.9, 0.5, 1.1, 1.0]], True),  # one is fast
        ([[2.0, 2.0, 1.0, 1.0], [2.1, 1.9, 1.0, 1.1], [2.0, 2.0, 1.1, 0.9]], True),  # half of them are slow
        ([[3.0, 1.0, 1.0, 1.0], [1.0, 3.0, 1.0, 1.0], [1.0, 1.0, 3.0, 1.0]], False),  # another one each time
        ([[3.0, 1.0, 1.0, 1.0], [0.9, 1.0, 1.1, 1.0], [9.0, 1.0, 1.0, 1.0]], False),  # as fast as others once
        ([[2.0, 1.5, 0.7, 0.7], [2.0, 0.7, 1.5, 0.8], [2.0, 0.7, 0.7, 1.6]], True),  # no other is ever as slow
        ([[2.5, 1.0, 3.0, 1.0], [2.6, 3.0, 1.0, 1.0], [2.5, 1.0, 1.0, 3.0]], False),  # another one is slower each time
        ([[3.0, 1.0, 1.0, 0.9], [1.0, 3.0, 1.0, 0.9], [1.0, 1.0, 3.0, 0.9]], False),  # nor is one fast that had no turn
        ([[1.5, 1.0, 2.2, 1.0], [1.6, 2.2, 1.0, 1.0], [1.5, 1.0, 1.0, 2.2]], False),
    ],
)
def test_turns_change_if_the_same_executor_stands_out_in_each_round(rounds: list[list[float]], changes: bool) -> None:
    coordinator, plan, plans = Coordinator(Auto()), dealt(GRID, 4), list[Plan]()
    for slowness in rounds:
        outcome = coordinator.decide(plan, report_of(plan, slowness, FEW))
        plans += [outcome.plan] if outcome.plan else []
    assert len(plans) == changes
    assert not plans or plans[0].partitions[0].turns != plan.partitions[0].turns


def test_thousands_of_executors_have_no_more_turns_than_a_partition_may() -> None:
    slowness = [3.0] + [1.0] * 599
    coordinator, plan = Coordinator(Auto()), dealt(GRID, 600)
    for _ in range(6):
        outcome = coordinator.decide(plan, report_of(plan, slowness, FEW, events=600_000))
        assert outcome.entry.outcome in ("kept", "applied"), outcome.entry
        plan = outcome.plan or plan
    assert len(plan.partitions[0].turns) <= TURNS_MAX


def test_a_batch_that_is_far_off_ends_no_round_while_events_are_dealt_out() -> None:
    loop = ControlLoop(Auto(), replace(dealt(GRID, 4), drawn_by="auto"), 100.0, Queries())
    loop.add_batch([], [], LoadReport(), 0.0)
    assert loop.add_batch([], [], report_of(loop.plan, [1.0, 1.0, 1.0, 9.0], FEW).load, 1.0) is None


def test_after_a_restart_slow_executors_keep_their_turns() -> None:
    plan, slowness = dealt(GRID, 3, (0,) * TURNS + (1,) * TURNS + (2,)), [1.0, 1.0, 8.0]
    for _ in range(3):
        outcome = Coordinator(Auto()).decide(plan, report_of(plan, slowness, FEW))  # one that has seen nothing
        assert outcome.plan is None


def test_dealt_out_up_to_a_number_of_subscriptions_and_back_at_half_of_it() -> None:
    coordinator, plan = Coordinator(Auto(deal_max=MOST)), dealt(GRID, 4)
    told = list[tuple[bool, str]]()
    for subscriptions in (0, MOST, MOST + 1, MOST, MOST // 2 + 1, MOST // 2):
        report = report_of(plan, [1.0] * 4, subscriptions) if is_dealt(plan) else _places_report(plan, subscriptions)
        outcome = coordinator.decide(plan, report)
        assert outcome.entry.outcome in ("kept", "applied"), outcome.entry
        plan = outcome.plan or plan
        told.append((is_dealt(plan), outcome.entry.decision))
    assert told[:3] == [(True, "wait"), (True, "wait"), (False, "places")]
    assert [dealt_out for dealt_out, _ in told[3:]] == [False, False, True]
    assert told[-1][1] == "deal out"


def _places_report(plan: Plan, subscriptions: int) -> RoundReport:
    load, cells = LoadReport(), np.arange(20)
    slots = np.bincount(plan.slot_of_cell[cells], minlength=len(plan.partitions))
    for part, count in zip(plan.partitions, slots.tolist(), strict=True):
        load.add(part.id, part.executor, Load(count, 0, 0, 100 * count))
    load.cells = CellCounts(cells, np.ones(20), np.zeros(20))
    return RoundReport(1, 0.0, load, {}, subscriptions=subscriptions)


def test_cells_are_counted_only_where_someone_looks_at_them() -> None:
    auto, plan = Auto(deal_max=MOST), dealt(GRID, 4)
    coordinator = Coordinator(auto)
    coordinator.decide(plan, report_of(plan, [1.0] * 4, FEW))
    assert [auto.reads_cells] == [False]
    assert isinstance(watched := watch_places(Auto()), Auto)
    assert watched.reads_cells
    blind = report_of(plan, [1.0] * 4, MOST + 1)  # many subscriptions at once
    blind.load.cells = CellCounts.none()
    outcome = coordinator.decide(plan, blind)
    assert (outcome.plan, outcome.entry.decision) == (None, "wait: cells are counted from now on")
    assert [auto.reads_cells] == [True]
    drawn = coordinator.decide(plan, report_of(plan, [1.0] * 4, MOST + 1)).plan
    assert drawn is not None
    assert not is_dealt(drawn)


def test_places_that_replace_dealing_are_level_at_once() -> None:
    plan = dealt(GRID, 4)
    drawn = Coordinator(Auto(deal_max=MOST)).decide(plan, report_of(plan, [1.0] * 4, MOST + 1)).plan
    assert drawn is not None
    of_slot = np.bincount(drawn.slot_of_cell[:20], minlength=len(drawn.partitions))
    assert drawn.by_executor(of_slot).max() == 5


def test_the_first_plan_counts_what_a_sample_stands_for() -> None:
    points, rects = np.random.default_rng(0).random((50, 2)), np.tile([0.1, 0.1, 0.2, 0.2], (10, 1))
    auto = Auto(deal_max=MOST)
    assert is_dealt(auto.first_plan(GRID, 3, Sample(points, rects, weight=MOST / 10)))
    assert not is_dealt(auto.first_plan(GRID, 3, Sample(points, rects, weight=MOST / 10 + 1)))


@pytest.mark.parametrize("guarded", [False, True])
def test_with_guard_the_place_is_named_that_would_have_made_a_plan_change(guarded: bool) -> None:
    auto = watch_places(Auto()) if guarded else Auto()
    plan, watched = dealt(GRID, 4), list[WatchedRound | None]()
    for hot in (0, 0, 5, 5):
        report = report_of(plan, [1.0] * 4, FEW)
        events = np.full(400, 10.0)
        events[[211, 212, 231, 232]] += hot * 100  # rows 10 and 11, columns 11 and 12
        report.load.cells = CellCounts(np.arange(400), events, np.zeros(400))
        watched.append(Coordinator(auto).decide(plan, report).watched)
    if not guarded:
        assert watched == [None] * 4
        return
    assert [round_ is not None for round_ in watched[:3]] == [False, False, True]
    assert watched[2] is not None
    places = {p.id: p for p in watched[2].plan.partitions}
    examined = [places[i] for i in triggers(*watched[2])]
    assert any(p.row0 <= 10 <= p.row1 and p.col0 <= 11 <= p.col1 for p in examined)


def test_a_world_of_one_cell_is_left_to_all_where_nothing_is_to_be_dealt_out() -> None:
    cell = Grid(0.0, 0.0, 1.0, 1.0, columns=1, rows=1)
    plan = dealt(cell, 3)
    report = report_of(plan, [1.0] * 3, FEW)
    report.load.cells = CellCounts(np.zeros(1, np.int64), np.full(1, 6000.0), np.zeros(1))
    outcome = Coordinator(Auto(deal_max=0)).decide(plan, report)
    assert outcome.plan is None, "no plan is drawn that is the same again"


def test_executors_that_come_and_go_have_turns_at_once() -> None:
    loop = ControlLoop(Auto(), replace(uniform(GRID, 4), drawn_by="auto"), 10.0, Queries())
    loop.add_batch([], [], LoadReport(), 0.0)
    loop.add_batch([], [], _places_report(loop.plan, FEW).load, 11.0)
    assert loop.plan.partitions[0].turns == (0, 1, 2, 3)
    for executors in (9, 1, 3):  # also from one, which has the whole map in any plan
        outcome = loop.scale(executors)
        assert outcome.plan is not None
        assert outcome.plan.partitions[0].turns == tuple(range(executors))
