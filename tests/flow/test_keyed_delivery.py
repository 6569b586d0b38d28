"""Delivery per user equals a plain loop over matches, whatever plan, slices, replays and compactions do."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.errors import InputError, SchemaError
from geoswarm.flow.keyed.delivery import Delivery
from geoswarm.flow.keyed.operator import Moment, StateRows, Turn
from geoswarm.model import TIMESTAMP
from geoswarm.run.oracle.keyed import deliveries
from keyed_harness import Batch, KeyedWorld, Row, have_same_rows, moments

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("user", pa.string()), ("event_id", pa.int64()), ("sub_id", pa.int64()), ("ts", TIMESTAMP)])


def _stream(rng: np.random.Generator) -> list[Batch]:
    """Times that fall together and events out of order, each match once."""
    stream, number = [], 0
    for interval in moments(rng, 12):
        count = int(rng.integers(0, 20))
        rows = [
            {
                "user": f"u{rng.zipf(1.7) % 6}",
                "event_id": int(rng.integers(0, 9)),
                "sub_id": number + i,
                "ts": BEGIN + timedelta(seconds=int(rng.integers(0, 4))),
            }
            for i in range(count)
        ]
        number += count
        stream.append(Batch(interval, pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))
    return stream


def _with_texts(stream: list[Batch]) -> list[Batch]:
    """The same with ids of events that are texts, in another order."""
    schema = SCHEMA.set(1, pa.field("event_id", pa.string()))
    rows = [[row | {"event_id": f"é{9 - row['event_id']}"} for row in batch.rows.to_pylist()] for batch in stream]
    return [
        batch._replace(rows=pa.RecordBatch.from_pylist(each, schema=schema))
        for batch, each in zip(stream, rows, strict=True)
    ]


def test_texts_follow_integers_that_are_held_from_before() -> None:
    held = [
        {"sent": 0, "missed": 2, "event_ids": [1, 2], "sub_ids": [5, 6]},
        {"sent": 0, "missed": 1, "event_ids": [None], "sub_ids": [7], "event_texts": ["a"]},
        {"sent": 1, "missed": 0, "event_ids": [], "sub_ids": []},
        {"sent": 0, "missed": 2, "event_ids": [None, None], "sub_ids": [8, 9], "event_texts": ["b", "c"]},
    ]
    delivery = Delivery(0)
    rows = pa.RecordBatch.from_pylist(held, schema=delivery.kept)
    fewer = delivery.compact(StateRows(rows, np.array([0, 3, 4]), np.arange(4)))
    assert fewer.rows.column("event_texts").to_pylist() == [[None, None, "a"], ["b", "c"]]
    fed = pa.schema([pa.field("key", pa.string()), *SCHEMA.set(1, pa.field("event_id", pa.string()))])
    none = np.zeros(3, np.int64)
    turn = Turn(
        pa.array(["u", "v"]), pa.RecordBatch.from_pylist([], schema=fed), none, fewer.rows, np.arange(3), none, none,
        Moment(0, 0, 0),
    )  # fmt: skip
    given = delivery.close(turn)
    assert given is not None
    assert _digests([{"user": key, **row} for key, row in zip("uv", given.to_pylist(), strict=True)]) == [
        ("u", 3, [("1", 5), ("2", 6), ("a", 7)]),
        ("v", 2, [("b", 8), ("c", 9)]),
    ]


def test_ids_of_subscriptions_that_are_texts_come_back_in_digests() -> None:
    """Rows of before have none of them."""
    schema = SCHEMA.set(SCHEMA.get_field_index("sub_id"), pa.field("sub_id", pa.string()))
    fed = pa.schema([pa.field("key", pa.string()), *schema])
    held = [
        {"sent": 0, "missed": 1, "event_ids": [1], "sub_ids": [5]},
        {"sent": 0, "missed": 2, "event_ids": [2, 3], "sub_ids": [None, None], "sub_texts": ["fence", "é"]},
    ]
    delivery = Delivery(0)
    rows = pa.RecordBatch.from_pylist(held, schema=delivery.kept)
    kept = delivery.compact(StateRows(rows, np.array([0, 2]), np.arange(2)))
    none = np.zeros(2, np.int64)
    nothing = pa.RecordBatch.from_pylist([], schema=fed)
    turn = Turn(pa.array(["u"]), nothing, none, kept.rows, np.arange(2), none, none, Moment(0, 0, 0))
    given = delivery.close(turn)
    assert given is not None
    assert given.column("matches").to_pylist() == [
        [{"event_id": 1, "sub_id": "5"}, {"event_id": 2, "sub_id": "fence"}, {"event_id": 3, "sub_id": "é"}]
    ]


def _nows(rows: list[Row]) -> list[Row]:
    assert all((row["kind"], row["missed"], row["matches"]) == ("now", None, None) for row in rows)
    return [{name: row[name] for name in ("user", "event_id", "sub_id")} for row in rows]


def _digests(rows: list[Row]) -> list[tuple[str, int, list[tuple[Any, int]]]]:
    assert all((row["kind"], row["event_id"], row["sub_id"], row["ts"]) == ("digest", None, None, None) for row in rows)
    return sorted((r["user"], r["missed"], [(m["event_id"], m["sub_id"]) for m in r["matches"]]) for r in rows)


@pytest.mark.parametrize(("per_interval", "digest_max"), [(0, 3), (1, 0), (2, 4), (3, 1000), (1000, 5)])
@pytest.mark.parametrize("seed", range(15))
def test_some_go_out_at_once_and_the_others_in_a_digest(per_interval: int, digest_max: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    stream = _stream(rng) if seed % 3 else _with_texts(_stream(rng))
    schema = stream[0].rows.schema
    got = KeyedWorld(Delivery(per_interval, digest_max=digest_max), schema, rng).run(stream)
    nows, digests = deliveries([(b.interval, b.rows.to_pylist()) for b in stream], per_interval, digest_max)
    for given, expected in zip(got.updates, nows, strict=True):
        assert have_same_rows(_nows(given), expected)
    assert len(got.closes) > 2
    for interval, given in got.closes.items():
        assert _digests(given) == sorted(digests[interval])


def test_the_worlds_above_hold_some_back_over_several_batches() -> None:
    stream = [(b.interval, b.rows.to_pylist()) for b in _stream(np.random.default_rng(0))]
    _, digests = deliveries(stream, 2, 4)
    assert max(missed for some in digests.values() for _, missed, _ in some) > 8


def test_without_a_digest_it_is_a_rate_limit() -> None:
    rng = np.random.default_rng(1)
    stream = _stream(rng)
    got = KeyedWorld(Delivery(2, digest=False), SCHEMA, rng).run(stream)
    nows, _ = deliveries([(b.interval, b.rows.to_pylist()) for b in stream], 2, 0)
    assert all(have_same_rows(_nows(given), expected) for given, expected in zip(got.updates, nows, strict=True))
    assert any(nows)
    assert not any(got.closes.values())


def test_the_time_of_a_match_goes_out_with_it() -> None:
    rng = np.random.default_rng(2)
    stream = _stream(rng)
    got = KeyedWorld(Delivery(10_000), SCHEMA, rng).run(stream)
    assert any(got.updates)
    for batch, given in zip(stream, got.updates, strict=True):
        assert have_same_rows([{name: row[name] for name in SCHEMA.names} for row in given], batch.rows.to_pylist())


@pytest.mark.parametrize(("per_interval", "digest", "digest_max"), [(-1, True, 5), (0, False, 5), (1, True, -1)])
def test_limits_that_mean_nothing_are_refused(per_interval: int, digest: bool, digest_max: int) -> None:
    with pytest.raises(InputError, match="use "):
        Delivery(per_interval, digest, digest_max)


def test_matches_without_a_user_column_are_refused() -> None:
    with pytest.raises(SchemaError, match="operator delivery needs a column user"):
        Delivery(1).feed(pa.RecordBatch.from_pydict({"event_id": [1]}))
