"""An operation whose aggregate cannot be taken becomes a dead letter that says what to send, as the docs list them."""

import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from geoswarm.config import Contract, WindowSettings
from geoswarm.core.aggregates.columns import AggregateStream
from geoswarm.core.space.grid import Grid
from geoswarm.core.stats import sketches
from geoswarm.core.subscriptions.aggregate import NO_SPEC
from geoswarm.core.subscriptions.attributes import AGGREGATE, OPERATION, operation_table, registration
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import validate_operations
from geoswarm.model import EVENT

GRID = Grid.of(Contract())
PAGE = Path(__file__).parents[2] / "docs/aggregates.md"
EVENTS = EVENT.append(pa.field("speed", pa.float64())).append(pa.field("kind", pa.string()))
STREAM = AggregateStream(EVENTS, takes_aggregates=True)
GOOD = {"aggregate": "count", "window": "tumbling(60 s)"}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a function that there is none of": (
        GOOD | {"aggregate": "median(speed)"},
        "subscription 7: at character 1 of the aggregate: median is no aggregate: write count, sum(c)",
    ),
    "an aggregate without a window": (
        {"aggregate": "count"},
        "subscription 7 has aggregate 'count' and no window: send one such as tumbling(60 s)",
    ),
    "a window, a group or a condition without an aggregate": (
        {"group_by": "kind"},
        "subscription 7 has group_by and no aggregate: send an aggregate such as count, or leave it out",
    ),
    "a length of no time, or without a unit": (
        GOOD | {"window": "tumbling(0 s)"},
        "subscription 7: at character 10 of the window: 0 s is no length of a window: use whole milliseconds",
    ),
    "a slide that does not divide the length": (
        GOOD | {"window": "sliding(300 s, 70 s)"},
        "subscription 7: at character 16 of the window: a length of 300 s is no multiple of a slide of 70 s",
    ),
    "more slides than 1440 in a length": (
        GOOD | {"window": "sliding(1 day, 1 s)"},
        "subscription 7: at character 16 of the window: 86400 slides in one length, limit 1440",
    ),
    "a condition on anything but the answer": (
        GOOD | {"when": "speed > 80"},
        "subscription 7: at character 1 of the condition: there is no 'speed'",
    ),
    "an aggregate beside `on` other than inside": (
        GOOD | {"on": "enter"},
        "subscription 7 has an aggregate and is on enter: aggregates count events inside, so send on = inside",
    ),
    "an aggregate beside `since`": (
        GOOD | {"since": "2026-01-31T12:00"},
        "subscription 7 has an aggregate and asks for kept events since 2026-01-31T12:00: windows begin with the",
    ),
    "a text of more than 1000 characters, or a column's name of more than 256": (
        GOOD | {"group_by": "k" * 300},
        "subscription 7: group_by has 300 characters, limit 256: name a column of the events",
    ),
    "text that is not UTF-8": (
        GOOD | {"aggregate": pa.scalar(b"c\xffunt").cast(pa.binary())},
        "subscription 7: at character 1 of the aggregate: c is no aggregate",
    ),
    "a column that the running stream does not have": (
        GOOD | {"aggregate": "sum(sped)"},
        "subscription 7: events have no column 'sped': did you mean 'speed'?",
    ),
    "a column of a type that the function cannot count": (
        GOOD | {"aggregate": "avg(kind)"},
        "subscription 7: avg takes numbers, and kind is string: name another column",
    ),
}
"""What is sent, by its name in the docs, and the dead letter of subscription 7."""


def operations(*said: dict[str, Any]) -> pa.RecordBatch:
    rows = [registration(7 + n, (0.0, 0.0, 1.0, 1.0), **one) for n, one in enumerate(said)]
    (batch,) = operation_table(rows).to_batches()
    return batch


def with_bytes(rows: pa.RecordBatch, name: str, value: bytes) -> pa.RecordBatch:
    column = pa.array([value] * len(rows), pa.binary()).view(pa.string())
    return rows.set_column(rows.schema.get_field_index(name), OPERATION.field(name), column)


def letters(rows: pa.RecordBatch, stream: AggregateStream | None = None) -> list[dict[str, Any]]:
    dead = DeadLetters("operation", 3)
    validate_operations(rows, GRID, 0, dead, WindowSettings(keep="1 hour", marks_past=True), stream)
    found: list[dict[str, Any]] = dead.table().to_pylist()
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_counted_becomes_a_dead_letter(name: str) -> None:
    said, detail = REFUSED[name]
    binary = {k: v.as_py() for k, v in said.items() if isinstance(v, pa.Scalar)}
    rows = operations({k: v for k, v in said.items() if k not in binary})
    for column, value in binary.items():
        rows = with_bytes(rows, column, value)
    (letter,) = letters(rows, STREAM)
    assert detail in letter["detail"]
    assert letter["reason"] == "aggregate"


def test_the_docs_list_them_all() -> None:
    text = PAGE.read_text()
    assert [name for name in REFUSED if f"| {name} |" not in text] == []
    elsewhere = 2  # no sink, no package: the tests below
    assert len(re.findall(r"^\| .* \| dead letter `aggregate`", text, re.MULTILINE)) == len(REFUSED) + elsewhere


def test_without_its_package_a_sketch_is_refused_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    sketches._library.cache_clear()
    try:
        (letter,) = letters(operations(GOOD | {"aggregate": "distinct(kind)"}), STREAM)
    finally:
        sketches._library.cache_clear()
    assert "subscription 7: distinct values, quantiles and the most frequent" in letter["detail"]
    assert "pip install 'geoswarm[sketches]'" in letter["detail"]


def test_a_stream_without_a_sink_for_aggregates_refuses_them_all() -> None:
    rows = operations(GOOD, {}, GOOD | {"aggregate": "sum(missing)"})
    (first, second) = letters(rows, STREAM._replace(takes_aggregates=False))
    for letter, sub_id in ((first, 7), (second, 9)):
        assert letter["reason"] == "aggregate"
        assert letter["detail"].startswith(
            f"subscription {sub_id} has an aggregate, and this stream has nowhere to put"
        )
        assert "[aggregates.sink]" in letter["detail"]
    assert "| an aggregate in a stream without a sink for them |" in PAGE.read_text()


def test_where_no_stream_runs_its_columns_are_not_known() -> None:
    assert letters(operations(GOOD | {"aggregate": "sum(missing)"})) == []


def test_each_row_is_read_by_itself_though_equal_texts_are_read_once() -> None:
    said = [{}, GOOD, GOOD | {"when": "count > 3"}, GOOD | {"window": "nonsense"}, GOOD, {"aggregate": "Count "} | GOOD]
    dead = DeadLetters("operation", 3)
    validated = validate_operations(operations(*said), GRID, 0, dead)
    values = validated[AGGREGATE]
    assert [letter["detail"].split(":")[0] for letter in dead.table().to_pylist()] == ["subscription 10"]
    assert validated.fit.tolist() == [True, True, True, False, True, True]
    specs = [None if code == NO_SPEC else values.spec(code) for code in values.codes.tolist()]
    assert [spec and (str(spec.aggregate), str(spec.window), spec.when) for spec in specs] == [
        None,
        ("count", "tumbling(60 s)", None),
        ("count", "tumbling(60 s)", "count > 3"),
        None,
        ("count", "tumbling(60 s)", None),
        ("count", "tumbling(60 s)", None),
    ]
    assert len(values.texts) == 2


def test_braces_in_a_text_are_shown_as_they_are() -> None:
    (letter,) = letters(operations(GOOD | {"aggregate": 'sum("{sub_id}") {x}'}))
    assert "{ follows a complete aggregate" in letter["detail"]
    (letter,) = letters(operations(GOOD | {"aggregate": 'sum("{sub_id}")'}), STREAM)
    assert "events have no column '{sub_id}'" in letter["detail"]


def test_a_cancel_may_say_anything() -> None:
    (rows,) = operation_table([{"op": "cancel", "sub_id": 7, "aggregate": "nonsense", "window": "x"}]).to_batches()
    assert letters(rows, STREAM) == []
