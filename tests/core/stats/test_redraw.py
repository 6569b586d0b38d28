"""Statistics of partitions that were split, merged or redrawn are those of partitions that had always been there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.stats.by_hand import Cell, Rect, arrive, boxes_of, cuts_of, halves_of, stat_of, worlds
from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.change import Merge, Move, Split
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Axis
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.redraw import redraw_stats, split_stat, unite_stats
from geoswarm.core.stats.triostat import PRE_SPAN, SPAN, Box, N, Q, R, TrioStat
from geoswarm.errors import InputError

UNHURRIED = settings(deadline=None)
GRID = Grid(0.0, 0.0, 1.0, 1.0, columns=12, rows=10)


def points_within(box: Box, points: list[Cell]) -> list[Cell]:
    return [(r, c) for r, c in points if box.row0 <= r <= box.row1 and box.col0 <= c <= box.col1]


@UNHURRIED
@given(worlds(), st.data())
def test_a_half_is_exact_along_the_cut_and_has_exact_totals_across(
    world: tuple[Box, list[Cell], list[Rect]], data: st.DataObject
) -> None:
    box, points, queries = world
    if box.cells == 1:
        return
    axis, after = data.draw(st.sampled_from(cuts_of(box)))
    other: Axis = "column" if axis == "row" else "row"
    handed_in = data.draw(st.sampled_from([None, boxes_of(queries)]))
    for place, half in zip(
        halves_of(box, axis, after), split_stat(stat_of(box, points, queries), axis, after, handed_in), strict=True
    ):
        want = stat_of(place, points_within(place, points), queries)
        assert half.box == place
        assert np.array_equal(half.lines(axis), want.lines(axis))
        assert half.lines(other)[[N, Q, R], -1].tolist() == list(want.trio)
        if handed_in is not None:
            assert np.array_equal(half.lines(other)[[Q, SPAN]], want.lines(other)[[Q, SPAN]])
        for line in (N, Q, R):
            assert (np.diff(half.lines(other)[line], prepend=0.0) >= -1e-9).all()


@UNHURRIED
@given(worlds(), st.data())
def test_halves_merged_again_hold_the_points_and_queries_of_the_whole(
    world: tuple[Box, list[Cell], list[Rect]], data: st.DataObject
) -> None:
    box, points, queries = world
    if box.cells == 1:
        return
    axis, after = data.draw(st.sampled_from(cuts_of(box)))
    parts = [stat_of(b, points_within(b, points), queries) for b in halves_of(box, axis, after)]
    want = stat_of(box, points, queries)
    whole = unite_stats(parts, boxes_of(queries))
    for got, lines in zip(whole.axes, want.axes, strict=True):
        assert np.array_equal(got[[N, Q, SPAN]], lines[[N, Q, SPAN]])
        assert (got[R] >= lines[R]).all()
    blind = unite_stats(parts)
    assert blind.trio.n == want.trio.n
    assert blind.trio.q >= want.trio.q
    whole.close_round()  # what was only bounded is replaced
    want.close_round()
    assert np.array_equal(whole.by_row[[Q, R, SPAN, PRE_SPAN]], want.by_row[[Q, R, SPAN, PRE_SPAN]])


@UNHURRIED
@given(worlds(), st.data())
def test_a_split_within_a_round_loses_nothing_that_was_being_counted(
    world: tuple[Box, list[Cell], list[Rect]], data: st.DataObject
) -> None:
    box, points, queries = world
    if box.cells == 1:
        return
    axis, after = data.draw(st.sampled_from(cuts_of(box)))
    stat = stat_of(box, points[::2], queries[::2])
    arrive(stat, points[1::2], queries[1::2])
    for place, half in zip(halves_of(box, axis, after), split_stat(stat, axis, after, boxes_of(queries)), strict=True):
        half.close_round()
        want = stat_of(place, points_within(place, points[::2]), queries[::2])
        arrive(want, points_within(place, points[1::2]), queries[1::2])
        want.close_round()
        assert np.allclose(half.lines(axis), want.lines(axis))
        for got, lines in zip(half.axes, want.axes, strict=True):
            assert np.allclose(got[[Q, SPAN]], lines[[Q, SPAN]])
            assert np.allclose(got[[N, Q, R], -1], lines[[N, Q, R], -1])


def stats_of(plan: Plan, points: list[Cell], queries: list[Rect]) -> dict[int, TrioStat]:
    return {p.id: stat_of(Box.of(p), points_within(Box.of(p), points), queries) for p in plan.partitions}


def test_a_plan_redrawn_in_several_steps_at_once_keeps_every_point_and_query() -> None:
    rng = np.random.default_rng(5)
    points = [(int(r), int(c)) for r, c in zip(rng.integers(0, 10, 200), rng.integers(0, 12, 200), strict=True)]
    queries = [(int(r), int(c), min(9, int(r) + 3), min(11, int(c) + 2)) for r, c in rng.integers(0, 10, (60, 2))]
    old_plan = uniform(GRID, 4)  # four quarters, of 5 x 6 cells: 3 5 / 4 6
    assert [p.id for p in old_plan.partitions] == [3, 4, 5, 6]
    plan = old_plan.apply([Merge((3, 4), 0), Split(7, "row", 2, (0, 1)), Split(9, "column", 3, (1, 2)), Move(5, 3)])
    old = stats_of(old_plan, points, queries)
    new = redraw_stats(old, plan, {p.id: boxes_of(queries) for p in plan.partitions})
    assert new[5] is old[5]
    assert new[6] is old[6]
    want = stats_of(plan, points, queries)
    assert sum(s.trio.n for s in new.values()) == pytest.approx(len(points))
    assert {i: s.trio.q for i, s in new.items()} == {i: s.trio.q for i, s in want.items()}
    assert new[8].trio.n == want[8].trio.n  # cut along one axis only: exact


def test_statistics_that_leave_cells_out_cannot_be_redrawn() -> None:
    plan = uniform(GRID, 4)
    old = stats_of(plan, [], [])
    del old[6]
    with pytest.raises(InputError, match="cover 0 of 15 cells of partition 7"):
        redraw_stats(old, plan.split(6, "column", 8, (0, 1)))


def test_parts_that_form_no_rectangle_are_not_united() -> None:
    parts = [TrioStat.empty(Box(0, 0, 1, 1)), TrioStat.empty(Box(2, 2, 3, 3))]
    with pytest.raises(InputError, match="2 statistics fill 8 of the 16 cells"):
        unite_stats(parts)
    with pytest.raises(InputError, match="no statistics"):
        unite_stats([])
