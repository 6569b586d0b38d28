"""Batches become fewer and longer, and none too large."""

import pyarrow as pa

from geoswarm.core.arrays.batches import gather


def batch(sizes: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"raw": pa.array([b"x" * size for size in sizes], pa.binary())})


def test_short_batches_are_put_together_up_to_a_number_of_rows() -> None:
    out = list(gather((batch([1] * 10) for _ in range(7)), 25))
    assert [len(rows) for rows in out] == [30, 30, 10]


def test_a_batch_that_is_too_large_is_cut_and_nothing_is_lost() -> None:
    sizes = [100] * 5 + [5000] + [100] * 30 + [1] * 4
    out = list(gather(iter([batch([50, 60]), batch(sizes), batch([70])]), 1000, 1200))
    assert all(rows.nbytes <= 1200 or len(rows) == 1 for rows in out)
    kept = [len(value) for rows in out for value in rows["raw"].to_pylist()]
    assert kept == [50, 60, *sizes, 70]
