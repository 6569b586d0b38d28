"""A stream that matches nothing, although events come and subscriptions are live, says after a minute, or at its end,
why it may be."""

import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import geoswarm as gs
from geoswarm.core.journal_entry_base import JournalEntry
from geoswarm.errors import CorruptState
from geoswarm.flow.silence import SILENCE_US
from geoswarm.model import TIMESTAMP
from geoswarm.run import silence_watch
from geoswarm.run.local.sources import TableSource
from geoswarm.run.rows import Rows
from geoswarm.run.stream_log import Offset
from geoswarm.service.cli.run_view import status_table
from geoswarm.service.watch import status as checkpoint_status
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry, SilenceEntry
from geoswarm.store.storage import Storage

PARIS = (2.2, 48.8, 2.5, 48.9)
METRES = 111_319.49


def near_paris(seed: int = 0, count: int = 50) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.uniform(2.25, 2.45, count), rng.uniform(48.81, 48.89, count)


def events(x: Any, y: Any, number: int, **further: Any) -> pa.Table:
    ids = np.arange(len(x)) + 1000 * number
    columns = {"event_id": ids, "ts": pa.array(ids).cast(TIMESTAMP), "x": pa.array(x), "y": pa.array(y)}
    return pa.table(columns | further)


class Clock:
    """A minute and a half for three batches."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 15.0
        return self.now_s


def journal(folder: Path) -> list[JournalEntry]:
    return list(JournalReader(Storage(str(folder))).read(BatchEntry, SilenceEntry))


def run(folder: Path, tables: list[pa.Table], contract: gs.Contract | None = None, **asked: Any) -> dict[str, Any]:
    with gs.LocalEngine(contract or gs.Contract(executors=2), checkpoint=str(folder), clock=Clock()) as engine:
        engine.subscribe(1, asked.pop("rectangle", PARIS), replace=True, **asked)
        engine.start(events=tables, sink=gs.sinks.Noop(), available_now=True).wait()
        return engine.status()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, y: (y, x), "latitude and longitude may be exchanged"),
        (lambda x, y: (x * METRES, y * METRES), "are dead letters"),
        (lambda x, y: (x * 1e6, y * 1e6), "x and y may be millionths of degrees"),
        (lambda x, y: (x * 1e7, y * 1e7), "x and y may be ten-millionths of degrees"),
        (lambda x, y: (-x, y), "x may have the wrong sign"),
        (lambda x, y: (x + 90, y - 20), "events lie within (92.2"),
    ],
)
def test_places_that_are_wrong_are_said(
    tmp_path: Path, change: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        moved = [change(*near_paris(n)) for n in range(8)]
        found = run(tmp_path, [events(x, y, n) for n, (x, y) in enumerate(moved)])
    assert said in "; ".join(found["silent"])
    (record,) = [r.getMessage() for r in caplog.records if "no event has matched for" in r.getMessage()]
    assert said in record
    shown = status_table(checkpoint_status(str(tmp_path)))
    assert "matches nothing" in list(shown.columns[0].cells)


def test_metres_of_web_mercator_are_said_both_ways(tmp_path: Path) -> None:
    from geoswarm.flow.silence import MISTAKES, _to_degrees, _to_metres

    x, y = near_paris()
    back = _to_degrees(_to_metres((x, y)))
    assert np.allclose(back, (x, y))
    metres = _to_metres((x, y))
    in_degrees = run(tmp_path / "a", [events(*metres, n) for n in range(8)])
    assert "x and y may be metres of Web Mercator" in "; ".join(in_degrees["silent"])
    (low, high) = (_to_metres((np.array(PARIS[0::2]), np.array(PARIS[1::2])))[axis] for axis in (0, 1))
    world = gs.Contract(bounds=(-2.1e7, -2.1e7, 2.1e7, 2.1e7), executors=2)
    rectangle = (low[0], high[0], low[1], high[1])
    in_metres = run(tmp_path / "b", [events(x, y, n) for n in range(8)], world, rectangle=rectangle)
    assert "x and y may be degrees, where subscriptions have metres" in "; ".join(in_metres["silent"])
    assert len(MISTAKES) == 6


@pytest.mark.parametrize(
    ("asked", "further", "said"),
    [
        ({"keywords": "flood"}, {}, "the events have no column text"),
        ({"keywords": "flood"}, {"text": pa.nulls(50, pa.string())}, "lie in rectangles of subscriptions, so it is"),
        ({"keywords": "flood"}, {"text": pa.nulls(50, pa.string())}, "all events are without a text"),
        ({"keywords": "flood"}, {"text": pa.array(["sun"] * 50)}, "100% of the events lie in rectangles"),
    ],
)
def test_words_that_are_missing_are_said(tmp_path: Path, asked: Any, further: Any, said: str) -> None:
    found = run(tmp_path, [events(*near_paris(n), n, **further) for n in range(8)], **asked)
    assert said in "; ".join(found["silent"])


def test_a_match_ends_it_and_less_than_a_minute_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x, y = near_paris()
    swapped, right = [events(y, x, n) for n in range(8)], events(x, y, 100)
    assert run(tmp_path / "a", swapped)["silent"]
    assert not run(tmp_path / "b", [*swapped, right])["silent"]
    assert "no event has matched for" in caplog.text
    caplog.clear()
    run(tmp_path / "c", swapped[:2])
    *batches, end = journal(tmp_path / "c")
    assert [entry.silent_why for entry in batches if isinstance(entry, BatchEntry)] == [(), ()]
    assert isinstance(end, SilenceEntry), "it is said at the end of the stream only"
    last = run(tmp_path / "d", [*swapped[:2], right, *swapped[2:4]])["last_batch"]
    assert last["silent_since_us"] is not None
    assert not last["silent_why"]
    assert "no event has matched for" not in caplog.text
    assert SILENCE_US == 60_000_000


def test_a_stream_that_ends_without_any_match_says_why_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = near_paris()
    said = run(tmp_path / "a", [events(y, x, 0)])
    assert "latitude and longitude may be exchanged" in said["silent"][0]
    assert "no event has matched: latitude and longitude may be exchanged" in caplog.text
    assert (said["batches"], said["events"]) == (1, 50), "the batch counts once"
    batch, end = journal(tmp_path / "a")
    assert (type(batch), type(end)) == (BatchEntry, SilenceEntry), "and is in the journal once"
    again = run(tmp_path / "a", [events(y, x, 0), events(x, y, 1)])
    assert not again["silent"], "what has matched is silent no more"
    caplog.clear()
    assert not run(tmp_path / "b", [events(x, y, 0), events(y, x, 1)])["silent"], "one of this run has matched"
    assert "matched" not in caplog.text


def test_small_fences_are_enough_to_see_what_is_exchanged(tmp_path: Path) -> None:
    x, y = near_paris()
    fences = [(x[k] - 0.001, y[k] - 0.001, x[k] + 0.001, y[k] + 0.001) for k in (np.argmin(x), np.argmax(x))]
    fences += [(x[k] - 0.001, y[k] - 0.001, x[k] + 0.001, y[k] + 0.001) for k in (np.argmin(y), np.argmax(y))]
    said = {}
    for name, table in (("swapped", events(y, x, 0)), ("elsewhere", events(x + 0.003, y - 0.003, 0))):
        with gs.LocalEngine(gs.Contract(executors=2), checkpoint=str(tmp_path / name)) as engine:
            for number, fence in enumerate(fences):
                engine.subscribe(number, fence)
            engine.start(events=[table], sink=gs.sinks.Noop(), available_now=True).wait()
            said[name] = "; ".join(engine.status()["silent"])
    assert "exchanged" in said["swapped"]
    assert "undone, 8% of the events" in said["swapped"]
    assert "undone" not in said["elsewhere"], "between fences, as they should be"


def test_the_status_shows_names_of_sections_as_they_are(tmp_path: Path) -> None:
    x, y = near_paris()
    run(tmp_path, [events(x, y, 0)], gs.Contract(bounds=(0.0, 0.0, 2.0, 2.0), executors=2), rectangle=(0, 0, 1, 1))
    names, values = status_table(checkpoint_status(str(tmp_path))).columns
    terminal = Console(file=io.StringIO(), width=400)
    terminal.print(dict(zip(names.cells, values.cells, strict=True))["matches nothing"])
    assert "see [contract] bounds" in terminal.file.getvalue()  # type: ignore[attr-defined]


def run_at(folder: Path, now_s: float, source: Any, sink: gs.sinks.Sink | None = None) -> list[str]:
    """A run at one time, to its end; gives what its status says."""
    with gs.LocalEngine(gs.Contract(executors=2), checkpoint=str(folder), clock=lambda: now_s) as engine:
        engine.subscribe(1, PARIS, replace=True)
        engine.start(events=source, sink=sink or gs.sinks.Noop(), available_now=True).wait()
        said: list[str] = engine.status()["silent"]
        return said


def test_silence_goes_on_through_a_restart_and_batches_without_events(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = near_paris()
    tables = [events(y, x, n) for n in range(6)]
    empty = tables[0].slice(0, 0)
    assert run_at(tmp_path, 0.0, tables[:1]), "it has ended without a match"
    assert "no event has matched for" not in caplog.text
    assert "exchanged" in run_at(tmp_path, 61.0, [tables[0], empty, *tables[1:3]])[0]
    assert "no event has matched for 61 s" in caplog.text
    batches = [entry for entry in journal(tmp_path) if isinstance(entry, BatchEntry)]
    assert [entry.silent_since_us for entry in batches] == [0, 0, 0, 0]


def test_each_run_says_its_own_reason_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x, y = near_paris()
    tables = [events(y, x, 0), *(events(x * 1e6, y * 1e6, n) for n in (1, 2)), events(-x, y, 3)]
    mistakes = ("latitude and longitude may be exchanged", "millionths of degrees", "x may have the wrong sign")
    for now_s, count, mistake in zip((0.0, 300.0, 330.0), (1, 3, 4), mistakes, strict=True):
        caplog.clear()
        said = "; ".join(run_at(tmp_path, now_s, tables[:count]))
        assert [each for each in mistakes if each in said] == [mistake]
        (record,) = [r.getMessage() for r in caplog.records if "no event has matched" in r.getMessage()]
        assert mistake in record


class FailsAt(gs.sinks.Sink):
    def __init__(self, batch: int) -> None:
        self._batch = batch

    def write(self, matches: Rows, batch_id: int) -> None:
        if batch_id == self._batch:
            raise OSError("the disk is full")
        matches.run()


class GoneAfterOneBatch(TableSource):
    def latest(self, start: Offset | None) -> Offset | None:
        if start is not None:
            raise OSError("the source is gone")
        return super().latest(start)


def test_a_stream_that_an_error_ends_says_the_error_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x, y = near_paris()
    tables = [events(y, x, n) for n in range(2)]
    with pytest.raises(OSError, match="the disk is full"):
        run_at(tmp_path / "sink", 0.0, tables, FailsAt(1))
    with pytest.raises(OSError, match="the source is gone"):
        run_at(tmp_path / "source", 0.0, GoneAfterOneBatch(tables))
    assert "no event has matched" not in caplog.text
    for name in ("sink", "source"):
        assert [type(entry) for entry in journal(tmp_path / name)] == [BatchEntry]


def test_a_stream_that_is_stopped_says_why_none_has_matched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x, y = near_paris()
    with gs.LocalEngine(gs.Contract(executors=2), checkpoint=str(tmp_path), clock=lambda: 0.0) as engine:
        engine.subscribe(1, PARIS)
        stream = engine.start(events=[events(y, x, 0)], sink=gs.sinks.Noop())
        stream.drain()
        assert "no event has matched" not in caplog.text
        stream.stop()
        assert "exchanged" in engine.status()["silent"][0]
    assert "the stream has ended, and no event has matched: latitude" in caplog.text


def test_a_stream_has_ended_well_even_if_why_none_has_matched_cannot_be_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> list[str]:
        raise CorruptState("segment 3 is damaged")

    monkeypatch.setattr(silence_watch, "reasons", fail)
    x, y = near_paris()
    assert run_at(tmp_path, 0.0, [events(y, x, 0)]) == []
    assert "no event has matched; why cannot be found: segment 3 is damaged" in caplog.text


def test_events_without_an_object_or_a_text_are_counted_while_somebody_asks(tmp_path: Path) -> None:
    x, y = near_paris()
    objects, texts = pa.array([None] * 20 + [1] * 30, pa.int64()), pa.array([None] * 5 + ["flood"] * 45, pa.string())
    tables = [events(x, y, n, object_id=objects, text=texts) for n in range(2)]
    plain = run(tmp_path / "plain", tables)
    assert (plain["without_object"], plain["without_text"]) == (0, 0)
    asked = run(tmp_path / "asked", tables, on="enter", keywords="flood")
    assert (asked["without_object"], asked["without_text"]) == (40, 10)
    shown = status_table(checkpoint_status(str(tmp_path / "asked")))
    assert any("while subscriptions follow objects: 40" in str(cell) for cell in shown.columns[1].cells)
