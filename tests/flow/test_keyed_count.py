"""Counts per key equal a brute-force count, whatever plan, slices, replays and compactions do."""

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.errors import InputError, SchemaError
from geoswarm.flow.keyed.count import Count, WordCount
from geoswarm.flow.keyed.operator import Moment, Turn
from geoswarm.run.oracle.keyed import counts, words
from keyed_harness import Batch, KeyedWorld, have_same_rows, moments

TEXTS = [
    "Flood at the dam",
    "the DAM, the dam!",
    "café Straße STRASSE",
    "",
    None,
    "rain rain go away",
    "x" * 70,
    "#flood",
]


def _stream(rng: np.random.Generator, kind: pa.DataType) -> list[Batch]:
    schema = pa.schema([("word", kind), ("x", pa.float64())])
    batches = []
    for interval in moments(rng, 14):
        drawn = rng.zipf(1.5, int(rng.integers(0, 40))) % 9 - 3
        keys = [int(k) if pa.types.is_integer(kind) else f"k{k}" for k in drawn]
        rows = [{"word": k, "x": 0.0} for k in keys]
        batches.append(Batch(interval, pa.RecordBatch.from_pylist(rows, schema=schema)))
    return batches


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("seed", range(15))
def test_each_key_is_counted_over_the_window(kind: pa.DataType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    stream = _stream(rng, kind)
    window = int(rng.integers(1, 6))
    got = KeyedWorld(Count("word", window), stream[0].rows.schema, rng).run(stream)
    want = counts([(interval, rows.to_pylist()) for interval, rows in stream], "word", window)
    assert sum(map(len, want)) > 20
    for batch, (given, expected) in enumerate(zip(got.updates, want, strict=True)):
        assert have_same_rows(given, expected), batch


@pytest.mark.parametrize("seed", range(15))
def test_each_word_is_counted_once_per_text(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = pa.schema([("event_id", pa.int64()), ("text", pa.string())])
    stream = []
    for interval in moments(rng, 8):
        rows = [{"event_id": i, "text": TEXTS[rng.integers(len(TEXTS))]} for i in range(int(rng.integers(0, 12)))]
        stream.append(Batch(interval, pa.RecordBatch.from_pylist(rows, schema=schema)))
    got = KeyedWorld(WordCount(window=3), schema, rng).run(stream)
    want = counts(words([(interval, rows.to_pylist()) for interval, rows in stream]), "word", 3)
    assert {row["key"] for rows in want for row in rows} >= {"flood", "dam", "strasse"}
    for given, expected in zip(got.updates, want, strict=True):
        assert have_same_rows(given, expected)


def test_places_that_share_a_key_count_what_is_held_once() -> None:
    operator = Count(window=2)
    held = pa.RecordBatch.from_pylist([{"count": 50}, {"count": 20}], schema=operator.kept)

    def part(rows: int) -> pa.RecordBatch:
        fed = pa.RecordBatch.from_pydict({"key": pa.array([7] * rows, pa.int64())})
        intervals, starts = np.array([0, 1]), np.array([0, 2])
        keys = pa.array([7], pa.int64())
        moment = Moment(5, 1, 0)
        return operator.update(Turn(keys, fed, np.array([0, rows]), held, starts, intervals, intervals, moment)).given

    merged = operator.merge(pa.concat_batches([part(4), part(3)]), np.array([0, 2]))
    assert merged.to_pylist() == [{"key": 7, "count": 77, "added": 7}]


def test_a_batch_without_rows_counts_nothing() -> None:
    operator = Count("word", 3)
    fed = operator.feed(pa.RecordBatch.from_pylist([], schema=pa.schema([("word", pa.string())])))
    none, zero = np.empty(0, np.int64), np.zeros(1, np.int64)
    held = pa.RecordBatch.from_pylist([], schema=operator.kept)
    answer = operator.update(Turn(fed.column("key"), fed, zero, held, zero, none, none, Moment(0, 0, 0)))
    assert (len(answer.kept), len(answer.given), len(answer.work)) == (0, 0, 0)
    assert len(operator.merge(answer.given, zero)) == 0


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    with pytest.raises(SchemaError, match="needs a column word, but the rows have text, x"):
        Count("word").feed(pa.RecordBatch.from_pydict({"text": ["a"], "x": [1.0]}))


def test_a_key_of_floats_is_refused() -> None:
    with pytest.raises(SchemaError, match="cannot group by x of type double"):
        Count("x").feed(pa.RecordBatch.from_pydict({"x": [1.0]}))


def test_texts_that_are_numbers_are_refused() -> None:
    with pytest.raises(SchemaError, match="cannot read words from type int64"):
        WordCount().feed(pa.RecordBatch.from_pydict({"text": [1]}))


@pytest.mark.parametrize(("window", "name"), [(0, "count"), (-2, "count"), (3, "my count"), (3, ""), (3, "../count")])
def test_a_window_of_nothing_or_a_name_that_is_no_folder_is_refused(window: int, name: str) -> None:
    with pytest.raises(InputError, match="use 1"):
        Count("word", window, name)
