"""Messages as tasks parse them: what is good, what is malformed, and that no message depends on its neighbours."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_messages import COLUMNS, MESSAGES, comparable
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run import message_reading
from geoswarm.run.json_values import DEPTH_MAX, DIGITS_MAX, read_row
from geoswarm.run.message_reading import NO_VALUE, read_messages

GOOD = {"event_id": 1, "ts": "2026-01-01T00:00:00.25Z", "x": 1.5, "text": 'a "b"\né'}


def rows_of(*values: bytes | str | None) -> list[dict[str, Any]]:
    given = [v.encode() if isinstance(v, str) else v for v in values]
    return comparable(pa.Table.from_batches([read_messages(pa.array(given, pa.binary()), COLUMNS)]))


def test_a_bad_message_is_a_dead_letter_with_its_text_and_its_neighbours_are_read() -> None:
    bad = [
        '{"event_id": 1',  # cut off
        ', "x": 2.0}',  # the other half
        '{"event_id": 1}{"event_id": 2}',
        '{"event_id": 1}\n{"event_id": 2}',
        '{"event_id": 1} and more',
        '{"event_id": "1"}',
        '{"event_id": 1.0}',
        '{"event_id": 9223372036854775808}',
        '{"event_id": "x", "event_id": 1}',
        '{"small": 2147483648}',
        '{"ts": "2026-02-30T00:00:00Z"}',
        '{"ts": "yesterday"}',
        '{"ts": 9223372036854775807}',
        '{"day": 1}',
        '{"flag": 1}',
        '{"text": "raw\nline"}',
        "[1]",
        "null",
        "}{",
        "\ufeff{}",
    ]
    between = [text for wrong in bad for text in (wrong, json.dumps(GOOD))]
    rows = rows_of(json.dumps(GOOD), *between, None)
    assert [row[MALFORMED] for row in rows[1::2]] == [text.encode() for text in bad] + [NO_VALUE.encode()]
    assert all(row["event_id"] is None for row in rows[1::2])
    assert len({str(row) for row in rows[::2]}) == 1
    assert rows[0]["text"] == GOOD["text"].encode()  # type: ignore[attr-defined]
    assert rows[0][MALFORMED] is None


def test_messages_may_have_lines_blanks_unknown_keys_and_deep_values() -> None:
    deep = "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1)
    rows = rows_of(json.dumps(GOOD, indent=2), f'\n {{"event_id": 1, "other": {deep}, "": {{"event_id": 3}}}}\r\n', " ")
    assert [row["event_id"] for row in rows] == [1, 1, None]
    assert [row[MALFORMED] for row in rows] == [None] * 3
    too_deep, too_long = f'{{"other": [{deep}]}}', f'{{"other": {"1" * (DIGITS_MAX + 1)}}}'
    assert [row[MALFORMED] for row in rows_of(too_deep, too_long)] == [too_deep.encode(), too_long.encode()]


def test_what_is_no_utf_8_is_replaced_and_spoils_nothing() -> None:
    rows = rows_of(b'{"event_id": 1, "text": "\xff"}', b"\xff", json.dumps(GOOD))
    assert [row["text"] for row in rows] == ["\ufffd".encode(), None, GOOD["text"].encode()]  # type: ignore[attr-defined]
    assert [row[MALFORMED] for row in rows] == [None, "\ufffd".encode(), None]


def test_the_last_of_two_values_counts_and_texts_take_every_value() -> None:
    rows = rows_of(
        '{"event_id": 1, "event_id": 2, "text": 1.50}',
        '{"text": {"a": [1, null], "a": "é"}}',
        '{"text": 1e10}',
        r'{"text": "\ud83d"}',
    )
    assert rows[0]["event_id"] == 2
    assert [row["text"].decode() for row in rows] == ["1.5", '{"a":[1,null],"a":"é"}', "1.0E10", "?"]


def test_times_are_read_in_all_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = ["2026-01-01T00:00:00Z", "2026-01-01", "2026-1-1 1:0:0+01:00", "2026-01-01T01:00:00 Europe/Paris", "2026"]
    texts = [json.dumps({"ts": form}) for form in forms]
    seconds = '{"ts": 1767225600}'
    want = 1767225600 * 1_000_000
    assert [row["ts"] for row in rows_of(*texts, seconds)] == [want] * 6
    monkeypatch.setattr(message_reading, "_read_singly", None)  # seconds alone are read at once
    assert [row["ts"] for row in rows_of(*[seconds] * 50)] == [want] * 50


@given(st.lists(MESSAGES, max_size=80), st.integers(0, 3))
def test_no_message_depends_on_its_neighbours(messages: list[bytes | None], start: int) -> None:
    values = pa.array(messages, pa.binary()).slice(start)
    together = comparable(pa.Table.from_batches([read_messages(values, COLUMNS)], COLUMNS))
    fields = [field for field in COLUMNS if field.name != MALFORMED]
    singly = [
        {MALFORMED: NO_VALUE} if value is None else read_row(value.decode(errors="replace"), fields)
        for value in values.to_pylist()
    ]
    assert together == comparable(pa.Table.from_pylist(singly, COLUMNS))
