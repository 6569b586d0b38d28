"""A subscription that asks for what the stream's events lack is said: at the start, and in `status`, also when it comes
later. It is not refused, and matches once a stream has the column."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest

import geoswarm as gs
from geoswarm.config import Contract, Tuning
from geoswarm.model import TIMESTAMP
from geoswarm.service.cli.run_view import status_table
from geoswarm.service.watch import status

BOX = (0.0, 0.0, 9.0, 9.0)


def plain_events(first_id: int, **more: list[object]) -> pa.Table:
    ids = [first_id, first_id + 1]
    columns = {"event_id": ids, "ts": pa.array(ids).cast(TIMESTAMP), "x": [1.0, 2.0], "y": [1.0, 2.0]}
    return pa.table({**columns, **more})


def engine_at(folder: Path) -> gs.LocalEngine:
    return gs.LocalEngine(Contract(executors=2), Tuning(matches="pairs"), checkpoint=str(folder / "state"))


def test_a_stream_without_a_column_says_who_asks_for_it_and_a_later_stream_may_have_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine_at(tmp_path) as engine:
        engine.subscribe(5, BOX, keywords="flood")
        engine.subscribe(3, BOX, keywords="sun OR rain")
        engine.subscribe(4, BOX, keywords="snow")
        engine.subscribe(7, BOX, on="dwell(1)")
        engine.subscribe(8, BOX)
        engine.cancel(3)
        assert engine.status()["lacking"] == []  # no stream yet
        with caplog.at_level(logging.WARNING):
            engine.start(events=plain_events(0), sink=(sink := gs.sinks.Memory()), available_now=True).wait()
        said = [record.message for record in caplog.records if "no column" in record.message]
        assert len(said) == 2
        assert said[0].startswith(
            "live subscriptions that ask for keywords: 2, 4 the first; the events have no column text"
        )
        assert said[1].startswith("live subscriptions that ask for enter, exit, cross or dwell: 1, 7 the first")
        assert {row["sub_id"] for row in sink.table().to_pylist()} == {8}
        engine.subscribe(1, BOX, on="enter")  # later than the start
        found = {each["column"]: (each["subscriptions"], each["sub_id"]) for each in engine.status()["lacking"]}
        assert found == {"text": (2, 4), "object_id": (2, 1)}
    outside = status(str(tmp_path / "state"))
    assert {each["column"]: (each["subscriptions"], each["sub_id"]) for each in outside["lacking"]} == found
    assert status_table(outside).row_count > status_table({**outside, "lacking": []}).row_count
    with engine_at(tmp_path) as engine:
        caplog.clear()
        came = plain_events(10, text=["flood", None], object_id=[1, 1])
        first = plain_events(0, text=["", ""], object_id=[1, 1])
        engine.start(events=[first, came], sink=(sink := gs.sinks.Memory()), available_now=True).wait()
        assert not [record for record in caplog.records if "no column" in record.message]
        assert {(row["event_id"], row["sub_id"]) for row in sink.table().to_pylist()} >= {(10, 5), (10, 1)}
        assert engine.status()["lacking"] == []


def test_status_of_a_stream_that_has_the_columns_reads_no_segment(tmp_path: Path) -> None:
    with engine_at(tmp_path) as engine:
        engine.subscribe(5, BOX, keywords="flood", on="enter")
        came = plain_events(0, text=["flood", None], object_id=[1, 1])
        engine.start(events=came, sink=gs.sinks.Noop(), available_now=True).wait()
    segments = list((tmp_path / "state" / "subscriptions").glob("*.records"))
    assert segments
    for file in segments:
        file.unlink()
    assert status(str(tmp_path / "state"))["lacking"] == []


def test_status_shows_the_rest_where_a_segment_is_damaged(tmp_path: Path) -> None:
    with engine_at(tmp_path) as engine:
        engine.subscribe(5, BOX, keywords="flood")
        engine.start(events=plain_events(0), sink=gs.sinks.Noop(), available_now=True).wait()
    for file in (tmp_path / "state" / "subscriptions").glob("*.records"):
        file.write_bytes(file.read_bytes()[:-100])
    found = status(str(tmp_path / "state"))
    assert found["batches"] == 1
    (unknown,) = found["lacking"]
    assert "is unknown" in unknown["what"]
    assert ".records" in unknown["what"]


def test_a_condition_that_does_not_fit_the_type_of_a_column_is_said_with_the_reason(tmp_path: Path) -> None:
    with engine_at(tmp_path) as engine:
        engine.subscribe(5, BOX, where="speed > 'fast'")
        engine.subscribe(6, BOX, where="speed > 80")
        engine.subscribe(7, BOX, where="altitude > 80 AND speed > 'fast'")
        events = plain_events(0, speed=[90.0, 10.0], text=["", ""], object_id=[1, 2])
        engine.start(events=events, sink=(sink := gs.sinks.Memory()), available_now=True).wait()
        assert {row["sub_id"] for row in sink.table().to_pylist()} == {6}
        found = engine.status()["lacking"]
        assert [(each["column"], each["subscriptions"], each["sub_id"]) for each in found] == [
            ("altitude", 1, 7),
            ("speed", 1, 5),
        ]
        assert "speed has numbers, and 'fast' is none" in found[1]["what"]
    outside = status(str(tmp_path / "state"))
    assert outside["lacking"] == found
    assert status_table(outside).row_count > status_table({**outside, "lacking": []}).row_count
