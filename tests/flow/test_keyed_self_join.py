"""Pairs per key equal a brute-force join, whatever plan, slices, replays and compactions do."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.core.keys.hashing import key_ids
from geoswarm.core.keys.plan import parts_of
from geoswarm.errors import InputError, SchemaError
from geoswarm.flow.keyed.operator import Moment, Turn
from geoswarm.flow.keyed.self_join import HELD_WORK, PAIR_WORK, SelfJoin
from geoswarm.model import TIMESTAMP
from geoswarm.run.oracle.keyed import pairs
from keyed_harness import Batch, KeyedWorld, Row, have_same_rows, moments
from stepped_keyed import SteppedKeyed, random_key_plan

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ODD = [None, math.nan, math.inf, -math.inf, 1e308, -1e308]
SCHEMA = pa.schema([("key", pa.string()), ("id", pa.int64()), ("ts", TIMESTAMP), ("value", pa.float64())])


def _row(rng: np.random.Generator, number: int) -> Row:
    """Values on a lattice of tenths, whose distances are seldom what they seem; some ids twice."""
    is_odd = rng.random() < 0.1
    return {
        "key": f"k{rng.zipf(1.6) % 5}",
        "id": 10_000 + number if is_odd else int(rng.integers(0, 60)),
        "ts": BEGIN + timedelta(seconds=int(rng.integers(0, 3))),
        "value": ODD[rng.integers(len(ODD))] if is_odd else int(rng.integers(0, 30)) * 0.1,
    }


def _stream(rng: np.random.Generator, rows_max: int = 13) -> list[Batch]:
    stream, number = [], 0
    for interval in moments(rng, 9):
        count = int(rng.integers(0, rows_max + 1))
        rows = [_row(rng, number + i) for i in range(count)]
        number += count
        stream.append(Batch(interval, pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))
    return stream


@pytest.mark.parametrize("band", [None, 0.0, 0.1, 0.3, 2.0])
@pytest.mark.parametrize("seed", range(20))
def test_every_pair_of_the_window_goes_out_once(band: float | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    stream, window = _stream(rng), int(rng.integers(1, 5))
    got = KeyedWorld(SelfJoin(window=window, band=band), SCHEMA, rng).run(stream)
    plain = [(interval, rows.to_pylist()) for interval, rows in stream]
    want = pairs(plain, ["id", "ts", "value"], window, band)
    for batch, (given, expected) in enumerate(zip(got.updates, want, strict=True)):
        assert have_same_rows(given, expected), batch


@pytest.mark.parametrize("seed", range(6))
def test_a_key_that_is_split_by_value_has_the_same_pairs(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    stream, window = _stream(rng, 40), int(rng.integers(1, 5))
    engine, splits = SteppedKeyed(tmp_path, SelfJoin(window=window, band=0.0)), 0
    plain = [(interval, rows.to_pylist()) for interval, rows in stream]
    ids = key_ids(pa.array([f"k{n}" for n in range(5)]))
    for batch, want in enumerate(pairs(plain, ["id", "ts", "value"], window, 0.0)):
        if batch % 2:
            engine.replan(random_key_plan(engine.plan, ids, rng, can_split=True))
        splits += len(engine.plan.split_keys)
        if rng.random() < 0.3:
            engine.batch(batch, stream[batch].interval, stream[batch].rows, commit=False)  # an attempt that died
        got = engine.batch(batch, stream[batch].interval, stream[batch].rows).to_pylist()
        assert have_same_rows(got, want), batch
    assert splits


def test_each_part_of_a_split_key_looks_up_its_own_state_only(tmp_path: Path) -> None:
    engine = SteppedKeyed(tmp_path, SelfJoin(ts=None, window=5, band=0.0), executors=4)
    ids = key_ids(pa.array(["a"]))
    engine.replan(engine.plan.with_splits(ids, np.array([4])))
    parts = parts_of(int(ids[0]), 4)
    engine.replan(engine.plan.with_table(parts, np.arange(4, dtype=np.int32)))
    for batch in range(3):
        columns = {"key": ["a"] * 400, "id": range(400), "value": np.arange(400) % 50 - 25.0}
        engine.batch(batch, batch, pa.RecordBatch.from_pydict(columns))
        work = {executor: report.work for executor, report in engine.worked.items()}
        whole = 400 + HELD_WORK * 400 * batch + PAIR_WORK * 50 * (8 * 8 * batch + 8 * 7 // 2)  # rows new, held; pairs
        assert sum(work.values()) == whole
        assert max(work.values()) < 0.4 * whole


def test_only_equal_values_let_a_key_be_split() -> None:
    assert [SelfJoin(band=band).can_split for band in (None, 0.0, 0.1)] == [False, True, False]
    zeros = pa.RecordBatch.from_pydict({"value": [0.0, -0.0, 1.0]})
    numbers = SelfJoin(band=0.0).part_numbers(zeros)
    assert numbers is not None
    assert numbers[0] == numbers[1] != numbers[2]


def test_the_worlds_above_have_pairs_within_and_across_batches() -> None:
    plain = [(interval, rows.to_pylist()) for interval, rows in _stream(np.random.default_rng(0))]
    assert sum(map(len, pairs(plain, ["id"], 4, 0.3))) > 20
    assert sum(map(len, pairs(plain, ["id"], 4, None))) > sum(len(pairs([b], ["id"], 4, None)[0]) for b in plain) > 20


@pytest.mark.parametrize("seed", range(5))
def test_ids_may_be_texts_and_only_ids_need_be_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = pa.schema([("vehicle", pa.int32()), ("trip", pa.string())])
    rows = [[{"vehicle": int(rng.integers(0, 3)), "trip": f"t{i}"} for i in range(b, b + 6)] for b in range(0, 36, 6)]
    stream = [Batch(i // 2, pa.RecordBatch.from_pylist(some, schema=schema)) for i, some in enumerate(rows)]
    operator = SelfJoin("vehicle", "trip", value=None, ts=None, window=2, id_type=pa.string())
    got = KeyedWorld(operator, schema, rng).run(stream)
    plain = [(b.interval, [{"key": r["vehicle"], "id": r["trip"]} for r in b.rows.to_pylist()]) for b in stream]
    for given, expected in zip(got.updates, pairs(plain, ["id"], 2, None), strict=True):
        assert have_same_rows(given, expected)
    assert sum(map(len, got.updates)) > 20


def test_the_work_of_a_key_is_its_rows_what_it_holds_and_its_pairs() -> None:
    operator = SelfJoin(value=None, ts=None)
    new = pa.RecordBatch.from_pydict({"key": [1, 1, 2], "id": [5, 6, 7]})
    held = pa.RecordBatch.from_pylist([{"id": 1}, {"id": 2}, {"id": 3}], schema=operator.kept)
    zeros = np.zeros(3, np.int64)
    starts, held_starts = np.array([0, 2, 3]), np.array([0, 3, 3])
    turn = Turn(pa.array([1, 2]), new, starts, held, held_starts, zeros, zeros, Moment(1, 0, 0))
    assert operator.update(turn).work.tolist() == [2 + 3 * HELD_WORK + (2 * 3 + 1) * PAIR_WORK, 1]


def test_values_that_are_whole_numbers_are_joined_as_floats() -> None:
    fed = SelfJoin(ts=None).feed(pa.RecordBatch.from_pydict({"key": [1], "id": [1], "value": [2**53 + 1]}))
    assert fed.column("value").to_pylist() == [float(2**53)]


def test_an_id_that_is_no_number_is_refused_with_its_type() -> None:
    with pytest.raises(SchemaError, match="cannot read its id as int64 from string"):
        SelfJoin(ts=None, value=None).feed(pa.RecordBatch.from_pydict({"key": [1], "id": ["a"]}))


@pytest.mark.parametrize(("value", "band"), [(None, 1.0), ("value", -1.0), ("value", math.inf), ("value", math.nan)])
def test_a_band_that_means_nothing_is_refused(value: str | None, band: float) -> None:
    with pytest.raises(InputError, match="0 <= band < infinity"):
        SelfJoin(value=value, band=band)
