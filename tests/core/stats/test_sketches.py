"""Sketches: exact while small, within their stated error beyond, and the same whoever counted what."""

import sys
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.core.stats import sketches
from geoswarm.core.stats.sketches import DistinctSketch, Frequent, QuantileSketch, TopSketch
from geoswarm.errors import InputError, MachineError, SchemaError

KINDS: list[Any] = [DistinctSketch, QuantileSketch, TopSketch]


def of(kind: Any, values: pa.Array) -> Any:
    sketch = kind.empty()
    sketch.add(values)
    return sketch


def answer(kind: Any, blob: bytes) -> Any:
    sketch = kind.from_bytes(blob)
    return {
        DistinctSketch: sketch.read,
        QuantileSketch: lambda: [sketch.read(rank) for rank in (0.0, 0.3, 0.5, 1.0)],
        TopSketch: lambda: sketch.read(10_000),
    }[kind]()


@pytest.mark.parametrize(
    ("values", "distinct"),
    [
        (pa.array([3, 3, None, -3, 0], pa.int16()), 3),
        (pa.array([2**64 - 1, 1, 2**63], pa.uint64()), 3),
        (pa.array([0.0, -0.0, float("nan"), -float("nan"), 1.5, None]), 3),
        (pa.array([1.5, 1.5, 2.5], pa.float32()), 2),
        (pa.array(["", "a", "b", "a", None, "ä"]), 4),
        (pa.array(["x", "y", "x"]).dictionary_encode(), 2),
        (pa.array([b"", b"\xff\x00", b"\xff"]), 3),
        (pa.array([True, False, True, None]), 2),
        (pa.array([datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=h % 5) for h in range(30)]), 5),
        (pa.array([datetime(2026, 1, d).date() for d in (1, 2, 2)]), 2),
        (pa.array([uuid.UUID(int=n % 7).bytes for n in range(20)], pa.uuid()), 7),
        (pa.array([], pa.string()), 0),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_few_distinct_values_are_counted_exactly(values: pa.Array, distinct: int) -> None:
    assert of(DistinctSketch, values).read() == distinct
    assert of(DistinctSketch, pa.concat_arrays([values, values]).slice(len(values))).read() == distinct


def test_up_to_4096_distinct_values_are_counted_exactly() -> None:
    assert of(DistinctSketch, pa.array(range(4096))).read() == 4096


def test_many_distinct_values_are_counted_within_the_stated_error() -> None:
    for first in range(20):
        values = pa.array(np.arange(50_000, dtype=np.int64) + first * 1_000_000)
        assert of(DistinctSketch, values).read() == pytest.approx(50_000, rel=1.5 * DistinctSketch.error)
    texts = pa.array([f"object {n}" for n in range(50_000)])
    assert of(DistinctSketch, texts).read() == pytest.approx(50_000, rel=1.5 * DistinctSketch.error)


def test_distinct_values_are_the_same_bytes_whoever_counted_them_in_which_order() -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 20_000, 30_000)
    whole = of(DistinctSketch, pa.array(values)).to_bytes()
    for parts in (2, 7, 300):
        shuffled = np.array_split(rng.permutation(values), parts)
        written = [of(DistinctSketch, pa.array(part)).to_bytes() for part in shuffled]
        while len(written) > 1:
            pairs = np.append(np.arange(0, len(written), 2), len(written))
            written = DistinctSketch.merge_groups(written, pairs)
        assert written == [whole]
    assert len(whole) < 32 * 1024 + 64


def test_quantiles_of_few_numbers_are_exact() -> None:
    values = np.random.default_rng(4).normal(size=400)
    sketch = of(QuantileSketch, pa.array(values))
    for rank in (0.0, 0.01, 0.25, 0.5, 0.95, 1.0):
        assert sketch.read(rank) == np.quantile(values, rank, method="inverted_cdf")


def test_quantiles_of_many_numbers_have_a_rank_within_the_stated_error() -> None:
    values = np.random.default_rng(5).lognormal(size=200_000)
    parts = [of(QuantileSketch, pa.array(part)) for part in np.array_split(values, 16)]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged + part
    for sketch in (of(QuantileSketch, pa.array(values)), merged):
        for rank in (0.01, 0.5, 0.95, 0.99):
            assert np.mean(values <= sketch.read(rank)) == pytest.approx(rank, abs=2 * QuantileSketch.error)
        assert (sketch.read(0.0), sketch.read(1.0)) == (values.min(), values.max())


def test_the_stated_errors_are_those_of_the_library() -> None:
    library = pytest.importorskip("datasketches")
    of_rank = library.kll_doubles_sketch.get_normalized_rank_error(sketches.QUANTILE_K, False)
    assert of_rank == pytest.approx(QuantileSketch.error, rel=0.01)
    of_count = library.frequent_strings_sketch.get_epsilon_for_lg_size(sketches.TOP_LOG2)
    assert of_count == TopSketch.error


def test_nulls_and_nan_count_for_nothing() -> None:
    numbers = pa.array([None, float("nan"), 2.0, 1.0])
    assert of(QuantileSketch, numbers).read(1.0) == 2.0
    assert of(QuantileSketch, pa.array([None, float("nan")])).read(0.5) is None
    assert of(TopSketch, pa.array([None, "a"])).read(3) == [Frequent("a", 1, 0)]


def test_the_most_frequent_of_few_values_are_counted_exactly() -> None:
    words = np.random.default_rng(6).zipf(1.2, 5_000) % 700
    want = sorted(Counter(map(str, words.tolist())).items(), key=lambda item: (-item[1], item[0]))
    for values in (pa.array(words), pa.array(list(map(str, words.tolist()))).dictionary_encode()):
        assert [(one.value, one.times) for one in of(TopSketch, values).read(25)] == want[:25]
    assert len(of(TopSketch, pa.array(words)).read(25)) == 25


def test_the_most_frequent_of_many_values_are_too_high_by_no_more_than_stated() -> None:
    words = np.random.default_rng(7).zipf(1.3, 60_000) % 50_000
    truth = Counter(map(str, words.tolist()))
    first, second = (of(TopSketch, pa.array(part)) for part in np.array_split(words, 2))
    for sketch in (of(TopSketch, pa.array(words)), first + second):
        found = sketch.read(10)
        assert [one.value for one in found[:5]] == [word for word, _ in truth.most_common(5)]
        for one in found:
            assert one.excess_max <= TopSketch.error * len(words)
            assert one.times - one.excess_max <= truth[one.value] <= one.times


def test_a_long_value_is_cut_before_it_is_counted() -> None:
    values = pa.array(["é" * 1000, "é" * 2000, "b"])
    assert of(TopSketch, values).read(1) == [Frequent("é" * sketches.TOP_CHARS_MAX, 2, 0)]


@pytest.mark.parametrize("kind", KINDS)
def test_groups_have_the_sketches_that_each_would_have_alone(kind: Any) -> None:
    rng = np.random.default_rng(8)
    numbers = rng.integers(0, 40, 500)
    values = pa.array(numbers, pa.int64(), mask=rng.random(500) < 0.3)
    starts = np.concatenate([[0, 0], np.sort(rng.integers(0, 500, 60)), [500]]).astype(np.int64)
    got = kind.add_groups(values, starts)
    want = [of(kind, values.slice(a, b - a)).to_bytes() for a, b in pairwise(starts.tolist())]
    assert [answer(kind, blob) for blob in got] == [answer(kind, blob) for blob in want]

    merged_starts = np.array([0, 0, 1, 20, len(got)])
    merged = kind.merge_groups(got, merged_starts)
    of_rows = starts[merged_starts]
    alone = [of(kind, values.slice(a, b - a)).to_bytes() for a, b in pairwise(of_rows.tolist())]
    assert [answer(kind, blob) for blob in merged] == [answer(kind, blob) for blob in alone]
    assert len(merged) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_sketch_goes_on_after_it_was_written_and_read(kind: Any) -> None:
    values = pa.array(range(100))
    again = kind.from_bytes(of(kind, values.slice(0, 60)).to_bytes())
    again.add(values.slice(60))
    assert answer(kind, again.to_bytes()) == answer(kind, of(kind, values).to_bytes())


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_something_else_are_refused(kind: Any) -> None:
    others = [of(other, pa.array(range(9))).to_bytes() for other in KINDS if other is not kind]
    for wrong in [b"", b"no sketch", *others]:
        with pytest.raises(InputError, match=rf"^{len(wrong)} bytes are no {kind.__name__} \(.*: read it with"):
            kind.from_bytes(wrong)


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        (lambda: of(QuantileSketch, pa.array(["a"])), SchemaError, "quantiles of string are not defined: give numbers"),
        (
            lambda: of(DistinctSketch, pa.array([[1]])),
            SchemaError,
            "distinct values of type list.* cannot be told apart",
        ),
        (lambda: of(TopSketch, pa.array([b"\xff"])), SchemaError, "most frequent values of type binary are not"),
        (lambda: of(TopSketch, pa.array([[1]])), SchemaError, "most frequent values of type list.* are not defined"),
        (lambda: QuantileSketch.empty().read(95), InputError, "a quantile of 95 is not between 0 and 1"),
    ],
)
def test_what_has_no_sketch_is_refused(what: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        what()


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    sketches._library.cache_clear()
    try:
        with pytest.raises(MachineError, match=r"pip install 'geoswarm\[sketches\]'"):
            DistinctSketch.empty()
    finally:
        sketches._library.cache_clear()
