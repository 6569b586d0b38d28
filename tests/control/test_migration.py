"""Choosing cells to migrate: enough load, few bytes."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.control.balance import migration
from geoswarm.control.balance.migration import WAYS, Choice, dp, gr, si
from geoswarm.errors import InputError

CELLS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20)), min_size=1, max_size=9)
"""(load, bytes)"""


def choice(way: str, cells: list[tuple[int, int]], wanted: float, seed: int = 0) -> Choice:
    loads, sizes = np.array([c[0] for c in cells], np.float64), np.array([c[1] for c in cells], np.int64)
    return WAYS[way](loads, sizes, wanted, np.random.default_rng(seed))


def least_bytes(cells: list[tuple[int, int]], wanted: float) -> int | None:
    """Every subset looked at."""
    subsets = chain.from_iterable(combinations(cells, n) for n in range(len(cells) + 1))
    return min((sum(c[1] for c in s) for s in subsets if sum(c[0] for c in s) >= wanted), default=None)


@settings(deadline=None, max_examples=300)
@given(CELLS, st.integers(1, 120))
def test_dp_finds_the_fewest_bytes_that_carry_the_load(cells: list[tuple[int, int]], wanted: int) -> None:
    found, want = choice("dp", cells, wanted), least_bytes(cells, wanted)
    assert found.enough == (want is not None)
    if want is not None:
        assert found.size_bytes == want


@settings(deadline=None, max_examples=200)
@given(CELLS, st.integers(1, 120))
def test_gr_is_never_worse_than_the_first_cells_by_bytes_per_load(cells: list[tuple[int, int]], wanted: int) -> None:
    found, best = choice("gr", cells, wanted), choice("dp", cells, wanted)
    load = size = 0
    for cell_load, cell_size in sorted((c for c in cells if c[0]), key=lambda c: c[1] / c[0]):
        if load >= wanted:
            break
        load, size = load + cell_load, size + cell_size
    assert found.size_bytes <= size
    assert best.size_bytes <= found.size_bytes


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=100)
@given(cells=CELLS, wanted=st.integers(-3, 120), seed=st.integers(0, 99))
def test_every_way_reaches_the_load_or_says_that_all_cells_together_do_not(
    way: str, cells: list[tuple[int, int]], wanted: int, seed: int
) -> None:
    found = choice(way, cells, wanted, seed)
    chosen = found.cells.tolist()
    assert chosen == sorted(set(chosen))
    assert found.load == sum(cells[i][0] for i in chosen)
    assert found.size_bytes == sum(cells[i][1] for i in chosen)
    if found.enough:
        assert found.load >= wanted
    else:
        assert found.load == sum(c[0] for c in cells) < wanted
    assert all(cells[i][0] for i in chosen)  # no cell without load


def test_an_exact_fit_counts() -> None:
    """With the paper's `j <= S`, cell 1 could not be found at j = 5, nor anything else within 5 bytes."""
    cells = [(10, 7), (10, 5), (4, 5)]
    assert choice("dp", cells, 10).cells.tolist() == [1]
    assert choice("dp", cells, 10).size_bytes == 5


def test_gr_keeps_the_cheapest_cell_that_completes_the_load() -> None:
    """GS: 0 and 2; GL: 1, 3 and 4, of which 3 completes {0, 2} cheapest, and 1 had to do without 2."""
    cells = [(5, 1), (20, 10), (3, 2), (7, 6), (9, 20)]
    found = choice("gr", cells, 12)
    assert found.cells.tolist() == [0, 2, 3]
    assert found.size_bytes == 9


def test_si_takes_the_largest_first_and_ra_what_its_seed_says() -> None:
    cells = [(5, 1), (5, 9), (5, 4), (5, 7)]
    assert choice("si", cells, 8).cells.tolist() == [1, 3]
    picks = {tuple(choice("ra", cells, 8, seed).cells.tolist()) for seed in range(40)}
    assert len(picks) == 6
    assert choice("ra", cells, 8, 3)[1:] == choice("ra", cells, 8, 3)[1:]


def test_loads_that_no_float_holds_exactly_are_reached_all_the_same() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        loads, sizes = rng.random(12) / 3, rng.integers(1, 9, 12)
        wanted = float(loads[rng.permutation(12)[:6]].sum())
        bound, best = gr(loads, sizes, wanted, rng), dp(loads, sizes, wanted, rng)
        assert bound.enough
        assert best.enough
        assert best.size_bytes <= bound.size_bytes <= si(loads, sizes, float(loads.sum()), rng).size_bytes


def test_a_table_that_would_not_fit_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "DP_BYTES_MAX", 100)
    with pytest.raises(InputError, match=r"a table of \d+ bytes, limit 100: use gr"):
        choice("dp", [(5, 1001), (6, 997), (7, 2003)], 12)


def test_loads_below_zero_are_refused() -> None:
    with pytest.raises(InputError, match="negative load"):
        gr(np.array([-1.0]), np.array([1]), 1.0, np.random.default_rng(0))
