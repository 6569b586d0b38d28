"""Every index finds what the oracle finds."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.control.layout.uniform import uniform
from geoswarm.core.index.cell_boxes import STEPS
from geoswarm.core.index.cell_kernels import TURN_ENTRIES
from geoswarm.core.index.cells import ENTRIES_MAX, build
from geoswarm.core.index.kernels import Records
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keep import sort_by_place
from geoswarm.flow.match.match import MatchRun, Searchable, match
from geoswarm.flow.merge import as_arrays, as_pairs
from geoswarm.flow.route import route
from geoswarm.model import TIMESTAMP
from geoswarm.run.load_kernels import load_kernels
from geoswarm.run.oracle.oracle import brute_force
from geoswarm.run.oracle.outputs import pairs_of
from worlds import BOUNDS, events, rectangles

NO_EXPIRY, NONE_DEAD = np.empty(0, np.int64), np.empty(0, np.uint8)


def run(
    batch: pa.RecordBatch,
    segments: list[Searchable],
    grid: Grid,
    now_us: int = 0,
    *,
    rows_max: int = 1000,
    pairs_max: int = 1_000_000,
) -> list[MatchRun]:
    return [
        met
        for parcel in route(batch, uniform(grid, 3))
        for met in match(parcel.events, segments, grid, now_us, rows_max=rows_max, pairs_max=pairs_max)
    ]


def pairs_in(mets: list[MatchRun]) -> list[tuple[int, int]]:
    return pairs_of(pa.table(batch) for met in mets for batch in as_pairs(met))


def searchable(grid: Grid, rects: np.ndarray, ids: np.ndarray) -> Searchable:
    return Searchable(Records.of(rects, ids, NO_EXPIRY, NONE_DEAD), build(grid, rects))


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    columns=st.integers(3, 200),
    rows=st.integers(3, 200),
    snap=st.sampled_from([None, 1.0, 0.36, 4.5]),
)
def test_the_index_finds_what_the_oracle_finds(seed: int, columns: int, rows: int, snap: float | None) -> None:
    rng = np.random.default_rng(seed)
    grid = Grid(*BOUNDS, columns=columns, rows=rows)
    rects, batch = rectangles(rng, 80, snap=snap), events(rng, 120, snap=snap)
    x, y = np.asarray(batch["x"]), np.asarray(batch["y"])
    want = brute_force(x, y, rects, np.arange(80))
    got = pairs_in(run(batch, [searchable(grid, rects, np.arange(80))], grid))
    assert sorted(got) == sorted(want)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), rows_max=st.integers(1, 40), pairs_max=st.integers(1, 30))
def test_limits_on_memory_change_how_matches_are_cut_but_not_which(seed: int, rows_max: int, pairs_max: int) -> None:
    rng = np.random.default_rng(seed)
    grid = Grid(*BOUNDS, columns=50, rows=50)
    rects, batch = rectangles(rng, 100), events(rng, 60)
    segments = [searchable(grid, rects[::2], np.arange(0, 100, 2)), searchable(grid, rects[1::2], np.arange(1, 100, 2))]
    mets = run(batch, segments, grid, rows_max=rows_max, pairs_max=pairs_max)
    assert all(len(met.events) <= rows_max for met in mets)
    assert all(len(met.subs) <= pairs_max for met in mets if len(met.events) > 1)
    want = brute_force(np.asarray(batch["x"]), np.asarray(batch["y"]), rects, np.arange(100))
    assert sorted(pairs_in(mets)) == sorted(want)


def test_arrays_and_pairs_say_the_same_and_carry_extra_columns() -> None:
    rng = np.random.default_rng(7)
    grid = Grid(*BOUNDS, columns=60, rows=60)
    batch = events(rng, 200).append_column("text", pa.array([f"post {i}" for i in range(200)]))
    mets = run(batch, [searchable(grid, rectangles(rng, 50), np.arange(50))], grid)
    arrays = pa.concat_tables(pa.table(b) for met in mets for b in as_arrays(met))
    pairs = pa.concat_tables(pa.table(b) for met in mets for b in as_pairs(met, 3000))
    assert sorted(pairs_of([arrays])) == sorted(pairs_of([pairs]))
    assert len(pairs) > 200
    assert all(row["text"] == f"post {row['event_id']}" for row in arrays.to_pylist() + pairs.to_pylist())
    assert min(len(row["sub_ids"]) for row in arrays.to_pylist()) == 1


@pytest.mark.parametrize(
    ("x", "y", "inside"),
    [(10.0, 10.0, True), (20.0, 20.0, True), (10.0, 20.0, True), (9.999999, 15.0, False), (15.0, 20.000001, False)],
)
def test_a_point_on_a_rectangles_border_is_inside(x: float, y: float, inside: bool) -> None:
    grid = Grid(*BOUNDS, columns=36, rows=18)  # cell borders on whole tens
    batch = pa.record_batch(
        {"event_id": [1], "ts": pa.array([0]).cast(TIMESTAMP), "x": pa.array([x]), "y": pa.array([y])}
    )
    segment = searchable(grid, np.array([[10.0, 10.0, 20.0, 20.0]]), np.array([5]))
    assert pairs_in(run(batch, [segment], grid)) == ([(1, 5)] if inside else [])


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), level=st.integers(0, 15), nudged=st.booleans())
def test_points_on_the_finest_steps_of_the_index_are_decided_by_the_rectangle_itself(
    seed: int, level: int, nudged: bool
) -> None:
    rng, grid = np.random.default_rng(seed), Grid(*BOUNDS, columns=60, rows=60)
    step = np.array([360.0, 180.0]) / 2**16 / STEPS * 2**level  # as wide and as high as an index's step at this level
    low = rng.integers(-60, 60, (150, 2)) * step
    high = low + rng.integers(1, 2 * STEPS, (150, 2)) * step
    rects = np.concatenate([low, high], axis=1).clip((-180, -90, -180, -90), (180, 90, 180, 90))
    places = (rng.integers(-60, 200, (400, 2)) * step).clip((-180, -90), (180, 90))
    if nudged:
        places = np.nextafter(places, rng.choice([-80.0, 80.0], places.shape))
    batch = events(rng, 400)
    batch = batch.set_column(2, "x", pa.array(places[:, 0])).set_column(3, "y", pa.array(places[:, 1]))
    want = brute_force(places[:, 0], places[:, 1], rects, np.arange(150))
    assert len(want) > 1000
    assert sorted(pairs_in(run(batch, [searchable(grid, rects, np.arange(150))], grid))) == sorted(want)


@pytest.mark.parametrize("pairs_max", [100, 30_000, 1_000_000])
def test_thousands_of_rectangles_over_one_place_are_all_found(pairs_max: int) -> None:
    rng, grid, count = np.random.default_rng(5), Grid(*BOUNDS, columns=10, rows=10), 2 * TURN_ENTRIES + 7
    low = rng.uniform(9.0, 10.2, (count, 2))
    rects, dead = np.concatenate([low, low + 0.9], axis=1), np.packbits(np.arange(count) % 5 == 0, bitorder="little")
    batch = events(rng, 90)
    batch = batch.set_column(2, "x", pa.array(rng.uniform(9, 11, 90))).set_column(3, "y", pa.array(np.full(90, 10.1)))
    segment = Searchable(Records.of(rects, np.arange(count), NO_EXPIRY, dead), build(grid, rects))
    alive = np.flatnonzero(np.arange(count) % 5)
    want = brute_force(np.asarray(batch["x"]), np.asarray(batch["y"]), rects[alive], alive)
    got = pairs_in(run(batch, [segment], grid, rows_max=40, pairs_max=pairs_max))
    assert sorted(got) == sorted(want)
    assert len(want) > 100_000


def test_cancelled_and_expired_subscriptions_are_not_found() -> None:
    grid = Grid(*BOUNDS, columns=10, rows=10)
    rects = np.tile(np.array(BOUNDS), (20, 1))
    expires_us = np.where(np.arange(20) % 3 == 0, 100, 1000).astype(np.int64)
    dead = np.packbits(np.arange(20) % 2 == 0, bitorder="little")
    segment = Searchable(Records.of(rects, np.arange(20), expires_us, dead), build(grid, rects))
    batch = events(np.random.default_rng(0), 1)
    for now_us, alive in ((99, {i for i in range(20) if i % 2}), (100, {i for i in range(20) if i % 2 and i % 3})):
        got = pairs_in(run(batch, [segment], grid, now_us))
        assert {sub for _, sub in got} == alive


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_rectangle_costs_more_than_four_entries_whatever_its_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.uniform([-180, -90], [180, 90], (50, 2))
    high = low + 10.0 ** rng.uniform(-6, 2.5, (50, 2))
    rects = np.concatenate([low, np.minimum(high, (180, 90))], axis=1)
    index = build(Grid(*BOUNDS, columns=10, rows=10), rects)
    per_rectangle = np.bincount((index.entries >> np.uint64(32)).astype(np.int64), minlength=50)
    assert 1 <= per_rectangle.min() <= per_rectangle.max() <= ENTRIES_MAX


def test_warming_up_runs_every_stage() -> None:
    assert load_kernels(compiles_all=True) == 2


def test_events_that_are_sorted_before_they_are_routed_travel_in_the_same_parcels() -> None:
    grid, batch = Grid(*BOUNDS, columns=30, rows=20), events(np.random.default_rng(5), 3000, snap=1.0)
    plan = uniform(grid, 3)
    want, got = list(route(batch, plan)), list(route(sort_by_place(batch, grid), plan, is_sorted=True))
    assert want == got
    assert len(want) == len(plan.partitions)
