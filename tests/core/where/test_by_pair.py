"""Many conditions on many rows, pair by pair, say what each says by itself."""

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.core.where.by_pair import Shaped, shape_of, truths_by_pair
from geoswarm.core.where.evaluate import truths
from geoswarm.core.where.read import read_where

TESTS = [
    "a = {n}", "a <> {n}", "a < {n}.5", "b >= {n}.25", "b = {n}", "NOT b <= {n}", "t < '1970-01-01T00:00:{n:02d}'",
    "t = '1970-01-01T00:00:{n:02d}' OR a IS NULL", "s = 'w{n}'", "s IN ('w{n}', 'w1', 'x')", "a BETWEEN 2 AND {n}9",
    "u > {n} AND u < b", "flag AND a > {n}", "d > '1970-01-{m:02d}'", "a > {n}e300 OR a <> 1e300", "none = {n}",
    "c = {n} OR c > 300", "f = {n}.1", "s LIKE 'w{n}%' AND a < b",
]  # fmt: skip


def drawn(rng: np.random.Generator, n: int) -> pa.RecordBatch:
    def some(values: object, kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind, mask=rng.random(n) < 0.15)

    numbers = rng.integers(0, 6, n)
    floats = np.where(rng.random(n) < 0.1, np.nan, np.round(rng.uniform(0, 6, n) * 4) / 4)
    return pa.record_batch(
        {
            "a": some(numbers, pa.int64()),
            "b": some(floats, pa.float64()),
            "c": some(rng.integers(0, 6, n), pa.uint8()),
            "f": some(np.round(rng.uniform(0, 6, n), 1), pa.float32()),
            "u": some(rng.integers(0, 6, n), pa.uint64()),
            "s": some([f"w{k}" for k in numbers], pa.string()),
            "t": some(rng.integers(0, 9, n) * 1000, pa.timestamp("ms", "UTC")),
            "d": some(rng.integers(0, 9, n), pa.int32()).cast(pa.date32()),
            "flag": some(rng.random(n) < 0.5, pa.bool_()),
            "none": pa.nulls(n),
        }
    )


@pytest.mark.parametrize("seed", range(3))
def test_pairs_of_any_shape_are_answered_as_whole_columns_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, answered = drawn(rng, 200), 0
    columns = {name: rows.column(name) for name in rows.schema.names}
    for test in TESTS:
        by_shape: dict[object, list[tuple[Shaped, np.ndarray]]] = {}
        for n in range(1, 9):
            clause = read_where(test.format(n=n, m=n))
            shaped = shape_of(clause, rows.schema)
            assert shaped is not None
            want = truths(clause, rows).fill_null(False).to_numpy(zero_copy_only=False)
            by_shape.setdefault((shaped.clause, shaped.slots), []).append((shaped, want))
        assert len(by_shape) < 8 or "LIKE" in test
        for some in by_shape.values():
            places, numbers = rng.integers(0, len(rows), 300), rng.integers(0, len(some), 300)
            got = truths_by_pair([shaped for shaped, _ in some], columns, places, numbers)
            assert got.tolist() == [bool(some[k][1][i]) for i, k in zip(places, numbers, strict=True)], test
            answered += int(got.sum())
    assert answered > 1000


def test_a_long_list_has_no_shape() -> None:
    schema = pa.schema([("a", pa.int64())])
    assert shape_of(read_where(f"a IN ({', '.join(map(str, range(33)))})"), schema) is None
