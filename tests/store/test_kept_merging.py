"""Which runs of kept events are merged, and how merged ones are cut by place."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoswarm.config import WindowSettings
from geoswarm.core.index.tiles import draw_tiles
from geoswarm.flow.keep import BATCH
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.store.kept.files import KeptBatch, KeptRun
from geoswarm.store.kept.merge import (
    MERGED_ROWS_MAX,
    SMALL_ROWS,
    WINDOW_SHARE,
    HeldRows,
    MergeLimits,
    cut_by_place,
    runs_to_merge,
)

HOUR_S = 3600


@pytest.mark.parametrize(
    ("rows", "every_s"), [(100, 1), (100, 9), (100, 40), (20_000, 1), (300_000, 2), (1_500_000, 20), (3_000_000, 30)]
)
def test_an_hour_of_batches_is_a_few_dozen_runs_and_an_event_is_rarely_written_anew(rows: int, every_s: int) -> None:
    limits, runs, rewritten, most = MergeLimits.of(WindowSettings(keep="1 hour")), list[KeptRun](), 0, 0
    batches = 2 * HOUR_S // every_s
    for number in range(batches):
        runs.append(KeptRun((KeptBatch(number, number * every_s * 10**6, rows, 32 * rows, 0),), (), 0, 0))
        runs = [run for run in runs if run.batches[-1].now_us > (number * every_s - HOUR_S) * 10**6]
        chosen = runs_to_merge(runs, limits)
        if chosen:
            at = runs.index(chosen[0])
            merged = KeptRun(tuple(batch for run in chosen for batch in run.batches), (), 0, 0)
            runs[at : at + len(chosen)] = [merged]
            rewritten += merged.rows
            assert merged.rows <= MERGED_ROWS_MAX
            assert (merged.batches[-1].now_us - merged.batches[0].now_us) / 1e6 <= HOUR_S / WINDOW_SHARE
        most = max(most, len(runs))
    assert most <= 48 + 1.5 * rows * HOUR_S / every_s / MERGED_ROWS_MAX
    times_max = 3 if rows > SMALL_ROWS else 20
    assert rewritten <= times_max * rows * batches


def test_a_large_run_is_not_written_anew_for_a_small_one() -> None:
    sizes = [3_900_000, *[50_000] * 15]
    runs = [KeptRun((KeptBatch(n, n, rows, 32 * rows, 0),), (), 0, 0) for n, rows in enumerate(sizes)]
    assert not runs_to_merge(runs, MergeLimits.of(WindowSettings(keep="1 day")))


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 3000))
def test_no_two_tiles_overlap(seed: int, side: int, points: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (np.round(rng.normal(0, 5, points), rng.integers(0, 3)) for _ in range(2))
    tiles = draw_tiles(x, y, side).of(x, y)
    assert tiles.max() < side * side
    boxes = [(x[here].min(), y[here].min(), x[here].max(), y[here].max()) for here in (tiles == t for t in set(tiles))]
    for i, (x0, y0, x1, y1) in enumerate(boxes):
        for u0, v0, u1, v1 in boxes[:i]:
            assert x1 < u0 or u1 < x0 or y1 < v0 or v1 < y0


def test_a_merged_run_is_cut_into_files_of_like_size_in_which_a_small_region_meets_few() -> None:
    events = Tweets(seed=1).events(0, 300_000)
    held = [HeldRows(events.slice(first, 100_000), batch) for batch, first in enumerate((0, 100_000, 200_000))]
    pieces = list(cut_by_place(held))
    assert sorted(pa.Table.from_batches(pieces)["event_id"].to_pylist()) == events["event_id"].to_pylist()
    for piece in pieces:
        batches = piece["kept_batch"].to_numpy()
        np.testing.assert_array_equal(batches, piece["event_id"].to_numpy() // 100_000)
    assert len(pieces) == 16
    assert max(map(len, pieces)) < 2 * 300_000 / 16
    x, y = (events.column(axis).to_numpy() for axis in ("x", "y"))
    met = []
    for at in range(0, 300_000, 10_000):
        near = [_box(piece) for piece in pieces]
        met.append(
            sum(
                x0 <= x[at] + 0.5 and x1 >= x[at] - 0.5 and y0 <= y[at] + 0.5 and y1 >= y[at] - 0.5
                for x0, y0, x1, y1 in near
            )
        )
    assert np.median(met) <= 2


@pytest.mark.parametrize(("first", "width"), [(7, pa.int32()), (2**31, pa.int64())])
def test_events_keep_their_batch_when_a_merged_file_of_before_is_merged_again(first: int, width: pa.DataType) -> None:
    """Files of before have 8 bytes for a batch; also a column that only one of two has, and one of another width."""
    events = Tweets(seed=2).events(0, 3000)
    before = events.slice(0, 2000).append_column("speed", pa.array(range(2000), pa.int32()))
    before = before.append_column(BATCH, pa.array(np.arange(2000) // 500 + first))
    (merged,) = cut_by_place([HeldRows(before, first), HeldRows(events.slice(2000), first + 4)])
    assert merged.schema.field(BATCH.name).type == width
    rows = sorted(zip(*(merged[name].to_pylist() for name in ("event_id", BATCH.name, "speed")), strict=True))
    assert rows[:2000] == [(i, i // 500 + first, i) for i in range(2000)]
    assert rows[2000:] == [(i, first + 4, None) for i in range(2000, 3000)]


def _box(events: pa.RecordBatch) -> tuple[float, float, float, float]:
    x, y = (events.column(axis).to_numpy() for axis in ("x", "y"))
    return x.min(), y.min(), x.max(), y.max()
