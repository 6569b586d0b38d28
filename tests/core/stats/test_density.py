"""Queries per cell, by four corners each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.core.space.grid import Grid
from geoswarm.core.stats.density import Density, expected_matches

GRID = Grid(0.0, 0.0, 1.0, 1.0, columns=9, rows=7)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(0, 40))
def test_every_cell_knows_how_many_queries_meet_it(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.random((count, 2))
    high = low + (1 - low) * rng.random((count, 2))
    boxes = GRID.cover(low[:, 0], low[:, 1], high[:, 0], high[:, 1])
    naive = np.zeros((GRID.rows, GRID.columns), np.int64)
    for row0, col0, row1, col1 in zip(boxes.row0, boxes.col0, boxes.row1, boxes.col1, strict=True):
        naive[row0 : row1 + 1, col0 : col1 + 1] += 1
    density = Density(GRID)
    density.add(boxes)
    assert density.of_cells().tolist() == naive.ravel().tolist()
    density.add(boxes, -1)
    assert not density.of_cells().any()


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1))
def test_an_event_is_expected_to_match_what_covers_its_cell(seed: int) -> None:
    """Over all cells, expectations sum up to the areas of the rectangles, each times what it stands for."""
    rng = np.random.default_rng(seed)
    low = rng.random((30, 2))
    rects = np.concatenate([low, low + (1 - low) * rng.random((30, 2))], axis=1)
    counts = rng.integers(1, 9, 30).astype(np.float64)
    expected = expected_matches(GRID, rects, counts)
    areas = np.prod(rects[:, 2:] - rects[:, :2], axis=1)
    assert expected.sum() / GRID.cells == pytest.approx(float(areas @ counts))
    met = Density(GRID)
    met.add(GRID.cover(*np.ascontiguousarray(rects.T)))
    assert expected[met.of_cells() == 0].max(initial=0.0) < 1e-9, "and nothing where no rectangle is"
