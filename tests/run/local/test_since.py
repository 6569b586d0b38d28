"""Subscribe and get the past first: nothing missing and nothing twice, against brute force."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.config import WindowSettings
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import InputError, SchemaError, SettingsError
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.run.oracle.past import PastOracle
from geoswarm.service.explain import kept_events
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.kept.files import PARTS_FOLDER, read_run, run_names
from geoswarm.store.storage import Storage

WORLD = gs.Contract(columns=30, rows=20, executors=3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = WindowSettings(keep="1 day", marks_past=True)
BATCHES = 5
SINCE = [None, "1970-01-01T00:00:00.002100+00:00", "1970-01-01T00:00+00:00", "900 s", "yesterday"]


def batch(seed: int, number: int, rows: int = 300) -> pa.Table:
    """Points and areas with texts, the times of which overlap those of other batches."""
    rng = np.random.default_rng((seed, number))
    events = worlds.with_texts(rng, worlds.events(rng, rows, first_id=1000 * number, snap=1.0))
    events = worlds.with_areas(rng, events, 0.2, snap=1.0)
    times = events["event_id"].to_numpy() + rng.integers(-1500, 1500, rows)
    return events.set_column(1, "ts", pa.array(np.maximum(times, 0)).cast(pa.timestamp("us", tz="UTC")))


def operations(seed: int, number: int, now_us: int) -> pa.Table:
    """A storm, in which some ask for the past, some of these on transitions."""
    rng = np.random.default_rng((seed, number, 1))
    drawn = worlds.operations(rng, 50, ids=40, now_us=now_us, lasts_us=5000)
    drawn = worlds.with_predicates(rng, worlds.with_keywords(rng, worlds.with_shapes(rng, drawn, snap=1.0), 0.4))
    drawn = drawn.append_column("on", pa.array([(None, "enter")[rng.random() < 0.05] for _ in range(50)], pa.string()))
    chosen = rng.choice(5, 50, p=[0.3, 0.25, 0.25, 0.15, 0.05])
    return drawn.append_column("since", pa.array([SINCE[k] for k in chosen]))


class Dies(gs.sinks.Memory):
    """Ends the process, as it were, before or after it has written a batch."""

    def __init__(self, at: tuple[str, int]) -> None:
        super().__init__()
        self.at = at

    def write(self, matches: Any, batch_id: int) -> None:
        if self.at == ("before", batch_id):
            raise RuntimeError("the process ended")
        super().write(matches, batch_id)
        if self.at == ("after", batch_id):
            raise RuntimeError("the process ended")


def play(folder: Path, seed: int, tuning: gs.Tuning, at: tuple[str, int] = ("", -1)) -> gs.sinks.Memory:
    """Each batch by an engine of its own, at a time of its own; one of them dies and is started again."""
    matches, told = gs.sinks.Memory(), dict[int, pa.Table]()
    for number in range(BATCHES):
        tables = [batch(seed, k) for k in range(number + 1)]
        asked = [operations(seed, k, 1000 * k) for k in range(number + 1)]
        clock = partial(float, number * 1e-3)
        for attempt in range(2):
            sink = Dies(at if not attempt else ("", -1))
            beside = Dies(("before", at[1]) if at[0] == "sealed" and not attempt else ("", -1))
            stage = gs.Stage(gs.operators.Count("event_id"), beside, tuning=gs.KeyTuning(executors=2))
            with gs.LocalEngine(WORLD, tuning, checkpoint=str(folder), clock=clock) as engine:
                run = engine.start(events=tables, operations=asked, sink=sink, stages=[stage], available_now=True)
                if not attempt and at[1] == number:
                    with pytest.raises(RuntimeError, match="the process ended"):
                        run.wait()
                else:
                    run.wait()
            told |= sink.batches
            for number_seen, table in sink.batches.items():
                known = matches.batches.setdefault(number_seen, table)
                assert known.equals(table), "a batch that is run again gives the same rows"
    return matches


def check(folder: Path, seed: int, matches: gs.sinks.Memory, window: WindowSettings) -> int:
    """Returns how many matches are of the past."""
    oracle, past, given = Oracle(worlds.BOUNDS), PastOracle(worlds.BOUNDS, window), 0
    entries = {entry.batch: entry for entry in JournalReader(Storage(str(folder))).read(BatchEntry)}
    for number in range(BATCHES):
        now_us = entries[number].now_us
        oracle.since_us.clear()
        assert oracle.operate(operations(seed, number, 1000 * number), now_us) == entries[number].operations_refused
        table = matches.batches[number]
        then, now = (pairs_of([table.filter(pa.array(is_it))]) for is_it in _past_and_not(table))
        want = past.pasts(oracle, now_us)
        assert sorted(then) == sorted(want)
        assert sorted(now) == sorted(oracle.deliver(batch(seed, number), now_us))
        assert entries[number].past_matches == len(want)
        past.take(batch(seed, number), now_us)
        given += len(want)
    return given


def _past_and_not(table: pa.Table) -> tuple[list[bool], list[bool]]:
    marks = table["past"].to_pylist()
    return marks, [not mark for mark in marks]


@pytest.mark.parametrize(("seed", "shape"), [(0, "pairs"), (1, "arrays"), (2, "alerts")])
def test_the_past_then_the_stream_is_what_brute_force_finds(
    tmp_path: Path, seed: int, shape: Literal["arrays", "pairs", "alerts"]
) -> None:
    """Also where batches have expired, and where terms are divided."""
    window = WindowSettings(keep=("1 day", "500 events", "0.003 s")[seed], marks_past=True)
    tuning = gs.Tuning(matches=shape, window=window, strategy=("auto", "ps2-hybrid", "swarm")[seed], deltas_max=2)
    assert check(tmp_path, seed, play(tmp_path, seed, tuning), window) > 20


@pytest.mark.parametrize("step", ["before", "after", "sealed"])
def test_a_batch_that_is_run_again_gives_the_same_past_although_the_window_goes_on(tmp_path: Path, step: str) -> None:
    """Every batch drops one from the window: what it was given of that one is given again."""
    window = WindowSettings(keep="200 events", marks_past=True)
    matches = play(tmp_path, 4, gs.Tuning(window=window), (step, 3))
    assert check(tmp_path, 4, matches, window) > 20
    assert any(matches.batches[3]["past"].to_pylist())
    storage = Storage(str(tmp_path))
    named = {part.name for name in run_names(storage) for part in read_run(storage, name).parts}
    assert set(storage.names(PARTS_FOLDER)) == named


def run(folder: Path, tables: list[pa.Table], window: WindowSettings = DAY, **given: Any) -> gs.sinks.Memory:
    with gs.LocalEngine(WORLD, gs.Tuning(window=window), checkpoint=str(folder)) as engine:
        engine.start(events=tables, sink=(matches := gs.sinks.Memory()), available_now=True, **given).wait()
    return matches


def test_a_thousand_at_once_get_what_each_would_find_alone(tmp_path: Path) -> None:
    tables, rng = [batch(1, k) for k in range(3)], np.random.default_rng(1)
    nothing = operation_table([])
    run(tmp_path, tables[:2], operations=[nothing, nothing])
    boxes = worlds.rectangles(rng, 1000, snap=1.0).tolist()
    asked = operation_table([registration(k, tuple(box), since=EPOCH) for k, box in enumerate(boxes)])
    found = run(tmp_path, tables, operations=[nothing, nothing, asked]).batches[2]
    then = pairs_of([found.filter(found["past"])])
    past = gs.Past(str(tmp_path))
    for k in range(0, 1000, 50):
        answer = past.query(tuple(boxes[k])).events["event_id"].to_pylist()
        assert sorted(e for e, sub in then if sub == k) == sorted(e for e in answer if e < 2000)
    assert len(then) > 1000
    assert found["past"].to_pylist() == sorted(found["past"].to_pylist(), reverse=True), "the past comes first"


def test_beyond_the_limit_each_gets_its_newest_and_the_journal_counts_the_others(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    tables = [pa.table(worlds.events(rng, 500, first_id=1000 * k)) for k in range(3)]
    window = DAY.model_copy(update={"past_matches_max": 300})
    run(tmp_path, tables[:2], window)
    with gs.LocalEngine(WORLD, gs.Tuning(window=window), checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, worlds.BOUNDS, since=EPOCH)
        engine.subscribe(2, (-10.0, -10.0, 10.0, 10.0), since=EPOCH)
        engine.subscribe(3, worlds.BOUNDS, since=EPOCH)
        engine.start(events=tables, sink=(matches := gs.sinks.Memory()), available_now=True).wait()
        small = engine.query((-10.0, -10.0, 10.0, 10.0))["event_id"].to_pylist()
    table = matches.batches[2]
    pairs = pairs_of([table.filter(table["past"])])
    held = [e for e in small if e < 2000]
    assert 0 < len(held) < 100
    assert sorted(e for e, sub in pairs if sub == 2) == sorted(held)
    share = (300 - len(held)) // 2
    newest = sorted((e for t in tables[:2] for e in t["event_id"].to_pylist()), reverse=True)[:share]
    assert sorted((e for e, sub in pairs if sub == 1), reverse=True) == newest
    last = JournalReader(Storage(str(tmp_path))).last(BatchEntry)
    assert last is not None
    assert (last.pasts, last.past_matches) == (3, len(pairs))
    assert last.past_left_out == 2 * (1000 - share)
    (given,) = [line for line in kept_events(Storage(str(tmp_path))) if "new subscriptions" in line]
    assert f"3 new subscriptions were given {len(pairs)} matches of it, and {2 * (1000 - share):,} were left" in given


def test_who_subscribes_before_the_stream_begins_waits_for_its_first_batch(tmp_path: Path) -> None:
    """A cancel ends the wait; so does a replace that does not ask again."""
    tables = [batch(1, k) for k in range(4)]
    run(tmp_path, tables[:2])
    with gs.LocalEngine(WORLD, gs.Tuning(window=DAY), checkpoint=str(tmp_path)) as engine:
        for sub_id in range(1, 6):
            engine.subscribe(sub_id, worlds.BOUNDS, since="1970-01-01")
        engine.cancel(2, 3)
        engine.subscribe(3, worlds.BOUNDS)
        engine.subscribe(4, worlds.BOUNDS, replace=True)
        engine.subscribe(5, (0.0, 0.0, 90.0, 90.0), replace=True, since="1970-01-01")
    matches = run(tmp_path, tables)
    then = [pairs_of([table.filter(table["past"])]) for table in matches.batches.values()]
    assert {sub for _, sub in then[0]} == {1, 5}
    past = gs.Past(str(tmp_path))
    for sub, box in ((1, worlds.BOUNDS), (5, (0.0, 0.0, 90.0, 90.0))):
        want = [e for e in past.query(box).events["event_id"].to_pylist() if e < 2000]
        assert sorted(e for e, owner in then[0] if owner == sub) == sorted(want)
    assert not then[1], "it is given once"


def test_a_past_that_was_promised_is_not_forgotten_by_a_change_of_settings(tmp_path: Path) -> None:
    tables = [batch(1, k) for k in range(2)]
    run(tmp_path, tables[:1])
    with gs.LocalEngine(WORLD, gs.Tuning(window=DAY), checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, worlds.BOUNDS, since="1 hour")
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        with pytest.raises(SettingsError, match="some subscriptions wait for the kept events that they asked for"):
            engine.start(events=tables, sink=gs.sinks.Noop(), available_now=True)
        engine.cancel(1)
        engine.start(events=tables, sink=(matches := gs.sinks.Memory()), available_now=True).wait()
    assert "past" not in matches.table().schema.names


@pytest.mark.parametrize(
    ("window", "said", "why"),
    [
        (None, {}, r"not given here: set \[window\] keep and marks_past = true"),
        (WindowSettings(keep="1 day"), {}, r"not given here: set \[window\] keep and marks_past = true"),
        (DAY, {"on": "enter"}, "is on enter: a transition has no past"),
        (DAY, {"since": "an hour"}, "since 'an hour': send a time such as 2026-01-31T12:00, or how long ago"),
        (DAY, {"since": "1" * 40 + "!"}, "send a time such as"),  # read in time that grows with its length only
        (DAY.model_copy(update={"columns": ()}), {"keywords": "flood"}, "name text in the columns"),
    ],
)
def test_a_past_that_cannot_be_given_is_refused_with_a_remedy(
    tmp_path: Path, window: WindowSettings | None, said: dict[str, Any], why: str
) -> None:
    given = {"since": "1 hour"} | said
    with gs.LocalEngine(WORLD, gs.Tuning(window=window), checkpoint=str(tmp_path)) as engine:
        with pytest.raises(InputError, match=why):
            engine.subscribe(1, worlds.BOUNDS, **given)
        row = operation_table([registration(1, worlds.BOUNDS, **given)])
        engine.start(events=batch(1, 0), operations=row, sink=gs.sinks.Noop(), available_now=True).wait()
        letters = [row["reason"] for row in engine.dead_letters().to_pylist() if row["kind"] == "operation"]
        assert letters == ["since"]


def test_columns_that_were_not_kept_are_null_in_the_past(tmp_path: Path) -> None:
    window = DAY.model_copy(update={"columns": ()})
    tables = [batch(1, k) for k in range(2)]
    run(tmp_path, tables[:1], window)
    with gs.LocalEngine(WORLD, gs.Tuning(window=window), checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, worlds.BOUNDS, since=EPOCH)
    table = run(tmp_path, tables, window).table()
    assert table.filter(table["past"])["text"].null_count == sum(table["past"].to_pylist()) > 100
    assert table["text"].null_count < len(table)


@pytest.mark.parametrize(("before", "now", "past"), [("slow", 3, None), ("8", 3, 8), (2.5, 3, None), (2, 3.5, 2.0)])
def test_a_column_that_has_changed_its_type_does_not_stop_the_stream(
    tmp_path: Path, before: Any, now: Any, past: Any
) -> None:
    def typed(value: Any) -> list[pa.Table]:
        return [batch(1, k, 40).append_column("speed", pa.array([value] * 40)) for k in range(2)]

    run(tmp_path, typed(before)[:1])
    with gs.LocalEngine(WORLD, gs.Tuning(window=DAY), checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, worlds.BOUNDS, since=EPOCH)
    table = run(tmp_path, typed(now)).table()
    for is_past, value in ((True, past), (False, now)):
        found = table.filter(pa.compute.equal(table["past"], is_past))["speed"].to_pylist()
        assert len(found) > 20
        assert set(found) == {value}


def test_a_column_of_the_events_may_not_have_the_name_of_the_mark(tmp_path: Path) -> None:
    events = batch(1, 0).append_column("past", pa.array([1] * 300))
    assert "past" in run(tmp_path / "a", [events], WindowSettings(keep="1 day")).table().schema.names
    with pytest.raises(SchemaError, match="which marks_past adds to matches: rename it"):
        run(tmp_path / "b", [events])


def test_a_user_who_asks_for_the_past_again_and_again_is_refused(tmp_path: Path) -> None:
    """It counts as more operations, by what the subscription costs."""
    limits = gs.GuardSettings(user_operations_burst=300, user_operations_per_s=1.0)
    engine = gs.LocalEngine(WORLD, gs.Tuning(window=DAY), checkpoint=str(tmp_path), guard=limits, clock=lambda: 1e9)
    with engine:
        for _ in range(40):
            engine.subscribe(1, (0.0, 0.0, 1.0, 1.0), user="mallory", since="1 hour")
            engine.cancel(1, user="mallory")
        engine.subscribe(2, worlds.BOUNDS, user="ana", since="1 hour")  # the world is all that a user may ask for
        letters = engine.dead_letters().to_pylist()
        taken = engine.status()["subscriptions"]
    assert [letter["reason"] for letter in letters] == ["user-rate"] * 2 * (40 - 300 // 13)
    assert letters[0]["detail"].startswith("kept events for subscription 1 count as more operations than user mallory")
    assert taken == 1
