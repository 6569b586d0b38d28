"""Every partition that a rectangle meets is found once, which the algorithm as printed does not do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.core.space.overlap import overlap
from geoswarm.core.space.partition import Axis, Partition
from geoswarm.core.space.plan import Plan
from geoswarm.errors import InputError

UNHURRIED = settings(deadline=None)  # the first example may wait for a kernel to be compiled


def overlaps_by_visiting(plan: Plan, row0: int, col0: int, row1: int, col1: int) -> list[int]:
    """Visit all cells."""
    columns = plan.grid.columns
    cells = [row * columns + col for row in range(row0, row1 + 1) for col in range(col0, col1 + 1)]
    return sorted({int(plan.slot_of_cell[cell]) for cell in cells})


def overlaps_by_the_paper(plan: Plan, row0: int, col0: int, row1: int, col1: int) -> list[int]:
    """SWARM Algorithm 1, line by line; its y grows upwards, our rows downwards."""
    result: list[int] = []
    check_cell = [(col0, row0)]
    while check_cell:
        x, y = check_cell.pop()
        if not (col0 <= x <= col1 and row0 <= y <= row1):
            continue
        slot = int(plan.slot_of_cell[y * plan.grid.columns + x])
        if slot not in result:
            check_cell.append((plan.partitions[slot].col1 + 1, y))
            check_cell.append((x, plan.partitions[slot].row1 + 1))
            result.append(slot)
    return sorted(result)


def plan_of_rectangles(rectangles: list[tuple[int, int, int, int]]) -> Plan:
    rows, columns = (max(r[i] for r in rectangles) + 1 for i in (2, 3))
    partitions = tuple(Partition(i, *r, executor=0) for i, r in enumerate(rectangles))
    return Plan(0, Grid(0.0, 0.0, 1.0, 1.0, columns, rows), 1, partitions, len(partitions))


def random_plan(rng: np.random.Generator, rows: int, columns: int, cuts: int) -> Plan:
    """Guillotine cuts at random places, of partitions drawn at random."""
    rectangles = [(0, 0, rows - 1, columns - 1)]
    for _ in range(cuts):
        i = int(rng.integers(len(rectangles)))
        row0, col0, row1, col1 = rectangles[i]
        axis: Axis = "row" if rng.random() < 0.5 else "column"
        if axis == "row" and row0 < row1:
            after = int(rng.integers(row0, row1))
            rectangles[i : i + 1] = [(row0, col0, after, col1), (after + 1, col0, row1, col1)]
        elif axis == "column" and col0 < col1:
            after = int(rng.integers(col0, col1))
            rectangles[i : i + 1] = [(row0, col0, row1, after), (row0, after + 1, row1, col1)]
    return plan_of_rectangles(rectangles)


def random_boxes(rng: np.random.Generator, plan: Plan, count: int) -> CellBox:
    row = np.sort(rng.integers(0, plan.grid.rows, (2, count)), axis=0)
    col = np.sort(rng.integers(0, plan.grid.columns, (2, count)), axis=0)
    return CellBox(row[0], col[0], row[1], col[1])


def check(plan: Plan, boxes: CellBox) -> None:
    offsets, slots = overlap(plan, boxes)
    assert offsets[0] == 0
    assert offsets[-1] == len(slots)
    for i, box in enumerate(zip(*(side.tolist() for side in boxes), strict=True)):
        got = slots[offsets[i] : offsets[i + 1]].tolist()
        assert sorted(got) == overlaps_by_visiting(plan, *box)  # equal lists: none missed and none twice


@UNHURRIED
@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 60), st.integers(0, 2**32))
def test_the_walk_finds_what_visiting_every_cell_finds(rows: int, columns: int, cuts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    plan = random_plan(rng, rows, columns, cuts)
    check(plan, random_boxes(rng, plan, 20))


PINWHEEL = plan_of_rectangles([(0, 0, 0, 1), (0, 2, 1, 2), (1, 0, 2, 0), (1, 1, 1, 1), (2, 1, 2, 2)])
BESIDE_A_BAR = plan_of_rectangles([(0, 0, 0, 0), (1, 0, 1, 0), (0, 1, 1, 1), (0, 2, 0, 2), (1, 2, 1, 2)])


@pytest.mark.parametrize("plan", [PINWHEEL, BESIDE_A_BAR])
def test_every_rectangle_of_a_small_plan_is_answered_even_where_no_straight_cut_made_it(plan: Plan) -> None:
    sides = range(plan.grid.rows), range(plan.grid.columns)
    spans = [[(lo, hi) for lo in side for hi in side if lo <= hi] for side in sides]
    every = np.array([(r[0], c[0], r[1], c[1]) for r in spans[0] for c in spans[1]])
    assert len(every) in (36, 18)
    check(plan, CellBox(*every.T))


def test_the_algorithm_of_the_paper_does_not_see_past_a_partition_it_knows() -> None:
    assert overlaps_by_visiting(BESIDE_A_BAR, 0, 0, 1, 2) == [0, 1, 2, 3, 4]
    assert overlaps_by_the_paper(BESIDE_A_BAR, 0, 0, 1, 2) == [0, 1, 2, 4]


def test_the_algorithm_of_the_paper_misses_partitions_of_about_one_rectangle_in_twenty() -> None:
    rng = np.random.default_rng(2016)
    missed = total = 0
    for _ in range(100):
        plan = random_plan(rng, 32, 32, 30)
        for box in zip(*(side.tolist() for side in random_boxes(rng, plan, 20)), strict=True):
            want, printed = overlaps_by_visiting(plan, *box), overlaps_by_the_paper(plan, *box)
            assert set(printed) <= set(want)
            missed += printed != want
            total += 1
    assert 0.02 < missed / total < 0.09


def test_more_partitions_than_expected_are_all_kept() -> None:
    cells = plan_of_rectangles([(row, col, row, col) for row in range(30) for col in range(30)])
    offsets, slots = overlap(cells, CellBox(*(np.array([v]) for v in (0, 0, 29, 29))))
    assert offsets.tolist() == [0, 900]
    assert slots.tolist() == list(range(900))  # top to bottom, left to right


def test_no_rectangles_meet_no_partitions() -> None:
    offsets, slots = overlap(PINWHEEL, CellBox(*(np.empty(0, np.int64) for _ in range(4))))
    assert offsets.tolist() == [0]
    assert len(slots) == 0


@pytest.mark.parametrize("box", [(0, 0, 3, 2), (0, 0, 2, 3), (-1, 0, 2, 2), (0, -1, 2, 2), (2, 0, 1, 2), (0, 2, 2, 1)])
def test_a_rectangle_outside_the_grid_is_refused_before_it_is_walked(box: tuple[int, int, int, int]) -> None:
    boxes = CellBox(*(np.array([1, side]) for side in box))
    with pytest.raises(InputError, match=r"1 of 2 rectangles are empty or leave .* such as number 1"):
        overlap(PINWHEEL, boxes)
