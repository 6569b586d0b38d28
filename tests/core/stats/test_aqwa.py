"""AQWA's five numbers per cell give the same counts as TrioStat and as counting by hand, for any rectangle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.stats.by_hand import Cell, Rect, boxes_of, by_hand, rects, stat_of
from geoswarm.core.stats.aqwa import Aqwa
from geoswarm.core.stats.triostat import NUMBERS_PER_EXECUTOR, Box
from geoswarm.errors import InputError

SIDE = 13
UNHURRIED = settings(deadline=None)
CELLS = st.tuples(st.integers(0, SIDE - 1), st.integers(0, SIDE - 1))


def aqwa_of(points: list[Cell], queries: list[Rect]) -> Aqwa:
    stat = Aqwa.empty(SIDE, SIDE)
    stat.add_points(np.array([r * SIDE + c for r, c in points], np.int32))
    stat.add_queries(boxes_of(queries))
    return stat


@UNHURRIED
@given(st.lists(CELLS, max_size=40), st.lists(rects(), max_size=20), rects())
def test_any_rectangle_is_counted_as_by_hand_and_as_by_triostat(
    points: list[Cell], queries: list[Rect], rect: Rect
) -> None:
    stat, box = aqwa_of(points, queries), Box(*rect)
    stat.close_round()
    assert stat.read(box) == by_hand(box, points, queries, queries)
    whole = Box(0, 0, SIDE - 1, SIDE - 1)
    assert stat.read(whole) == stat_of(whole, points, queries).trio


@UNHURRIED
@given(st.lists(CELLS, max_size=20), st.lists(rects(), min_size=1, max_size=10), st.integers(1, 5))
def test_older_points_fade_and_cancelled_queries_leave(points: list[Cell], queries: list[Rect], gone: int) -> None:
    box = Box(3, 2, 9, 11)
    stat = aqwa_of(points, queries)
    stat.close_round()
    stat.remove_queries(boxes_of(queries[:gone]))
    stat.close_round()
    n, q, _ = by_hand(box, points, queries[gone:], [])
    assert stat.read(box) == (n / 2, q, 0)


@UNHURRIED
@given(st.lists(CELLS, max_size=20), st.lists(rects(), max_size=10))
def test_machines_count_apart_and_add_up(points: list[Cell], queries: list[Rect]) -> None:
    apart = aqwa_of(points[::2], queries[::2]) + aqwa_of(points[1::2], queries[1::2])
    assert np.array_equal(apart.collected, aqwa_of(points, queries).collected)


def test_a_round_of_the_papers_grid_sends_five_million_numbers_against_two_per_executor() -> None:
    assert Aqwa.empty(1000, 1000).round_bytes == 5_000_000 * 8
    assert NUMBERS_PER_EXECUTOR * 22 == 44


def test_statistics_of_two_grids_do_not_add() -> None:
    with pytest.raises(InputError, match="use one grid"):
        Aqwa.empty(2, 3) + Aqwa.empty(3, 2)
