"""What TrioStat estimates from a few numbers a row is what counting by hand finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.stats.by_hand import Cell, Rect, arrive, boxes_of, by_hand, cuts_of, halves_of, rects, stat_of, worlds
from geoswarm.core.space.partition import Axis
from geoswarm.core.stats.redraw import split_stat
from geoswarm.core.stats.triostat import PRE_SPAN, Q_NEW, SPAN, SPAN_NEW, Box, N, Q, R, Trio, TrioStat
from geoswarm.errors import CorruptState, InputError

AXES: tuple[Axis, Axis] = ("row", "column")
UNHURRIED = settings(deadline=None)

# --- the example of the thesis, partition p11 of 4 rows and 2 columns (Figures 3.2, 3.3 and 3.5)

P11 = Box(0, 0, 3, 1)
OLD_POINTS = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]
OLD_QUERIES = [(0, 0, 0, 1), (1, 0, 2, 0), (2, 1, 2, 1), (3, 0, 3, 0)]
D_A, D_B = (2, 0), (2, 1)
Q_A, Q_B, Q_C = (1, 0, 1, 0), (0, 1, 2, 1), (3, 1, 3, 1)


def p11() -> TrioStat:
    """The text fixes the row sums, Q_A, Q_B, the row of Q_C and both new points; columns elsewhere are free.

    Its eight older points are what fading leaves of sixteen.
    """
    stat = stat_of(P11, OLD_POINTS * 2, OLD_QUERIES)
    arrive(stat, [D_A, D_B], [Q_A, Q_B, Q_C])
    return stat


def test_the_collectors_of_p11_count_as_the_thesis_tells() -> None:
    stat = p11()
    assert stat.by_row[0].tolist() == [0, 0, 2, 0]  # N': both points in the third row
    assert stat.by_column[0].tolist() == [1, 1]
    assert stat.by_row[Q_NEW].tolist() == [1, 1, 0, 1]
    assert stat.by_row[SPAN_NEW].tolist() == [0, 1, 1, 0]  # Q_B reaches the second and third row
    assert stat.by_column[Q_NEW].tolist() == [1, 2]


def test_the_third_row_of_p11_reads_as_in_figure_3_2() -> None:
    stat = p11()
    stat.close_round()
    assert stat.by_row[[N, Q, R, SPAN, PRE_SPAN], 2].tolist() == [8, 5, 4, 2, 1]
    assert not stat.by_row[:3].any()


def test_p11_costs_350_and_its_halves_32_and_120() -> None:
    stat = p11()
    stat.close_round()
    assert stat.trio == Trio(10, 7, 5)
    assert stat.cost == 350
    upper, lower = stat.halves_at("row", 1)
    assert upper.cost == 32
    assert (lower.q, lower.r, lower.cost) == (5, 4, 120)


# --- laws


@UNHURRIED
@given(worlds())
def test_both_halves_of_any_split_are_estimated_as_counted(world: tuple[Box, list[Cell], list[Rect]]) -> None:
    box, points, queries = world
    stat = stat_of(box, points, queries)
    assert stat.trio == by_hand(box, points, queries, queries)
    for axis, after in cuts_of(box):
        halves = halves_of(box, axis, after)
        want = tuple(by_hand(half, points, queries, queries) for half in halves)
        assert stat.halves_at(axis, after) == want
        at = after - (box.row0 if axis == "row" else box.col0)
        assert tuple(Trio(*(float(v[at]) for v in half)) for half in stat.halves(axis)) == want


@UNHURRIED
@given(worlds(), st.lists(rects(), max_size=8), st.data())
def test_older_queries_count_until_they_are_cancelled(
    world: tuple[Box, list[Cell], list[Rect]], old: list[Rect], data: st.DataObject
) -> None:
    box, points, new = world
    stat = stat_of(box, [], old)
    arrive(stat, points, new)
    gone_old = data.draw(st.lists(st.sampled_from(old), unique_by=id, max_size=len(old)) if old else st.just([]))
    gone_new = data.draw(st.lists(st.sampled_from(new), unique_by=id, max_size=len(new)) if new else st.just([]))
    arrived_now = np.array([False] * len(gone_old) + [True] * len(gone_new), np.bool_)
    stat.remove_queries(boxes_of(gone_old + gone_new), arrived_now)
    stat.close_round()
    left_new = _without(new, gone_new)
    live = _without(old, gone_old) + left_new
    assert stat.trio == by_hand(box, points, live, left_new)
    for axis, after in cuts_of(box):
        assert stat.halves_at(axis, after) == tuple(
            by_hand(half, points, live, left_new) for half in halves_of(box, axis, after)
        )


def _without(rects: list[Rect], gone: list[Rect]) -> list[Rect]:
    left = list(rects)
    for rect in gone:
        left.remove(rect)
    return left


def test_a_query_cancelled_between_rounds_stays_in_what_arrived() -> None:
    stat = stat_of(Box(0, 0, 3, 3), [(0, 0)], [(0, 0, 2, 2), (1, 1, 1, 1)])
    stat.remove_queries(boxes_of([(0, 0, 2, 2)]))
    assert stat.trio == Trio(1, 1, 3)
    stat.close_round()
    assert stat.trio == Trio(0.5, 1, 0)


@UNHURRIED
@given(worlds())
def test_the_cost_difference_only_falls_as_the_cut_moves_on(world: tuple[Box, list[Cell], list[Rect]]) -> None:
    """SWARM's binary search needs it, also when older points have faded and older queries are many."""
    box, points, queries = world
    stat = stat_of(box, points[::2], queries[::2])
    arrive(stat, points[1::2], queries[1::2])
    stat.close_round()
    for axis in AXES:
        first, second = stat.halves(axis)
        assert (np.diff(second.cost - first.cost) <= 0).all()
        for a, b in zip(first, second, strict=True):
            assert (np.diff(a) >= 0).all()
            assert (np.diff(b) <= 0).all()


@UNHURRIED
@given(worlds(), st.integers(2, 4))
def test_tasks_count_apart_and_add_up_in_any_order(world: tuple[Box, list[Cell], list[Rect]], tasks: int) -> None:
    box, points, queries = world
    parts = []
    for i in range(tasks):
        part = TrioStat.empty(box)
        arrive(part, points[i::tasks], queries[i::tasks])
        parts.append(part)
    together = stat_of(box, points, queries)
    for order in (parts, parts[::-1]):
        total = order[0]
        for part in order[1:]:
            total = total + part
        nested = order[0] + sum_of(order[1:])
        assert are_equal(total, nested)
        total.close_round()
        assert are_equal(total, together)


def sum_of(parts: list[TrioStat]) -> TrioStat:
    return parts[0] if len(parts) == 1 else parts[0] + sum_of(parts[1:])


def are_equal(a: TrioStat, b: TrioStat) -> bool:
    return a.box == b.box and np.array_equal(a.by_row, b.by_row) and np.array_equal(a.by_column, b.by_column)


@UNHURRIED
@given(worlds())
def test_a_statistic_survives_its_own_bytes(world: tuple[Box, list[Cell], list[Rect]]) -> None:
    box, points, queries = world
    stat = stat_of(box, points, queries)
    arrive(stat, points[:3], [])
    assert are_equal(TrioStat.from_bytes(stat.to_bytes()), stat)


def test_a_task_that_saw_only_points_sends_one_line_per_axis() -> None:
    stat = TrioStat.empty(Box(10, 20, 109, 69))
    arrive(stat, [(10, 20)], [])
    assert len(stat.to_bytes()) == 40 + 8 * (100 + 50)
    assert stat.numbers == 8 * (100 + 50)


@pytest.mark.parametrize("length", [0, 39, 44, 48])
def test_bytes_cut_short_are_refused(length: int) -> None:
    written = stat_of(Box(0, 0, 3, 3), [(0, 0)], []).to_bytes()
    with pytest.raises(CorruptState, match="again"):
        TrioStat.from_bytes(written[:length])


def test_older_points_fade_by_half_each_round() -> None:
    stat = stat_of(Box(0, 0, 0, 0), [(0, 0)] * 8, [(0, 0, 5, 5)])
    seen = []
    for _ in range(3):
        stat.close_round()
        seen.append(stat.trio)
    assert seen == [(4, 1, 0), (2, 1, 0), (1, 1, 0)]


def test_what_a_window_of_ten_rounds_has_dropped_weighs_less_than_a_thousandth() -> None:
    """So N needs no word of what expires (`docs/swarm.md`)."""
    stat = stat_of(P11, OLD_POINTS * 100, [])
    kept = stat.trio.n
    for _ in range(10):
        stat.close_round()
    assert 0 < stat.trio.n < kept / 1000


def test_a_point_outside_is_refused_and_counts_nowhere() -> None:
    stat = TrioStat.empty(Box(2, 2, 5, 5))
    with pytest.raises(InputError, match="1 of 2 points lie outside"):
        arrive(stat, [(3, 3), (3, 6)], [])
    assert not stat.by_row.any()
    assert not stat.by_column.any()


@pytest.mark.parametrize("after", [1, 5, 99])
def test_a_cut_must_leave_cells_on_both_sides(after: int) -> None:
    stat = TrioStat.empty(Box(2, 2, 5, 5))
    with pytest.raises(InputError, match="no cut behind row"):
        stat.halves_at("row", after)
    with pytest.raises(InputError, match="no cut behind row"):
        split_stat(stat, "row", after)
