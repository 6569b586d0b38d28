"""An alert says what happened, whose the subscription is, since when, and what was given with it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.core.arrays.jit import SubIds
from geoswarm.errors import SchemaError, SettingsError
from geoswarm.flow.stages.alerts import alerts_of
from geoswarm.model import ALERT, SUB_IDS

WORLD = gs.Contract(columns=90, rows=45, executors=3)
ALERTS = gs.Tuning(matches="alerts")
BOX = (0.0, 0.0, 2.0, 2.0)


def drive(*places: tuple[float, object]) -> pa.Table:
    """An event a second, each at x = its number, of an object."""
    return pa.table(
        {
            "event_id": np.arange(len(places)),
            "ts": pa.array(range(len(places)), pa.timestamp("s", "UTC")),
            "x": [x for x, _ in places],
            "y": np.ones(len(places)),
            "object_id": pa.array([name for _, name in places]),
        }
    )


def told(folder: Path, tables: list[pa.Table], *subscriptions: dict[str, Any], **given: Any) -> pa.Table:
    matches = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, given.pop("tuning", ALERTS), checkpoint=str(folder)) as engine:
        for number, said in enumerate(subscriptions, 1):
            engine.subscribe(number, BOX, **said)
        engine.start(events=tables, sink=matches, available_now=True, **given).wait()
    return matches.table()


def short(alerts: pa.Table) -> list[tuple[Any, ...]]:
    """Event, subscription, transition, the second since when, and the number in the sequence, in this order."""
    since = [None if at is None else at.timestamp() for at in alerts["since"].to_pylist()]
    names = ("event_id", "sub_id", "transition", "sequence")
    rows = zip(*(alerts[name].to_pylist() for name in names), since, strict=True)
    return sorted(((event, sub, kind, at, number) for event, sub, kind, number, at in rows), key=lambda row: row[:2])


def test_an_alert_says_what_happened_since_when_and_to_whom(tmp_path: Path) -> None:
    fixes = drive((9, "a"), (1, "a"), (1, "a"), (9, "a"), (1, "a"), (9, "a"), (1, None))
    alerts = told(
        tmp_path,
        [fixes.slice(0, 3), fixes.slice(3)],
        {"on": "enter", "user": "ana", "payload": {"route": [7]}},
        {"on": "exit", "user": "ben"},
        {"on": "dwell(1)"},
        {},
    )
    assert short(alerts) == [
        (1, 1, "enter", 1.0, 1),
        (1, 4, "inside", None, None),
        (2, 3, "dwell", 1.0, 1),
        (2, 4, "inside", None, None),
        (3, 2, "exit", 1.0, 1),
        (4, 1, "enter", 4.0, 2),
        (4, 4, "inside", None, None),
        (5, 2, "exit", 4.0, 2),
        (6, 4, "inside", None, None),
    ]
    assert [name for name in alerts.schema.names if name in ALERT.names] == ALERT.names
    rows = alerts.sort_by([("event_id", "ascending"), ("sub_id", "ascending")]).to_pylist()
    assert [(row["user"], row["payload"]) for row in rows[:2]] == [("ana", '{"route":[7]}'), ("", None)]
    assert rows[-1]["object_id"] is None


def test_a_sequence_begins_again_when_its_last_alert_is_long_ago(tmp_path: Path) -> None:
    places = [(x, "a") for x in (1.0, 9.0, 1.0, *[9.0] * 9, 1.0, 9.0, 1.0)]
    tuning = gs.Tuning(matches="alerts", object_ttl_s=7.0)
    alerts = told(tmp_path, [drive(*places)], {"on": "enter"}, tuning=tuning)
    assert [row[-1] for row in short(alerts)] == [1, 2, 1, 2]


def test_events_without_objects_have_alerts_of_inside_only(tmp_path: Path) -> None:
    fixes = drive((1, "a"), (9, "a"), (1, "b")).drop_columns(["object_id"])
    for folder, others in (("plain", []), ("followers", [{"on": "enter"}])):
        alerts = told(tmp_path / folder, [fixes], {"user": "ana"}, *others)
        assert short(alerts) == [(0, 1, "inside", None, None), (2, 1, "inside", None, None)]
        assert set(alerts["user"].to_pylist()) == {"ana"}


def test_a_stage_on_matches_is_given_the_alerts(tmp_path: Path) -> None:
    counted = gs.sinks.Memory()
    stage = gs.Stage(gs.operators.Count(key="transition"), counted, on="matches")
    told(tmp_path, [drive((9, "a"), (1, "a"), (9, "a"))], {"on": "enter"}, {"on": "exit"}, {}, stages=[stage])
    rows = counted.table().to_pylist()
    assert {row["key"]: row["count"] for row in rows} == {"enter": 1, "exit": 1, "inside": 1}


def test_a_column_that_alerts_have_themselves_is_refused(tmp_path: Path) -> None:
    fixes = drive((1, "a")).append_column("user", pa.array(["mine"]))
    with pytest.raises(SchemaError, match=r'a column user, which alerts have of their own: .* event_user = "user"'):
        told(tmp_path, [fixes])


def test_arrays_of_a_stream_that_had_alerts_before_go_on_with_its_stays(tmp_path: Path) -> None:
    fixes = drive((1, "a"), (9, "a"), (1, "a"), (9, "a"))
    assert len(told(tmp_path, [fixes.slice(0, 2)], {"on": "exit"}, {"on": "enter"})) == 2
    arrays = told(tmp_path, [fixes.slice(0, 2), fixes.slice(2, 1)], tuning=gs.Tuning())
    assert arrays["sub_ids"].to_pylist() == [[2]]
    again = told(tmp_path, [fixes.slice(0, 2), fixes.slice(2, 1), fixes.slice(3)])
    assert short(again) == [(3, 1, "exit", 2.0, 1)], "arrays keep no sequence"


class _Subscribers:
    """Those of a batch whose payloads are long."""

    def users(self, ids: SubIds) -> pa.Array:
        return pa.array([f"u{i}" for i in ids.tolist()])

    def payloads(self, ids: SubIds) -> pa.Array:
        return pa.array([json.dumps("x" * 1000) if i % 2 else None for i in ids.tolist()], pa.large_string())


def test_no_batch_of_alerts_is_larger_than_it_may_be() -> None:
    events = worlds.events(np.random.default_rng(0), 40)
    lists = pa.array([list(range(i % 7)) for i in range(40)], SUB_IDS.type)
    rows = pa.record_batch([*events.columns, lists], schema=events.schema.append(SUB_IDS))
    parts = list(alerts_of(rows, events.schema.names, _Subscribers(), bytes_max=5000))  # type: ignore[arg-type]
    assert len(parts) > 5
    assert max(part.nbytes for part in parts) < 10_000
    whole = pa.Table.from_batches(parts)
    pairs = [(i, sub) for i in range(40) for sub in range(i % 7)]
    assert list(zip(whole["event_id"].to_pylist(), whole["sub_id"].to_pylist(), strict=True)) == pairs
    assert whole["user"].to_pylist() == [f"u{sub}" for _, sub in pairs]


@pytest.mark.parametrize(
    ("form", "key", "says"),
    [
        ("arrays", "subscription", 'rows have no column sub_id; set .tuning. matches = "alerts" or "pairs"'),
        ("pairs", "object", "rows have no column object_id; choose another key"),
    ],
)
def test_messages_cannot_be_keyed_by_what_rows_lack(tmp_path: Path, form: Any, key: Any, says: str) -> None:
    fixes = drive((1, "a")).drop_columns(["object_id"])
    away = gs.sinks.Kafka("127.0.0.1:1", "matches", key=key)
    with (
        gs.LocalEngine(WORLD, gs.Tuning(matches=form), checkpoint=str(tmp_path)) as engine,
        pytest.raises(SettingsError, match=says),
    ):
        engine.start(events=fixes, sink=away, available_now=True).wait()
    with pytest.raises(SettingsError, match="key"):
        gs.sinks.Kafka("127.0.0.1:1", "matches", key="vehicle")  # type: ignore[arg-type]
