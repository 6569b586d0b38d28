"""`auto` in tables: the work of each cell in, the work of each executor out, in one round."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from control.law_worlds import Queries
from geoswarm.control.balance.auto import AIM, PARTITIONS_MAX, TOLERATED, Auto, AutoPlaces, fit_costs, work_by_cell
from geoswarm.control.coordinator import Coordinator, RoundOutcome
from geoswarm.control.layout.dealt import dealt
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.loop import ControlLoop
from geoswarm.control.registry import strategies
from geoswarm.control.strategy import RoundReport, Sample
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.change import Divide, Merge, Move, Split, Spread
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.cell_counts import CellCounts
from geoswarm.core.text.cut import TermCut
from geoswarm.flow.observe import Load, LoadReport

EVENT_US = 1000
"""What an event takes, so that rounding does not matter."""


def plan_of(rows: int, columns: int, *owners: Sequence[int], executors: int | None = None) -> Plan:
    """One partition for each cell of a grid, with its turns."""
    grid = Grid(0.0, 0.0, 1.0, 1.0, columns=columns, rows=rows)
    cells = [divmod(i, columns) for i in range(len(owners))]
    parts = [
        Partition(i, row, column, row, column, turns[0], others=tuple(turns[1:]))
        for i, ((row, column), turns) in enumerate(zip(cells, owners, strict=True))
    ]
    return Plan(0, grid, executors or max(max(turns) for turns in owners) + 1, tuple(parts), len(parts))


def report_of(plan: Plan, events_of_cell: npt.ArrayLike) -> RoundReport:
    """A round in which every event took the same time. No cell has a subscription."""
    events = np.asarray(events_of_cell, np.float64).ravel()
    load = LoadReport()
    for slot, count in enumerate(np.bincount(plan.slot_of_cell, events, minlength=len(plan.partitions)).tolist()):
        load.add(
            plan.partitions[slot].id, plan.partitions[slot].executor, Load(int(count), 0, 0, int(EVENT_US * count))
        )
    cells = np.flatnonzero(events)
    load.cells = CellCounts(cells, events[cells], np.zeros(len(cells)))
    return RoundReport(1, 0.0, load, {})


def loads(plan: Plan, events_of_cell: npt.ArrayLike) -> Floats:
    of_slot = np.bincount(plan.slot_of_cell, np.asarray(events_of_cell).ravel(), minlength=len(plan.partitions))
    return plan.by_executor(of_slot)


def decide(plan: Plan, events_of_cell: npt.ArrayLike) -> tuple[RoundOutcome, Plan]:
    outcome = Coordinator(AutoPlaces()).decide(plan, report_of(plan, events_of_cell))
    assert outcome.entry.outcome in ("applied", "kept"), outcome.entry
    return outcome, outcome.plan or plan


@pytest.mark.parametrize(
    ("owners", "events", "kinds", "after"),
    [
        # level enough: nothing happens
        ([[0], [1], [2], [3]], [100, 104, 96, 100], set(), [100, 104, 96, 100]),
        # a whole partition fits
        ([[0], [0], [1], [1]], [100, 100, 0, 0], {Move}, [100, 100]),
        # a single cell has everything: it is dealt out
        ([[0], [1], [2], [3]], [400, 0, 0, 0], {Spread}, [100, 100, 100, 100]),
        # half of the work in one cell; the others are level again beside it
        ([[0], [1], [2], [3]], [400, 200, 100, 100], {Spread, Move}, [200, 200, 200, 200]),
        # what was spread has cooled
        ([[0, 1, 2, 3], [1], [2], [3]], [0, 300, 0, 0], {Move, Spread}, [75, 75, 75, 75]),
        # new executors have nothing yet
        ([[0], [0], [1], [1]], [100, 100, 100, 100], {Move}, [100, 100, 100, 100]),
    ],
)
def test_one_round_levels(owners: list[list[int]], events: list[int], kinds: set[type], after: list[int]) -> None:
    plan = plan_of(2, 2, *owners, executors=len(after))
    outcome, drawn = decide(plan, events)
    assert {type(change) for change in outcome.entry.changes} <= kinds
    assert sorted(loads(drawn, events).tolist()) == pytest.approx(sorted(after), rel=0.05)


def test_a_crowd_where_nobody_subscribes_is_cut_at_once() -> None:
    """Eight executors, four fifths of the events in a corner: SWARM by N and Q has nothing to cut by there."""
    plan = uniform(Grid(0.0, 0.0, 1.0, 1.0, columns=40, rows=40), 8)
    events = np.full((40, 40), 1)
    events[:8, :8] += 100
    outcome, drawn = decide(plan, events)
    assert loads(plan, events).max() / loads(plan, events).mean() > 5
    assert Split in {type(change) for change in outcome.entry.changes}
    assert loads(drawn, events).max() / loads(drawn, events).mean() < TOLERATED
    assert outcome.entry.why["busiest_after"] == pytest.approx(loads(drawn, events).max() / loads(drawn, events).mean())


def test_a_hot_cell_among_others_is_no_limit() -> None:
    plan = uniform(Grid(0.0, 0.0, 1.0, 1.0, columns=30, rows=30), 16)
    events = np.full((30, 30), 10)
    events[17, 4] = 9000  # half of all
    _, drawn = decide(plan, events)
    assert loads(drawn, events).max() / loads(drawn, events).mean() < TOLERATED
    hot = drawn.partitions[drawn.slot_of_cell[17 * 30 + 4]]
    assert len(hot.owners) >= 8


def test_partitions_are_merged_before_they_are_too_many() -> None:
    rng, executors = np.random.default_rng(1), 6
    plan, strategy = uniform(Grid(0.0, 0.0, 1.0, 1.0, columns=40, rows=40), executors), AutoPlaces()
    coordinator, kinds, most = Coordinator(strategy), set[type](), 0.0
    for number in range(300):
        if number % 6 == 0:
            spot = rng.integers(0, 30, 2)
        events = rng.poisson(2.0, (40, 40))
        events[spot[0] : spot[0] + 6, spot[1] : spot[1] + 6] += 60
        report = replace(report_of(plan, events), round=number)
        outcome = coordinator.decide(plan, report)
        assert outcome.entry.outcome != "refused", outcome.entry.reason
        kinds |= {type(change) for change in outcome.entry.changes}
        plan = outcome.plan or plan
        if number % 6 >= 2:  # two rounds after it has moved
            assert loads(plan, events).max() / loads(plan, events).mean() < 1.1
        most = max(most, len(plan.partitions) / executors)
    assert kinds >= {Merge, Split, Move}
    assert most <= PARTITIONS_MAX + 2


def test_more_executors_than_work_is_said_and_nothing_is_tried_for_ever() -> None:
    plan = plan_of(2, 2, [0], [1], [2], [3], executors=4)
    outcome, drawn = decide(plan, [0, 0, 0, 0])
    assert outcome.plan is None
    assert drawn is plan


def test_the_first_plan_is_as_level_as_its_sample() -> None:
    rng = np.random.default_rng(3)
    points = np.concatenate([rng.random((2000, 2)), 0.2 + 0.1 * rng.random((8000, 2))])
    grid = Grid(0.0, 0.0, 1.0, 1.0, columns=100, rows=100)
    plan = AutoPlaces().first_plan(grid, 12, Sample(points, np.empty((0, 4))))
    events = np.bincount(grid.locate(*np.ascontiguousarray(points.T)), minlength=grid.cells)
    assert loads(plan, events).max() / loads(plan, events).mean() < 1.1
    assert AutoPlaces().first_plan(grid, 12, None).partitions == uniform(grid, 12).partitions


def test_costs_are_those_that_explain_the_times_and_none_is_negative() -> None:
    def fitted(*parts: tuple[int, int, int]) -> tuple[float, float]:
        return fit_costs(LoadReport({i: Load(n, 0, m, us) for i, (n, m, us) in enumerate(parts)}))

    assert fitted((100, 0, 200), (100, 50, 350)) == pytest.approx((2.0, 3.0))
    assert fitted((100, 100, 200), (200, 400, 400)) == pytest.approx((2.0, 0.0), abs=0.01)
    assert fitted((100, 10, 10), (200, 20, 20))[0] >= 0
    assert fitted() == (1.0, 0.0)


def test_work_is_where_events_fell_and_a_partition_that_was_not_sampled_has_it_in_its_middle() -> None:
    plan = uniform(Grid(0.0, 0.0, 1.0, 1.0, columns=4, rows=4), 2)
    report = report_of(plan, np.eye(4))
    cells = work_by_cell(plan, report.load)
    assert cells.work.sum() == pytest.approx(4 * EVENT_US)
    assert sorted(zip(cells.rows.tolist(), cells.columns.tolist(), strict=True)) == [(i, i) for i in range(4)]
    report.load.cells = CellCounts.none()
    assert work_by_cell(plan, report.load).work.tolist() == [2 * EVENT_US, 2 * EVENT_US]
    assert AIM < TOLERATED


def test_a_plan_that_is_too_far_off_for_changes_is_drawn_afresh() -> None:
    """Everything is with one of 40 executors, in more partitions than there are steps for."""
    plan = plan_of(60, 60, *[[0]] * 3600, executors=40)
    events = np.random.default_rng(2).integers(1, 50, 3600)
    outcome, drawn = decide(plan, events)
    assert (outcome.entry.decision, outcome.entry.changes) == ("fresh plan", ())
    assert loads(drawn, events).max() / loads(drawn, events).mean() < TOLERATED
    assert "a fresh plan should bring it to 1.0" in str(outcome.entry.why["sentence"])


def test_a_round_says_what_was_done_and_why() -> None:
    outcome, _ = decide(plan_of(2, 2, [0], [1], [2], [3]), [400, 0, 0, 0])
    had = "the costliest executor had"
    assert outcome.entry.why["sentence"] == f"{had} 4.00 times the mean; 1 spread should bring it to 1.00"
    assert "warning" not in outcome.entry.why
    outcome, _ = decide(plan_of(2, 2, [0], [1], [2], [3]), [100, 101, 99, 100])
    assert outcome.entry.why["sentence"] == f"{had} 1.01 times the mean, which is level enough"


def test_new_executors_have_work_at_once_and_nothing_waits_for_another_round() -> None:
    grid = Grid(0.0, 0.0, 1.0, 1.0, columns=20, rows=20)
    events, first = np.full(400, 5), uniform(grid, 4)
    loop = ControlLoop(AutoPlaces(), replace(first, drawn_by="auto"), 10.0, Queries())
    loop.add_batch([], [], LoadReport(), 0.0)
    loop.add_batch([], [], report_of(first, events).load, 11.0)
    for executors in (9, 3):
        outcome = loop.scale(executors)
        assert outcome.plan is not None
        assert outcome.plan.epoch == outcome.entry.epoch + 1
        spent = loads(outcome.plan, events)
        assert len(spent) == executors
        assert spent.max() / spent.mean() < TOLERATED


def test_a_plan_of_another_strategy_is_kept_if_no_terms_are_divided() -> None:
    plan = plan_of(2, 2, [0], [1, 0], [1], [0])
    assert AutoPlaces().keeps(plan)
    assert Auto().keeps(plan)
    assert not AutoPlaces().keeps(dealt(plan.grid, 4)), "it wants places"
    assert Auto().keeps(dealt(plan.grid, 4))
    assert not strategies()["swarm-measured"]().keeps(plan)  # type: ignore[attr-defined]
    divided = plan.apply([Divide(0, TermCut.of(2, {}), (0, 1))])
    assert not AutoPlaces().keeps(divided)


def test_a_single_noisy_round_changes_little_and_a_step_is_followed_at_once() -> None:
    """The same load with noise, round after round: `auto` settles. Then everything moves, and two rounds are enough."""
    rng, executors = np.random.default_rng(4), 8
    plan, coordinator = uniform(Grid(0.0, 0.0, 1.0, 1.0, columns=40, rows=40), executors), Coordinator(AutoPlaces())
    calm, moved = rng.integers(1, 60, (2, 40, 40))
    calm[:10], moved[25:] = calm[:10] * 9, moved[25:] * 9
    applied = list[int]()
    for number in range(30):
        load = calm if number < 20 else moved
        outcome = coordinator.decide(plan, replace(report_of(plan, rng.poisson(load)), round=number))
        plan = outcome.plan or plan
        if outcome.plan is not None:
            applied.append(number)
        spent = loads(plan, load)
        if number > 2 and number != 20:
            assert spent.max() / spent.mean() < 1.1, number
    assert 20 in applied
    assert len([number for number in applied if 3 <= number < 20]) <= 3, applied


def test_a_round_ends_at_once_where_a_batch_is_far_off_and_not_again_if_that_did_not_help() -> None:
    grid = Grid(0.0, 0.0, 1.0, 1.0, columns=20, rows=20)
    first, flat, hot = uniform(grid, 4), np.full(400, 30), np.full(400, 20)
    hot[0] = 20_000
    loop = ControlLoop(AutoPlaces(), replace(first, drawn_by="auto"), 100.0, Queries())
    assert loop.add_batch([], [], report_of(first, hot).load, 0.0) is None, "workers start in the first one"
    for second in (1.0, 2.0, 3.0):
        assert loop.add_batch([], [], report_of(loop.plan, flat).load, second) is None, "nothing is wrong"
    outcome = loop.add_batch([], [], report_of(loop.plan, hot).load, 4.0)
    assert outcome is not None
    assert outcome.plan is not None
    assert loads(loop.plan, hot).max() / loads(loop.plan, hot).mean() < TOLERATED, "by this batch alone"
    few = report_of(loop.plan, (np.arange(400) == 399) * 1500).load
    assert loop.add_batch([], [], few, 5.0) is None, "a few events say nothing"
    static = ControlLoop(strategies()["swarm-measured"](), first, 100.0, Queries())
    static.add_batch([], [], LoadReport(), 0.0)
    assert static.add_batch([], [], report_of(first, hot).load, 4.0) is None, "which levels a pair a round"
