"""The laws of the grid: one cell per point, in order, to the last edge; codes that keep squares together."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geoswarm.core.space.grid import Grid

UNHURRIED = settings(deadline=None)  # the first example may wait for a kernel to be compiled
Span = tuple[float, float]


def span_of(ends: Span) -> Span:
    return (min(ends), max(ends))


EDGES = st.floats(-9e299, 9e299)
ANY_SPANS = st.one_of(
    st.tuples(EDGES, EDGES).map(span_of),
    st.floats(-1e9, 1e9).map(lambda lo: (lo, float(np.nextafter(lo, np.inf)))),  # two numbers in the world
    st.tuples(st.floats(-1, 1), st.floats(5e-324, 1e-290)).map(lambda p: (p[0], p[0] + p[1])),
    st.sampled_from([(0.0, 5e-324), (-5e-324, 5e-324), (-180.0, 180.0), (0.1, 0.3)]),
).filter(lambda span: span[0] < span[1])
PLAIN_SPANS = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda p: (p[0], p[0] + p[1]))
SIDES = st.one_of(st.integers(1, 9), st.sampled_from([127, 128, 999, 1000, 4096]))


@st.composite
def grids(draw: st.DrawFn, spans: st.SearchStrategy[Span] = ANY_SPANS) -> Grid:
    (xmin, xmax), (ymin, ymax) = draw(spans), draw(spans)
    return Grid(xmin, ymin, xmax, ymax, columns=draw(SIDES), rows=draw(SIDES))


def points_between(lo: float, hi: float, shares: list[float]) -> np.ndarray:
    """Points of the span, its ends included, in ascending order."""
    inner = [min(max(lo * (1 - s) + hi * s, lo), hi) for s in shares]
    return np.array(sorted([lo, hi, *inner]))


SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@UNHURRIED
@given(grids(), SHARES)
@example(Grid(0.0, 0.0, 5e-324, 5e-324, 7, 3), [0.5])
@example(Grid(-9e299, -9e299, 9e299, 9e299, 1000, 1000), [0.5])
def test_going_right_or_down_never_leads_back_to_an_earlier_cell(grid: Grid, shares: list[float]) -> None:
    xs, ys = points_between(grid.xmin, grid.xmax, shares), points_between(grid.ymin, grid.ymax, shares)
    columns = grid.locate(xs, np.full(len(xs), grid.ymax))
    rows = grid.locate(np.full(len(ys), grid.xmin), ys[::-1]) // grid.columns
    assert np.all(np.diff(columns) >= 0)
    assert np.all(np.diff(rows) >= 0)
    assert (columns[0], columns[-1]) == (0, grid.columns - 1)
    assert (rows[0], rows[-1]) == (0, grid.rows - 1)


@UNHURRIED
@given(grids(), SHARES)
def test_every_point_of_the_world_has_a_cell_of_the_grid(grid: Grid, shares: list[float]) -> None:
    xs, ys = points_between(grid.xmin, grid.xmax, shares), points_between(grid.ymin, grid.ymax, shares)
    cells = grid.locate(np.repeat(xs, len(ys)), np.tile(ys, len(xs)))
    assert cells.min() >= 0
    assert cells.max() < grid.cells


@UNHURRIED
@given(grids())
def test_the_far_edges_of_the_world_belong_to_the_last_column_and_row(grid: Grid) -> None:
    x = np.array([grid.xmin, grid.xmax, grid.xmin, grid.xmax])
    y = np.array([grid.ymax, grid.ymax, grid.ymin, grid.ymin])
    last_row = (grid.rows - 1) * grid.columns
    assert grid.locate(x, y).tolist() == [0, grid.columns - 1, last_row, grid.cells - 1]


@UNHURRIED
@given(st.integers(1, 64), st.integers(1, 64), st.integers(-1000, 1000))
def test_a_point_on_a_border_belongs_to_one_of_the_two_cells_beside_it(columns: int, rows: int, corner: int) -> None:
    # Borders are whole numbers here, and yet k / columns * columns may round below k. What holds for every
    # border: the points beside it fall on its two sides, and it falls on one of them.
    grid = Grid(corner, corner, corner + columns, corner + rows, columns=columns, rows=rows)
    borders = np.arange(1, columns, dtype=np.float64) + corner
    at = grid.locate(borders, np.full(len(borders), grid.ymax))
    left = grid.locate(borders - 1e-6, np.full(len(borders), grid.ymax))
    right = grid.locate(borders + 1e-6, np.full(len(borders), grid.ymax))
    assert np.array_equal(right, np.arange(1, columns))
    assert np.array_equal(left, right - 1)
    assert np.all((at == left) | (at == right))


@UNHURRIED
@given(st.integers(0, 10), st.integers(0, 10), st.integers(-1000, 1000))
def test_on_exact_borders_the_right_and_lower_cell_win(columns_log2: int, rows_log2: int, corner: int) -> None:
    columns, rows = 2**columns_log2, 2**rows_log2
    grid = Grid(corner, corner, corner + 1, corner + 1, columns=columns, rows=rows)
    x = corner + np.arange(columns) / columns
    y = corner + 1 - np.arange(rows) / rows
    assert np.array_equal(grid.locate(x, np.full(columns, grid.ymax)), np.arange(columns))
    assert np.array_equal(grid.locate(np.full(rows, grid.xmin), y), np.arange(rows) * columns)


@st.composite
def rectangles(draw: st.DrawFn, spans: st.SearchStrategy[Span]) -> tuple[Grid, Span, Span]:
    grid = draw(grids(spans))
    x = points_between(grid.xmin, grid.xmax, draw(st.lists(st.floats(0, 1), min_size=2, max_size=2)))
    y = points_between(grid.ymin, grid.ymax, draw(st.lists(st.floats(0, 1), min_size=2, max_size=2)))
    i, j = sorted(draw(st.tuples(st.integers(0, 3), st.integers(0, 3))))
    k, m = sorted(draw(st.tuples(st.integers(0, 3), st.integers(0, 3))))
    return grid, (float(x[i]), float(x[j])), (float(y[k]), float(y[m]))


@UNHURRIED
@given(rectangles(ANY_SPANS), SHARES)
def test_no_point_of_a_rectangle_falls_outside_its_cover(case: tuple[Grid, Span, Span], shares: list[float]) -> None:
    grid, (x0, x1), (y0, y1) = case
    box = grid.cover(*(np.array([v]) for v in (x0, y0, x1, y1)))
    xs, ys = points_between(x0, x1, shares), points_between(y0, y1, shares)
    row, column = np.divmod(grid.locate(np.repeat(xs, len(ys)), np.tile(ys, len(xs))), grid.columns)
    assert np.all((box.row0 <= row) & (row <= box.row1))
    assert np.all((box.col0 <= column) & (column <= box.col1))


@UNHURRIED
@given(rectangles(PLAIN_SPANS))
def test_every_cell_of_a_cover_holds_a_point_of_the_rectangle(case: tuple[Grid, Span, Span]) -> None:
    grid, (x0, x1), (y0, y1) = case
    box = grid.cover(*(np.array([v]) for v in (x0, y0, x1, y1)))
    inner_columns = np.arange(box.col0[0] + 1, box.col1[0])
    inner_rows = np.arange(box.row0[0] + 1, box.row1[0])
    mid_x = grid.xmin + (inner_columns + 0.5) * ((grid.xmax - grid.xmin) / grid.columns)
    mid_y = grid.ymax - (inner_rows + 0.5) * ((grid.ymax - grid.ymin) / grid.rows)
    assert np.all((x0 <= mid_x) & (mid_x <= x1))
    assert np.all((y0 <= mid_y) & (mid_y <= y1))
    xs, ys = np.array([x0, *mid_x, x1]), np.array([y1, *mid_y, y0])
    columns = grid.locate(xs, np.full(len(xs), grid.ymax))
    rows = grid.locate(np.full(len(ys), grid.xmin), ys) // grid.columns
    assert set(columns) == set(range(box.col0[0], box.col1[0] + 1))
    assert set(rows) == set(range(box.row0[0], box.row1[0] + 1))


@UNHURRIED
@given(st.integers(1, 300), st.integers(1, 300))
def test_no_two_cells_share_a_code(columns: int, rows: int) -> None:
    grid = Grid(0.0, 0.0, 1.0, 1.0, columns=columns, rows=rows)
    assert len(np.unique(grid.zcodes(np.arange(grid.cells, dtype=np.int32)))) == grid.cells


@UNHURRIED
@given(st.integers(0, 5), st.integers(0, 200), st.integers(0, 200))
def test_an_aligned_square_of_cells_is_one_range_of_codes(side_log2: int, across: int, down: int) -> None:
    side = 2**side_log2
    grid = Grid(0.0, 0.0, 1.0, 1.0, columns=(across + 1) * side, rows=(down + 1) * side)
    row, column = np.meshgrid(np.arange(side) + down * side, np.arange(side) + across * side)
    codes = np.sort(grid.zcodes((row * grid.columns + column).ravel().astype(np.int32)))
    assert codes[0] % (side * side) == 0
    assert np.array_equal(codes, codes[0] + np.arange(side * side))


def test_the_longest_side_a_grid_may_have_still_has_distinct_codes() -> None:
    for grid in (Grid(0.0, 0.0, 1.0, 1.0, columns=65536, rows=256), Grid(0.0, 0.0, 1.0, 1.0, 256, 65536)):
        last = np.array([0, grid.columns - 1, grid.cells - grid.columns, grid.cells - 1], np.int32)
        assert len(set(grid.zcodes(last).tolist())) == 4
        assert int(grid.zcodes(last)[3]) == int(grid.zcodes(last)[1]) + int(grid.zcodes(last)[2])
