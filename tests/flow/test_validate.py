"""Each kind of bad row has one outcome, and rows in = rows on + dead letters."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import ON, OPERATION
from geoswarm.errors import SchemaError
from geoswarm.flow.dead_letters import MALFORMED, REASONS, TEXT_MAX, DeadLetters
from geoswarm.flow.validate import conform_operations, validate_events, validate_operations
from geoswarm.model import ENTER, EVENT, EXIT, INSIDE

WORLD = Grid(-180, -90, 180, 90, columns=100, rows=100)
GOOD_EVENT = {"event_id": 1, "ts": 0, "x": 2.0, "y": 3.0}
GOOD_OPERATION = {"op": "register", "sub_id": 1, "user": "ana", "xmin": 0.0, "ymin": 0.0, "xmax": 1.0, "ymax": 1.0}


def judge_event(**changes: Any) -> tuple[int, list[dict[str, Any]]]:
    dead = DeadLetters("event", 4)
    batch = pa.RecordBatch.from_pylist([GOOD_EVENT | changes], schema=EVENT)
    return len(validate_events(batch, WORLD, dead)), dead.table().to_pylist()


def judge_operation(now_us: int = 10, **changes: Any) -> tuple[int, list[dict[str, Any]]]:
    dead = DeadLetters("operation", 4)
    table = pa.Table.from_pylist([GOOD_OPERATION | changes], schema=OPERATION)
    fit = validate_operations(conform_operations(table).to_batches()[0], WORLD, now_us, dead).fit
    return int(fit.sum()), dead.table().to_pylist()


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"x": None}, "null", "x is null"),
        ({"event_id": None}, "null", "event_id is null"),
        ({"ts": None}, "null", "ts is null"),
        ({"x": float("nan")}, "not-finite", "nan"),
        ({"y": float("inf")}, "not-finite", "inf"),
        ({"x": 180.0000001}, "out-of-bounds", "clip it to [-180, -90, 180, 90]"),
        ({"x": 500_000.0, "y": 4_649_776.0}, "out-of-bounds", "metres to degrees"),
    ],
)
def test_a_bad_event_is_a_dead_letter_that_says_why(changes: dict[str, Any], reason: str, says: str) -> None:
    kept, dead = judge_event(**changes)
    assert kept == 0
    assert [letter["reason"] for letter in dead] == [reason]
    assert says in dead[0]["detail"]
    assert (dead[0]["batch_id"], dead[0]["kind"]) == (4, "event")


@pytest.mark.parametrize("changes", [{}, {"x": 180.0}, {"x": -180.0, "y": 90.0}, {"y": -90.0}])
def test_a_point_on_the_worlds_edge_is_inside(changes: dict[str, Any]) -> None:
    assert judge_event(**changes) == (1, [])


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"op": "upsert"}, "unknown-op", "'upsert'"),
        ({"op": None}, "null", "op is null"),
        ({"sub_id": None}, "null", "sub_id is null"),
        ({"xmax": None}, "null", "subscription 1 has no xmax"),
        ({"ymin": float("nan")}, "not-finite", "finite"),
        ({"xmin": 12.5, "xmax": 9.1}, "inverted", "rectangle of subscription 1 has xmin 12.5 > xmax 9.1: swap them"),
        ({"ymin": 2.0, "ymax": 1.0}, "inverted", "ymin 2.0 > ymax 1.0"),
        ({"xmax": 0.0}, "no-area", "widen"),
        ({"xmax": 181.0}, "out-of-bounds", "clip"),
        ({"expires": 10}, "expired", "later"),
        ({"geometry": b"\x01"}, "malformed", "geometry"),
        ({"geometry": b"POLYGON EMPTY"}, "empty", "empty"),
        ({"geometry": b"LINESTRING(0 0, 1 1)"}, "no-area", "area"),
        ({"geometry": b"POLYGON((0 0, 500000 0, 500000 500000, 0 0))"}, "out-of-bounds", "metres"),
        ({"geometry": b"SRID=3857;POLYGON((0 0, 5 0, 5 5, 0 0))"}, "coordinate-system", "3857"),
        ({"geometry": b"POLYGON((0 0, 10 10, 10 0, 0 10, 0 0))"}, "invalid", "(5, 5)"),
        ({"keywords": "flood AND"}, "keywords", "keywords of subscription 1: at character 7"),
        ({"on": "leave"}, "on", "subscription 1 is on 'leave': send inside, enter, exit, cross or dwell(SECONDS)"),
        ({"on": ""}, "on", "''"),
        ({"on": "Enter"}, "on", "'Enter'"),
        ({"on": "enter exit"}, "on", "'enter exit'"),
        ({"on": "dwell"}, "on", "'dwell'"),
        ({"on": "dwell()"}, "on", "'dwell()'"),
        ({"on": "dwell(-1)"}, "on", "SECONDS from 0 to 1000000000"),
        ({"on": "dwell(nan)"}, "on", "'dwell(nan)'"),
        ({"on": "dwell(inf)"}, "on", "'dwell(inf)'"),
        ({"on": "dwell(1e99)"}, "on", "'dwell(1e99)'"),
        ({"on": "dwell(5"}, "on", "'dwell(5'"),
    ],
)
def test_a_bad_operation_is_a_dead_letter_that_says_why(changes: dict[str, Any], reason: str, says: str) -> None:
    fit, dead = judge_operation(**changes)
    assert fit == 0
    assert [letter["reason"] for letter in dead] == [reason]
    assert says in dead[0]["detail"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"op": "replace"},
        {"op": "cancel", "xmin": None},
        {"user": None},
        {"expires": 11},
        {"op": "cancel", "on": "never mind"},
    ],
)
def test_a_good_operation_passes(changes: dict[str, Any]) -> None:
    assert judge_operation(**changes) == (1, [])


@pytest.mark.parametrize(
    ("on", "code"),
    [
        (None, INSIDE),
        ("inside", INSIDE),
        (" enter ", ENTER),
        ("exit", EXIT),
        ("dwell(0)", 0),
        ("dwell( 90 )", 90_000_000),
        ("dwell(0.0000015)", 2),
        ("dwell(.5)", 500_000),
        ("dwell(5e-1)", 500_000),
        ("dwell(1e9)", 10**15),
    ],
)
def test_what_a_subscription_is_on_becomes_a_number(on: str | None, code: int) -> None:
    rows = [GOOD_OPERATION | {"on": said} for said in ("enter", on, "dwell(7)", None)]
    table = conform_operations(pa.Table.from_pylist(rows, schema=OPERATION))
    validated = validate_operations(table.to_batches()[0], WORLD, 0, DeadLetters("operation", 4))
    assert validated.fit.all()
    assert validated[ON].tolist() == [ENTER, code, 7_000_000, INSIDE]


def test_an_on_that_is_not_even_text_is_a_dead_letter() -> None:
    column = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    batch = conform_operations(pa.Table.from_pylist([GOOD_OPERATION], schema=OPERATION)).to_batches()[0]
    dead = DeadLetters("operation", 0)
    fit = validate_operations(batch.set_column(batch.schema.get_field_index("on"), "on", column), WORLD, 0, dead).fit
    assert not fit.any()
    assert dead.table()["reason"].to_pylist() == ["on"]


def test_what_a_source_could_not_parse_keeps_its_text() -> None:
    dead = DeadLetters("event", 0)
    row = dict.fromkeys(EVENT.names) | {MALFORMED: '{"event_id": oops'}
    batch = pa.RecordBatch.from_pylist(
        [row, GOOD_EVENT | {MALFORMED: None}], schema=EVENT.append(pa.field(MALFORMED, pa.string()))
    )
    kept = validate_events(batch, WORLD, dead)
    assert kept.schema.names == EVENT.names
    assert kept["event_id"].to_pylist() == [1]
    assert dead.table().to_pylist()[0] | {"detail": ""} == {
        "batch_id": 0, "kind": "event", "reason": "malformed", "detail": "", "row": '{"event_id": oops'
    }  # fmt: skip


maybe_number = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(-180, 180))


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(maybe_number, maybe_number, st.one_of(st.none(), st.integers(0, 9))), max_size=20))
def test_every_event_goes_on_or_becomes_one_dead_letter(
    rows: list[tuple[float | None, float | None, int | None]],
) -> None:
    dead = DeadLetters("event", 0)
    batch = pa.RecordBatch.from_pylist([{"event_id": i, "ts": 0, "x": x, "y": y} for x, y, i in rows], schema=EVENT)
    kept = validate_events(batch, WORLD, dead)
    assert len(kept) + len(dead) == len(rows)
    assert all(letter["reason"] in REASONS for letter in dead.table().to_pylist())
    assert all(np.isfinite(kept["x"].to_pylist() + kept["y"].to_pylist()))


@pytest.mark.parametrize(
    "column",
    [
        None,
        pa.array([400_000_000_000_000_000]).cast(pa.timestamp("us", "UTC")),
        pa.array([0]).cast(pa.timestamp("us", "GMT+8")),
    ],
)
def test_a_bad_row_is_filed_whatever_is_in_it(column: pa.Array) -> None:
    if column is None:  # text that is not UTF-8, as Kafka may bring it
        column = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
        )
    batch = pa.RecordBatch.from_pylist([GOOD_EVENT | {"x": 999.0}], schema=EVENT).append_column("extra", column)
    dead = DeadLetters("event", 0)
    assert len(validate_events(batch, WORLD, dead)) == 0
    assert dead.table()["reason"].to_pylist() == ["out-of-bounds"]


def test_a_long_row_is_cut() -> None:
    batch = pa.RecordBatch.from_pylist([GOOD_EVENT | {"x": 999.0}], schema=EVENT)
    batch = batch.append_column("text", pa.array(["x" * 1_000_000]))
    dead = DeadLetters("event", 0)
    validate_events(batch, WORLD, dead)
    assert len(dead.table()["row"][0].as_py()) == TEXT_MAX


@pytest.mark.parametrize(
    "ids", [pa.array([1.0]), pa.array(["1"]), pa.array([True]), pa.array([2**64 - 1], pa.uint64())]
)
def test_ids_that_are_no_integers_are_an_error(ids: pa.Array) -> None:
    with pytest.raises(SchemaError, match="column sub_id of operations is"):
        conform_operations(pa.table({"op": ["cancel"], "sub_id": ids}))
