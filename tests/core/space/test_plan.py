"""A plan covers each cell once, whatever is split, moved and merged, or it is refused and says why."""

import json
import pickle
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.change import Change, Merge, Move, Split, Spread
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Axis, Partition
from geoswarm.core.space.plan import Plan
from geoswarm.errors import PlanError

UNHURRIED = settings(deadline=None)  # the first example may wait for a kernel to be compiled
GRID = Grid(-180.0, -90.0, 180.0, 90.0, columns=10, rows=8)
WHOLE = Plan(0, GRID, 4, (Partition(0, 0, 0, 7, 9, 0),), 1)
QUARTERS = WHOLE.split(0, "row", 3, (0, 1)).apply([Split(1, "column", 4, (0, 1)), Split(2, "column", 4, (2, 3))])
#   3 4
#   5 6


def neighbours(plan: Plan) -> list[tuple[int, int]]:
    """Pairs that form a rectangle."""
    pairs = []
    for a in plan.partitions:
        for b in plan.partitions:
            beside = (a.row0, a.row1, a.col1 + 1) == (b.row0, b.row1, b.col0)
            below = (a.col0, a.col1, a.row1 + 1) == (b.col0, b.col1, b.row0)
            if beside or below:
                pairs.append((a.id, b.id))
    return pairs


@st.composite
def histories(draw: st.DrawFn) -> list[Plan]:
    rows, columns = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    executors = draw(st.integers(1, 5))
    plan = Plan(0, replace(GRID, rows=rows, columns=columns), executors,
                (Partition(0, 0, 0, rows - 1, columns - 1, 0),), 1)  # fmt: skip
    past = [plan]
    owner = st.integers(0, executors - 1)
    for _ in range(draw(st.integers(1, 25))):
        p = draw(st.sampled_from(plan.partitions))
        pairs = neighbours(plan)
        deed = draw(st.sampled_from(["row", "column", "row", "column", "move", "merge", "spread"]))
        if deed == "merge" and pairs:
            plan = plan.merge(draw(st.sampled_from(pairs)), draw(owner))
        elif deed == "row" and p.row0 < p.row1:
            plan = plan.split(p.id, "row", draw(st.integers(p.row0, p.row1 - 1)), (draw(owner), draw(owner)))
        elif deed == "column" and p.col0 < p.col1:
            plan = plan.split(p.id, "column", draw(st.integers(p.col0, p.col1 - 1)), (draw(owner), draw(owner)))
        elif deed == "spread":
            plan = plan.spread(p.id, draw(st.lists(owner, min_size=1, max_size=6)))
        else:
            plan = plan.move(p.id, draw(owner))
        past.append(plan)
    return past


def owners_by_walking(plan: Plan) -> list[list[int]]:
    """For each cell, the slots of all partitions that contain it."""
    cells = ((row, col) for row in range(plan.grid.rows) for col in range(plan.grid.columns))
    return [
        [s for s, p in enumerate(plan.partitions) if p.row0 <= row <= p.row1 and p.col0 <= col <= p.col1]
        for row, col in cells
    ]


@UNHURRIED
@given(histories())
def test_each_cell_has_one_owner_after_any_history_of_changes(past: list[Plan]) -> None:
    for plan in (past[len(past) // 2], past[-1]):
        assert owners_by_walking(plan) == [[s] for s in plan.slot_of_cell.tolist()]
        assert sum(p.cells for p in plan.partitions) == plan.grid.cells


@UNHURRIED
@given(histories())
def test_an_id_once_gone_never_returns_and_never_means_another_rectangle(past: list[Plan]) -> None:
    rectangle: dict[int, tuple[int, int, int, int]] = {}
    gone: set[int] = set()
    for before, plan in zip([past[0], *past], past, strict=False):
        ids = {p.id for p in plan.partitions}
        gone |= {p.id for p in before.partitions} - ids
        assert not gone & ids
        for p in plan.partitions:
            assert rectangle.setdefault(p.id, (p.row0, p.col0, p.row1, p.col1)) == (
                p.row0,
                p.col0,
                p.row1,
                p.col1,
            )
            assert p.id < plan.next_partition_id
    assert [plan.epoch for plan in past] == list(range(len(past)))


@UNHURRIED
@given(histories())
def test_parents_cover_what_their_children_took_over(past: list[Plan]) -> None:
    known = {p.id: p for plan in past for p in plan.partitions}
    for child in known.values():
        parents = [known[i] for i in child.parent]
        assert all(p.id < child.id for p in parents)
        if len(parents) == 1:
            (p,) = parents
            assert p.row0 <= child.row0 <= child.row1 <= p.row1
            assert p.col0 <= child.col0 <= child.col1 <= p.col1
        elif parents:
            assert sum(p.cells for p in parents) == child.cells


@UNHURRIED
@given(histories())
def test_a_written_plan_reads_back_the_same(past: list[Plan]) -> None:
    plan = past[-1]
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert np.array_equal(again.slot_of_cell, plan.slot_of_cell)


def test_routing_gives_the_slot_the_owner_and_the_id_of_a_cell() -> None:
    slots = QUARTERS.route(np.array([0, 9, 70, 79], np.int32))
    assert slots.dtype == np.int32
    assert slots.tolist() == [0, 1, 2, 3]
    assert QUARTERS.executor_of_slot[slots].tolist() == [0, 1, 2, 3]
    assert QUARTERS.partition_id_of_slot[slots].tolist() == [3, 4, 5, 6]


def test_a_list_of_changes_is_one_epoch() -> None:
    changes: list[Change] = [Move(3, 2), Merge((4, 6), 1), Split(7, "row", 0, (1, 3))]
    plan = QUARTERS.apply(changes)
    assert plan.epoch == QUARTERS.epoch + 1
    assert [p.id for p in plan.partitions] == [3, 5, 8, 9]  # 7 was made and split within the list
    assert plan.next_partition_id == 10
    assert QUARTERS.partition(3).executor == 0  # the old plan is as it was


def test_a_partition_remembers_where_it_came_from_and_who_held_it() -> None:
    half = WHOLE.split(0, "row", 3, (0, 1)).partition(2)
    assert (half.row0, half.row1, half.parent, half.previous_executor) == (4, 7, (0,), 0)
    moved = QUARTERS.move(6, 0).partition(6)
    assert (moved.executor, moved.previous_executor, moved.parent) == (0, 3, (2,))
    assert QUARTERS.move(6, 3).partition(6) == QUARTERS.partition(6)  # to its own owner: nothing happened to it
    union = QUARTERS.merge((5, 6), 1).partition(7)
    assert (union.parent, union.previous_executor) == ((5, 6), None)  # two held it
    assert QUARTERS.move(6, 2).merge((5, 6), 1).partition(7).previous_executor == 2


def test_a_partition_is_spread_over_several_executors_and_taken_back() -> None:
    plan = QUARTERS.spread(4, (1, 3, 0))
    assert plan.partition(4).owners == (1, 3, 0)
    assert plan.is_spread
    assert plan.turns.slot.tolist() == [0, 1, 1, 1, 2, 3]
    assert plan.turns.owner.tolist() == [0, 1, 3, 0, 2, 3]
    assert plan.turns.first_of_slot.tolist() == [0, 1, 4, 5]
    assert plan.turns.counts.tolist() == [1, 3, 1, 1]
    assert plan.by_executor([6.0, 3.0, 0.5, 0.25]).tolist() == [7.0, 1.0, 0.5, 1.25]
    uneven = QUARTERS.spread(4, (1, 3, 1, 1))
    assert uneven.partition(4).owners == (1, 3)
    assert uneven.turns.lane.tolist() == [0, 1, 2, 1, 1, 5, 6]
    assert uneven.by_executor([0.0, 4.0, 0.0, 0.0]).tolist() == [0.0, 3.0, 0.0, 1.0]
    back = plan.move(4, 1)
    assert not back.is_spread
    assert (back.partition(4).executor, back.partition(4).previous_executor) == (1, 1)
    assert not plan.split(4, "row", 0, (1, 2)).is_spread, "halves have one owner each"
    assert not plan.merge((3, 4), 2).is_spread
    assert plan.merge((3, 4), 2).partition(7).previous_executor is None, "several held it"


def test_what_is_spread_stays_with_the_executors_that_are_left() -> None:
    plan = QUARTERS.apply([Spread(4, (3, 1, 0)), Spread(5, (3, 2))]).with_executors(2)
    assert plan.partition(4).owners == (1, 0)
    assert len(plan.partition(5).owners) == 1
    assert plan.executors == 2


def test_plans_of_before_are_read_a_partition_of_everybody_is_spread_over_all() -> None:
    written = json.loads(json.dumps(QUARTERS.to_json()))
    for row in written["partitions"]:
        del row[-1]  # as before there were spreads
    assert Plan.from_json(written) == QUARTERS
    for row in written["partitions"]:
        del row[-2:]  # as before terms were divided
    assert Plan.from_json(written) == QUARTERS
    written["partitions"][0][5] = -1
    assert Plan.from_json(written).partition(3).owners == (0, 1, 2, 3)


def test_more_than_two_partitions_merge_at_once() -> None:
    assert QUARTERS.merge((3, 4, 5, 6), 2).partitions == (Partition(7, 0, 0, 7, 9, 2, (3, 4, 5, 6), None),)


def test_numbers_from_numpy_do_not_keep_a_plan_from_being_written() -> None:
    plan = QUARTERS.split(3, "row", np.int64(1), (np.int32(0), np.int64(1))).move(4, np.int64(2))  # type: ignore[arg-type]
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_cannot_be_written_to() -> None:
    for array in (QUARTERS.slot_of_cell, QUARTERS.executor_of_slot, QUARTERS.partition_id_of_slot):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_plan_travels_without_its_cells() -> None:
    plan = Plan(0, replace(GRID, columns=1000, rows=1000), 1, (Partition(0, 0, 0, 999, 999, 0),), 1)
    sent = pickle.dumps(plan)
    assert len(sent) < 1000
    assert np.array_equal(pickle.loads(sent).slot_of_cell, plan.slot_of_cell)


LEFT, RIGHT = Partition(0, 0, 0, 7, 4, 0), Partition(1, 0, 5, 7, 9, 1)


@pytest.mark.parametrize(
    ("partitions", "next_id", "message"),
    [
        ([], 0, "plan 39 leaves 80 of 80 cells without an owner: refused; plan 38 stays in force"),
        ([LEFT, replace(RIGHT, col0=6)], 2, "leaves 8 of 80 cells without an owner: refused"),
        ([LEFT, replace(RIGHT, col0=3)], 2, "gives 16 of 80 cells more than one owner: refused"),
        # the areas add up to 80 all the same
        (
            [LEFT, replace(RIGHT, col0=4, col1=8)],
            2,
            "leaves 8 of 80 cells without an owner and gives 8 of 80 cells more than one owner",
        ),
        # a cell with three owners is one cell
        (
            [LEFT, RIGHT, Partition(2, 0, 0, 0, 0, 0), Partition(3, 0, 0, 0, 0, 0)],
            4,
            "gives 1 of 80 cells more",
        ),
        ([LEFT, replace(RIGHT, executor=4)], 2, "gives 1 of 2 partitions to executors outside 0..3"),
        ([LEFT, replace(RIGHT, executor=2**40)], 2, "gives 1 of 2 partitions to executors outside 0..3"),
        ([LEFT, replace(RIGHT, id=2**40)], 2**40 + 1, "has partition ids 0..1099511627776"),
        ([LEFT, replace(RIGHT, executor=-2)], 2, "gives 1 of 2 partitions to executors outside 0..3"),
        ([LEFT, replace(RIGHT, id=0)], 2, "uses 1 partition ids twice"),
        ([RIGHT, LEFT], 2, "does not list its partitions by id"),
        ([LEFT, RIGHT], 1, "has partition ids 0..1 and next 1, limit 2147483647"),
        (
            [LEFT, replace(RIGHT, col1=10)],
            2,
            "has 1 of 2 partitions that are empty or leave the grid of 8 rows",
        ),
        ([LEFT, replace(RIGHT, row0=-1)], 2, "such as 1 (rows -1..7, columns 5..9)"),
        ([LEFT, replace(RIGHT, row0=5, row1=4)], 2, "such as 1 (rows 5..4, columns 5..9)"),
    ],
)
def test_a_plan_that_would_lose_or_double_cells_is_refused_with_the_number(
    partitions: list[Partition], next_id: int, message: str
) -> None:
    with pytest.raises(PlanError) as refused:
        Plan(39, GRID, 4, tuple(partitions), next_id)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Move(17, 0), "plan 2 has no partition 17 among its 4"),
        (Move(0, 0), "plan 2 has no partition 0 among its 4"),
        (
            Move(3, 4),
            "plan 3 gives 1 of 4 partitions to executors outside 0..3: refused; plan 2 stays in force",
        ),
        (Split(5, "row", 7, (0, 1)), "partition 5 has rows 4..7, no split after 7: choose 4..6"),
        (Split(5, "column", -1, (0, 1)), "partition 5 has columns 0..4, no split after -1: choose 0..3"),
        (Split(5, cast(Axis, "height"), 5, (0, 1)), "cannot be split along 'height': say 'row' or 'column'"),
        (Split(5, "row", 5, (0, 9)), "gives 1 of 5 partitions to executors outside 0..3"),
        (Merge((3, 6), 0), "partitions (3, 6) fill 40 of the 80 cells"),
        (Merge((3, 4, 5), 0), "partitions (3, 4, 5) fill 60 of the 80 cells"),
        (Merge((3,), 0), "joins nothing"),
        (Merge((3, 3), 0), "joins nothing"),
        (Merge((), 0), "joins nothing"),
        (Merge((3, 40), 0), "no partition 40"),
        (Spread(3, ()), "partition 3 cannot be dealt out in 0 turns: use 1 to 4096"),
        (Spread(3, (1, 4)), "gives 1 of 4 partitions to executors outside 0..3"),
    ],
)
def test_a_change_that_cannot_be_made_says_what_could(change: Change, message: str) -> None:
    with pytest.raises(PlanError) as refused:
        QUARTERS.apply([change])
    assert message in str(refused.value)


def test_a_single_cell_cannot_be_split() -> None:
    cell = Plan(0, replace(GRID, columns=1, rows=1), 1, (Partition(0, 0, 0, 0, 0, 0),), 1)
    for axis in ("row", "column"):
        with pytest.raises(PlanError, match="no split after 0: try the other axis"):
            cell.apply([Split(0, axis, 0, (0, 0))])


def test_a_partition_is_gone_for_the_rest_of_the_list_once_it_was_split() -> None:
    with pytest.raises(PlanError, match="partition 3 was split or merged earlier in the same list"):
        QUARTERS.apply([Split(3, "row", 0, (0, 0)), Move(3, 1)])


@pytest.mark.parametrize("spoil", [{"partitions": [[0, 0]]}, {"epoch": "1"}, {"epoch": 1.5}, {"grid": {"columns": 3}}])
def test_a_plan_written_by_somebody_else_is_refused(spoil: dict[str, object]) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        Plan.from_json({**WHOLE.to_json(), **spoil})
    with pytest.raises(PlanError, match="cannot be read: KeyError\\('grid'\\)"):
        Plan.from_json({k: v for k, v in WHOLE.to_json().items() if k != "grid"})


def test_what_executors_had_that_left_goes_to_the_others() -> None:
    plan = uniform(Grid(0.0, 0.0, 10.0, 10.0, 10, 10), 5)
    fewer = plan.with_executors(2)
    assert (fewer.epoch, fewer.executors) == (plan.epoch + 1, 2)
    assert {p.executor for p in fewer.partitions} == {0, 1}
    kept = {p.id: p.executor for p in plan.partitions if p.executor < 2}
    assert {p.id: p.executor for p in fewer.partitions if p.id in kept} == kept, "who stays keeps what it has"
    cells = [sum(p.cells for p in fewer.partitions if p.executor == e) for e in (0, 1)]
    assert max(cells) < 2 * min(cells)
    more = fewer.with_executors(7)
    assert more.executors == 7
    assert {p.executor for p in more.partitions} == {0, 1}, "who joins has nothing yet"
