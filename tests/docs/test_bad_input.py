"""Each row of the docs' tables of bad input is run, and comes out as the row says: subscriptions for objects and on
conditions, alerts, and questions to the collection. Those of GPS rules are in `tests/flow/test_alert_rules.py`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoswarm as gs
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import GeoswarmError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import conform_operations, validate_operations
from geoswarm.run import questions
from geoswarm.service import subscriptions as service
from geoswarm.service.cli.settings_file import read_settings
from geoswarm.service.init import write_example
from geoswarm.store.key_source import KEY_FILE, make_key_file
from geoswarm.store.manifest import newest

DOCS = Path(__file__).parents[2] / "docs"
BOX = (0.0, 0.0, 2.0, 2.0)
WORLD = gs.Contract(columns=90, rows=45, executors=2)
ALERTS = gs.Tuning(matches="alerts")


def table_below(page: str, heading: str, first: str) -> dict[str, str]:
    """The outcomes of a table, by their inputs; it begins with the column `first`."""
    text = (DOCS / page).read_text().partition(f"\n{heading}\n")[2]
    rows = text.partition(f"\n| {first} |")[2].split("\n\n")[0].splitlines()[2:]
    found = dict(row.strip("| ").split(" | ", 1) for row in rows)
    assert len(found) >= 10, "ten kinds of bad input"
    return found


# -- who and what


SENT = table_below("running.md", "## Who and what", "sent")
IN_WORDS: dict[str, list[dict[str, Any]]] = {
    "`where` of more than 4096 characters": [{"where": f"speed = {'1' * 8004}"}],
    "`objects` of 1001 ids": [{"objects": str(list(range(1001)))}],
    "an id of 300 bytes, or of none": [{"objects": f'["{"a" * 300}"]'}, {"objects": '[""]'}],
}
OF_STREAMS = {
    "`where = \"speed > 'fast'\"` while a stream with numbers in `speed` runs",
    '`where = "altitude > 3"`, and events have no such column',
    "`where` with `since`, on a column that is not kept",
}
"""Of a stream that runs: `tests/run/local/test_who_and_what.py`, and below."""


def subscriptions_of(sent: str) -> list[dict[str, Any]]:
    """What a row of the table says that is sent; a value without a name is of the one before."""
    if sent in IN_WORDS:
        return IN_WORDS[sent]
    asked, name = [], ""
    for span in re.findall(r"`(.*?)`", sent):
        named = re.fullmatch(r"(\w+) = (.*)", span)
        name, value = (named[1], named[2]) if named else (name, span)
        asked.append({name: value[1:-1] if value.startswith('"') else value})
    return asked


def dead_letters_of(**asked: Any) -> list[dict[str, Any]]:
    names = dict.fromkeys(OPERATION.names) | {"op": "register", "sub_id": 7}
    row = names | dict(zip(("xmin", "ymin", "xmax", "ymax"), BOX, strict=True)) | asked
    dead = DeadLetters("operation", 0)
    batch = conform_operations(pa.Table.from_pylist([row], schema=OPERATION)).to_batches()[0]
    validate_operations(batch, Grid(-180.0, -90.0, 180.0, 90.0, columns=90, rows=45), 0, dead)
    letters: list[dict[str, Any]] = dead.table().to_pylist()
    return letters


@pytest.mark.parametrize("sent", [sent for sent in SENT if sent not in OF_STREAMS])
def test_a_subscription_for_objects_or_on_conditions_is_refused_as_the_docs_say(sent: str) -> None:
    asked = subscriptions_of(sent)
    assert asked
    said = re.sub(r"^dead letter `\w+`: ", "", SENT[sent])
    for each in asked:
        (letter,) = dead_letters_of(**each)
        assert letter["reason"] == next(iter(each))
        if each == asked[0]:
            assert said in letter["detail"]


def run_stream(folder: Path, *, tuning: gs.Tuning = ALERTS, sink: Any = None, **how: Any) -> Any:
    """Two events of an object with the columns `more`, and a subscription on enter; gives the matches."""
    more, asked = how.get("more", {}), {"on": "enter", **how.get("asked", {})}
    columns = {
        "event_id": [1, 2],
        "ts": pa.array([1, 2], pa.timestamp("s", "UTC")),
        "x": [1.0, 9.0],
        "y": [1.0, 1.0],
        "object_id": ["a", "b"],
        **more,
    }
    events = pa.table({name: values for name, values in columns.items() if values is not None})
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(folder)) as engine:
        engine.subscribe(7, BOX, **asked)
        matches = gs.sinks.Memory() if sink is None else sink
        engine.start(events=events, sink=matches, available_now=True).wait()
        return engine.status() if how.get("status") else matches.table() if sink is None else None


def test_conditions_that_a_stream_has_no_column_for_come_out_as_the_docs_say(tmp_path: Path) -> None:
    assert set(SENT) >= OF_STREAMS
    asked = {"on": None, "where": "altitude > 3"}
    (lacking,) = run_stream(tmp_path / "a", asked=asked, status=True)["lacking"]
    assert lacking["column"] == "altitude"
    kept = gs.Tuning(window=gs.WindowSettings(keep="1 hour", columns=["speed"]))
    with pytest.raises(GeoswarmError, match="altitude is not kept: name it in the columns of"):
        run_stream(tmp_path / "b", tuning=kept, asked={**asked, "since": "1 hour"}, more={"speed": [1.0, 2.0]})


# -- alerts


def refused(folder: Path, says: str, **how: Any) -> None:
    with pytest.raises(GeoswarmError, match=says):
        run_stream(folder, **how)


def takes_reserved_columns(folder: Path) -> None:
    for name in ("sub_id", "user", "transition", "since", "sequence", "payload", "ended_reason"):
        refused(folder / name, rf"{name}.*, which (alerts have|matches use)", more={name: ["mine", "mine"]})


def has_no_objects(folder: Path) -> None:
    assert run_stream(folder / "a", more={"object_id": None}).num_rows == 0
    inside = run_stream(folder / "b", more={"object_id": None}, asked={"on": None})
    assert inside["transition"].to_pylist() == ["inside"]
    (lacking,) = run_stream(folder / "c", more={"object_id": None}, status=True)["lacking"]
    assert lacking["column"] == "object_id"


def has_a_null_object(folder: Path) -> None:
    assert run_stream(folder / "a", more={"object_id": [None, "b"]}).num_rows == 0
    assert run_stream(folder / "b", more={"object_id": [None, "b"]}, asked={"on": None}).num_rows == 1


def has_no_user(folder: Path) -> None:
    (alert,) = run_stream(folder).to_pylist()
    assert (alert["user"], alert["payload"]) == ("", None)


def has_a_bad_payload(folder: Path) -> None:
    for payload, reason in (("{a", "payload"), (f'"{"a" * 10_000}"', "too-long")):
        (letter,) = dead_letters_of(payload=payload)
        assert letter["reason"] == reason


def has_a_table_of_arrays(folder: Path) -> None:
    pytest.importorskip("deltalake")
    run_stream(folder / "a", tuning=gs.Tuning(), asked={"on": None}, sink=gs.sinks.Delta(str(folder / "table")))
    refused(folder / "b", "transition", sink=gs.sinks.Delta(str(folder / "table")))


def is_none_of_the_forms(folder: Path) -> None:
    settings = write_example(folder, "start").settings_file
    settings.write_text(f'{settings.read_text()}\n[tuning]\nmatches = "rows"\n')
    with pytest.raises(GeoswarmError, match=r"line \d+: .*matches"):
        read_settings(settings)


def was_another_form(folder: Path) -> None:
    run_stream(folder, tuning=gs.Tuning())
    later = pa.table({"event_id": [3], "ts": pa.array([3], pa.timestamp("s", "UTC")), "x": [9.0], "y": [1.0],
                      "object_id": ["a"]})  # fmt: skip
    first = pa.table({"event_id": [1], "ts": pa.array([1], pa.timestamp("s", "UTC")), "x": [1.0], "y": [1.0],
                      "object_id": ["a"]})  # fmt: skip
    state = str(folder / "again")
    for tuning, tables in ((gs.Tuning(), [first]), (ALERTS, [first, later])):
        with gs.LocalEngine(WORLD, tuning, checkpoint=state) as engine:
            if len(tables) == 1:
                engine.subscribe(7, BOX, on="exit")
            matches = gs.sinks.Memory()
            engine.start(events=tables, sink=matches, available_now=True).wait()
    (alert,) = matches.table().to_pylist()
    assert (alert["transition"], alert["sequence"]) == ("exit", 1)


def is_keyed_by_what_arrays_lack(folder: Path) -> None:
    away = gs.sinks.Kafka("127.0.0.1:1", "matches", key="subscription")
    refused(folder, 'set .tuning. matches = "alerts"', tuning=gs.Tuning(), asked={"on": None}, sink=away)


def is_keyed_by_objects_that_are_not(folder: Path) -> None:
    away = gs.sinks.Kafka("127.0.0.1:1", "matches", key="object")
    refused(folder, "choose another key", more={"object_id": None}, asked={"on": None}, sink=away)


def is_keyed_by_what_there_is_not(folder: Path) -> None:
    with pytest.raises(GeoswarmError, match="key"):
        gs.sinks.Kafka("127.0.0.1:1", "matches", key="vehicle")  # type: ignore[arg-type]


ALERT_INPUTS = table_below("running.md", "### Alerts", "input")
OF_ALERTS: dict[str, Callable[[Path], None]] = dict(
    zip(
        (
            "events with a column `sub_id`, `user`, `transition`, `since`, `sequence`, `payload` or `ended_reason`",
            "events without a column `object_id`",
            "an `object_id` that is null",
            "a subscription without a `user`, or without a `payload`",
            "a `payload` that is no JSON; with more than 10,000 bytes",
            "a sink that holds rows of another form already (a Delta table of arrays)",
            "`matches` is none of arrays, pairs, alerts",
            "`matches` is another one at the next start",
            'Kafka with `key = "subscription"`, and `matches = "arrays"`',
            'Kafka with `key = "object"`, and events without a column `object_id`',
            "Kafka with a `key` that is none of event, object, subscription",
        ),
        (
            takes_reserved_columns,
            has_no_objects,
            has_a_null_object,
            has_no_user,
            has_a_bad_payload,
            has_a_table_of_arrays,
            is_none_of_the_forms,
            was_another_form,
            is_keyed_by_what_arrays_lack,
            is_keyed_by_objects_that_are_not,
            is_keyed_by_what_there_is_not,
        ),
        strict=True,
    )
)


@pytest.mark.parametrize("given", ALERT_INPUTS)
def test_what_alerts_cannot_have_comes_out_as_the_docs_say(given: str, tmp_path: Path) -> None:
    OF_ALERTS[given](tmp_path)


# -- the collection


SUB_IDS_MAX = 2_000
"""A smaller limit, so that a question beyond it is quick."""
QUESTIONS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "a column in `where` that there is not; a condition that cannot be read, or compares a number with a text": [
        ({"where": "usr = 'ana'"}, "character 1 .* did you mean 'user'"),
        ({"where": "user >"}, "character 7"),
        ({"where": "xmin > 'a'"}, "character 8 .*numbers"),
    ],
    "`limit` 0, negative or above a million": [({"limit": n}, "1 to 1000000") for n in (0, -1, 1_000_001)],
    "a rectangle with min > max, without an area, or with three sides": [
        ({"region": (2, 1, 1, 2)}, "swap them"),
        ({"region": (1, 1, 1, 2)}, "widen it"),
        ({"region": (1, 2, 3)}, "four sides"),
    ],
    "a region outside the world": [({"region": (170, 0, 190, 10)}, "clip it to")],
    "a geometry that cannot be read; a point or a line as region": [
        ({"region": "POLYGON((0 0"}, "the query"),
        ({"region": "POINT(1 1)"}, "no area"),
        ({"region": "LINESTRING(1 1, 2 2)"}, "no area"),
    ],
    "a `predicate` that there is not, or without a region": [
        ({"region": BOX, "predicate": "near"}, "ask for one of"),
        ({"predicate": "within"}, "needs a region"),
    ],
    "`after` that is no integer, or beyond 64 bits": [
        ({"after": "7"}, "whole number"),
        ({"after": 1 << 63}, "64 bits"),
    ],
    "`sub_ids` that are no integers, or more than a million; one text instead of a list": [
        ({"sub_ids": ["a"]}, "whole number"),
        ({"sub_ids": "7"}, "give a list of ids"),
        ({"sub_ids": range(SUB_IDS_MAX + 1)}, f"{SUB_IDS_MAX + 1} sub_ids: ask for at most {SUB_IDS_MAX}"),
    ],
}


def is_no_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GeoswarmError, match="is no checkpoint"):
        gs.Subscriptions(str(folder / "none"))


def has_a_damaged_segment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gs.LocalEngine(WORLD, checkpoint=str(folder)) as engine:
        engine.subscribe(1, BOX)
        (entry,) = newest(engine._checkpoint.storage).segments
    file = folder / "subscriptions" / f"{entry.name}.records"
    raw = bytearray(file.read_bytes())
    raw[100] ^= 1
    file.write_bytes(raw)
    with pytest.raises(GeoswarmError, match=f"{entry.name}.records"):
        gs.Subscriptions(str(folder)).page()


def cannot_be_exported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gs.LocalEngine(WORLD, checkpoint=str(folder / "state")) as engine:
        engine.subscribe(1, BOX)
    live = gs.Subscriptions(str(folder / "state"))
    for name, says in (("all.csv", ".parquet or .geojson"), ("none/all.parquet", "there is no folder")):
        with pytest.raises(GeoswarmError, match=says):
            service.export(live, folder / name)
    assert [file.name for file in folder.iterdir()] == ["state"]


def has_lost_its_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_key_file(folder / "key")
    monkeypatch.setenv(KEY_FILE, str(folder / "key"))
    with gs.LocalEngine(WORLD, checkpoint=str(folder / "state")) as engine:
        engine.subscribe(1, BOX)
    monkeypatch.delenv(KEY_FILE)
    with pytest.raises(GeoswarmError, match=KEY_FILE):
        gs.Subscriptions(str(folder / "state")).page()


def asks_for_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gs.LocalEngine(WORLD, checkpoint=str(folder)) as engine:
        engine.subscribe(1, BOX, user="ana")
        assert engine.subscription(2) is None
        assert len(engine.subscriptions(user="eve")) == 0 < len(engine.subscriptions(user="ana"))


def asks_for_no_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gs.LocalEngine(WORLD.model_copy(update={"subscription_ids": "text"}), checkpoint=str(folder)) as engine:
        for question in ({"sub_ids": [1.5]}, {"sub_ids": [None]}, {"after": 1.5}):
            with pytest.raises(GeoswarmError, match="give a text, a UUID or an integer"):
                engine.subscriptions(**question)


OF_COLLECTION: dict[str, Callable[[Path, pytest.MonkeyPatch], None]] = {
    "a folder that is no checkpoint": is_no_checkpoint,
    "a segment that is damaged or missing": has_a_damaged_segment,
    "an export to a file that is neither `.parquet` nor `.geojson`, or into a folder that there is not": (
        cannot_be_exported
    ),
    "an encrypted checkpoint without its key": has_lost_its_key,
    "an id that no live subscription has; a user whom there is not": asks_for_nobody,
    "an id, or `after`, that is neither a text nor a UUID nor an integer, where ids are texts": asks_for_no_text,
}


@pytest.mark.parametrize("asked", table_below("subscriptions.md", "## What cannot be answered", "asked"))
def test_a_question_to_the_collection_comes_out_as_the_docs_say(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if asked in OF_COLLECTION:
        OF_COLLECTION[asked](tmp_path, monkeypatch)
        return
    if "`sub_ids`" in asked:
        monkeypatch.setattr(questions, "PAGE_ROWS_MAX", SUB_IDS_MAX)
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        for question, says in QUESTIONS[asked]:
            with pytest.raises(GeoswarmError, match=says):
                engine.subscriptions(**question)
