"""Kept events, and questions about them: always what the oracle finds among the batches that were committed."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.config import WindowSettings
from geoswarm.errors import InputError, SchemaError, SettingsError
from geoswarm.model import TIMESTAMP
from geoswarm.run.oracle.past import PastOracle
from geoswarm.run.past import Past
from geoswarm.store.batch_state import StoredBatch
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.kept.files import PARTS_FOLDER, RUNS_FOLDER, read_run, run_names
from geoswarm.store.storage import Storage

WORLD = gs.Contract(columns=30, rows=20, executors=3)
STRATEGIES = ("auto", "ps2-hybrid", "per-batch-weighed", "swarm", "ps2-adjusted")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EVERYWHERE = pa.table(
    {
        "op": ["register"],
        "sub_id": [0],
        **dict(zip(("xmin", "ymin", "xmax", "ymax"), ([side] for side in worlds.BOUNDS), strict=True)),
        **{name: pa.nulls(1) for name in ("expires", "geometry", "keywords")},
    }
)


def batch(seed: int, number: int, rows: int = 300) -> pa.Table:
    """Points and areas with texts, some of which cannot be used, and some of which come a batch or two too late."""
    rng = np.random.default_rng((seed, number))
    drawn = worlds.events(rng, rows, first_id=1000 * number, snap=1.0)
    late_us = np.where(rng.random(rows) < 0.1, rng.integers(0, 2000, rows), 0)
    times = pa.array(drawn["event_id"].to_numpy() - late_us).cast(TIMESTAMP)
    drawn = drawn.set_column(drawn.schema.get_field_index("ts"), "ts", times)
    events = worlds.with_areas(rng, worlds.with_texts(rng, drawn), 0.2, snap=1.0)
    x = [999.0 if x is not None and rng.random() < 0.02 else x for x in events["x"].to_pylist()]
    return events.set_column(events.schema.get_field_index("x"), "x", pa.array(x, pa.float64()))


def queries(seed: int, many: int) -> list[pa.Table]:
    """Registrations: rectangles, shapes, words and predicates; some of them cannot be read."""
    rng = np.random.default_rng(seed)
    drawn = worlds.with_shapes(rng, worlds.operations(rng, many, ids=10**9), snap=1.0)
    drawn = worlds.with_predicates(rng, worlds.with_keywords(rng, drawn, 0.4))
    for name, values in (("op", pa.array(["register"] * many)), ("expires", pa.nulls(many))):
        drawn = drawn.set_column(drawn.schema.get_field_index(name), name, values)
    return [drawn.slice(i, 1) for i in range(many)]


def run(
    folder: Path, tables: list[pa.Table], tuning: gs.Tuning, sink: Any = None, engine_of: Any = gs.LocalEngine
) -> None:
    with engine_of(WORLD, tuning, checkpoint=str(folder)) as engine:
        engine.subscribe(1, keywords="flood AND river OR dam", replace=True)
        engine.start(events=tables, sink=sink or gs.sinks.Noop(), available_now=True).wait()


def oracle_of(folder: Path, tables: list[pa.Table], window: WindowSettings) -> PastOracle:
    storage, oracle = Storage(str(folder)), PastOracle(worlds.BOUNDS, window)
    times = {entry.batch: entry.now_us for entry in JournalReader(storage).read(BatchEntry)}
    for number, events in enumerate(tables):
        oracle.take(events, times[number])
    return oracle


def check(folder: Path, oracle: PastOracle, asked: list[pa.Table]) -> int:
    """Returns how many events were found."""
    past, found = Past(str(folder)), 0
    for number, row in enumerate(asked):
        values = row.to_pylist()[0]
        sides = tuple(values[side] for side in ("xmin", "ymin", "xmax", "ymax"))
        shape = values["geometry"]
        given = {name: values.get(name) for name in ("keywords", "predicate")}
        rectangle = None if shape is not None or sides[0] is None else sides
        since_us, until_us = ((None, None), (2_150, None), (None, 3_050), (1_100, 2_200))[number % 4]
        times = [None if us is None else EPOCH + timedelta(microseconds=us) for us in (since_us, until_us)]
        want = oracle.query(row, since_us, until_us)
        if want is None:
            with pytest.raises(InputError):
                past.query(rectangle, geometry=shape, since=times[0], until=times[1], **given)
            continue
        answer = past.query(rectangle, geometry=shape, since=times[0], until=times[1], **given)
        assert answer.events["event_id"].to_pylist() == want, (values, want)
        found += len(want)
    return found


def test_an_answer_is_what_brute_force_finds_whatever_the_plan(tmp_path: Path) -> None:
    """Also under plans that divide terms, where an event goes to several partitions, or to none."""
    window, tables = WindowSettings(keep="100 days"), [batch(1, k) for k in range(len(STRATEGIES))]
    for number, name in enumerate(STRATEGIES):
        run(tmp_path, tables[: number + 1], gs.Tuning(strategy=name, window=window))
    assert check(tmp_path, oracle_of(tmp_path, tables, window), queries(2, 60)) > 500


class Fails(gs.sinks.Memory):
    """Fails at a batch, after it has written it, as if the process had ended there."""

    def write(self, matches: Any, batch_id: int) -> None:
        super().write(matches, batch_id)
        if batch_id == 2:
            raise RuntimeError("the process ended")


def test_a_batch_that_is_run_again_is_kept_once_and_one_that_did_not_end_is_not_kept(tmp_path: Path) -> None:
    window, tables = WindowSettings(keep="100 days"), [batch(3, k) for k in range(4)]
    tuning = gs.Tuning(strategy="auto", window=window)
    with pytest.raises(RuntimeError, match="the process ended"):
        run(tmp_path, tables, tuning, Fails())
    storage = Storage(str(tmp_path))
    assert len(storage.names(PARTS_FOLDER)) > 2, "the third batch has left files that do not count"
    assert check(tmp_path, _first(tables, window), queries(4, 20)) > 0
    run(tmp_path, tables, tuning)
    assert check(tmp_path, oracle_of(tmp_path, tables, window), queries(5, 30)) > 300
    named = {part.name for name in run_names(storage) for part in read_run(storage, name).parts}
    assert set(storage.names(PARTS_FOLDER)) == named


def _first(tables: list[pa.Table], window: WindowSettings) -> PastOracle:
    oracle = PastOracle(worlds.BOUNDS, window)
    for events in tables[:2]:
        oracle.take(events, 0)
    return oracle


@pytest.mark.parametrize("keep", ["2 min", "500 events", "40 kB", "1 event", "1 kb"])
def test_the_window_expires_in_whole_batches_by_time_count_or_bytes(tmp_path: Path, keep: str) -> None:
    window, tables = WindowSettings(keep=keep), [batch(6, k, rows=100 + 60 * k) for k in range(6)]
    oracle, storage = PastOracle(worlds.BOUNDS, window), Storage(str(tmp_path))
    for number in range(6):
        now_s = 1000.0 + 45.0 * number
        clock = partial(float, now_s)
        with gs.LocalEngine(WORLD, gs.Tuning(window=window), checkpoint=str(tmp_path), clock=clock) as engine:
            engine.start(events=tables[: number + 1], sink=gs.sinks.Noop(), available_now=True).wait()
        newest = read_run(storage, run_names(storage)[-1])
        oracle.take(tables[number], int(now_s * 1e6), newest.batches[-1].bytes)
        assert check(tmp_path, oracle, [EVERYWHERE]) > 0
        kept = [read_run(storage, name) for name in run_names(storage)]
        assert len(kept) == len(oracle.kept()), "old batches are removed"
        assert {part.name for one in kept for part in one.parts} == set(storage.names(PARTS_FOLDER))
    assert len(oracle.kept()) < 6


def test_a_cap_in_bytes_makes_batches_go_early_and_counts_them(tmp_path: Path) -> None:
    window = WindowSettings(keep="1 day", bytes_max=1 << 20)
    run(tmp_path, [batch(7, k, rows=4000) for k in range(6)], gs.Tuning(window=window))
    storage = Storage(str(tmp_path))
    kept = [read_run(storage, name) for name in run_names(storage)]
    assert 0 < len(kept) < 6
    assert kept[-1].cut == 6 - len(kept)
    assert sum(part.bytes for one in kept for part in one.parts) <= 1 << 20


def test_only_the_files_and_blocks_that_a_region_and_a_time_touch_are_read(tmp_path: Path) -> None:
    window, rng = WindowSettings(keep="1 day"), np.random.default_rng(8)
    tables = [pa.table(worlds.events(rng, 5000, first_id=10_000 * k)) for k in range(3)]
    run(tmp_path, tables, gs.Tuning(window=window))
    past = Past(str(tmp_path))
    near = past.query((10.0, 10.0, 12.0, 12.0), since=EPOCH + timedelta(microseconds=20_000))
    assert near.files == 3
    assert len(near.touched) == 1, "the time is that of one batch"
    (touched,) = near.touched
    assert 0 < touched.blocks < touched.blocks_of_parts / 2


def test_a_batch_whose_events_cannot_be_written_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written while the task goes on, so the task must wait for it before it reports."""
    window, tables, written = WindowSettings(keep="1 day"), [batch(15, k) for k in range(3)], StoredBatch.keep

    def refuse(state: StoredBatch, part: str, arrays: Any) -> tuple[str, int]:
        if state.batch_id == 1:
            raise OSError("no space left on device")
        return written(state, part, arrays)

    with monkeypatch.context() as broken:
        broken.setattr(StoredBatch, "keep", refuse)
        with pytest.raises(OSError, match="no space left"):
            run(tmp_path, tables, gs.Tuning(window=window))
    assert run_names(Storage(str(tmp_path))) == [f"{0:012d}-{0:012d}.json"]
    run(tmp_path, tables, gs.Tuning(window=window))
    assert check(tmp_path, oracle_of(tmp_path, tables, window), [EVERYWHERE, *queries(16, 30)]) > 0


def test_many_small_files_become_few_and_answers_stay(tmp_path: Path) -> None:
    """Also where the window's edge lies within a merged file."""
    window, tables = WindowSettings(keep="300 s"), [batch(10, k, rows=40) for k in range(34)]
    storage = Storage(str(tmp_path))
    for until, at_s in ((32, 1000), (34, 1303)):
        clock = partial(_next_s, count(at_s))
        with gs.LocalEngine(WORLD, gs.Tuning(window=window), checkpoint=str(tmp_path), clock=clock) as engine:
            engine.start(events=tables[:until], sink=gs.sinks.Noop(), available_now=True, every_s=0.05).wait()
    kept = [read_run(storage, name) for name in run_names(storage)]
    oracle = oracle_of(tmp_path, tables, window)
    assert kept[0].first < kept[-1].first_kept <= kept[0].last
    assert len(kept) < len(oracle.kept()) < 34
    assert check(tmp_path, oracle, [EVERYWHERE, *queries(11, 30)]) > 0


def _next_s(seconds: Iterator[int]) -> float:
    return float(next(seconds))


def test_a_column_may_change_its_type_while_events_are_kept(tmp_path: Path) -> None:
    def typed(numbers: range, values: list[Any]) -> list[pa.Table]:
        return [batch(7, k, 9).append_column("speed", pa.array(values * 3)) for k in numbers]

    window, early = WindowSettings(keep="100 days"), typed(range(6), [1, 2, 3])
    tuning = gs.Tuning(window=window)
    run(tmp_path, early, tuning)
    late = typed(range(40), [0.5, 1.0, 1.5])  # the first six have been read
    run(tmp_path, late, tuning)
    storage, past, tables = Storage(str(tmp_path)), Past(str(tmp_path)), early + late[6:]
    merged = read_run(storage, run_names(storage)[0])
    assert merged.first == 0
    assert merged.last > 6  # a file for each type, in one run
    assert check(tmp_path, oracle_of(tmp_path, tables, window), queries(8, 60)) > 20
    some = past.query(where="speed > 1").events
    assert 0 < len(some) < len(past.query().events)
    assert len(past.nearest(0.0, 0.0, 1000)) == len(past.query().events)
    run(tmp_path, typed(range(41), ["slow", "fast", "faster"]), tuning)
    assert len(past.query(since=EPOCH + timedelta(microseconds=40_000)).events) > 0
    with pytest.raises(InputError, match=r"types that do not fit together .*speed.*: ask for a time"):
        past.query()


def test_columns_are_chosen_and_the_newest_come_first(tmp_path: Path) -> None:
    window = WindowSettings(keep="1 day", columns=("text",))
    tables = [batch(9, k) for k in range(2)]
    with gs.LocalEngine(WORLD, gs.Tuning(window=window), checkpoint=str(tmp_path)) as engine:
        engine.start(events=tables, sink=gs.sinks.Noop(), available_now=True).wait()
        assert engine.query().schema.names == ["event_id", "ts", "x", "y", "text"]
        newest = engine.query(columns=["event_id", "text"], limit=3)
        assert newest.schema.names == ["event_id", "text"]
        assert newest["event_id"].to_pylist() == [1299, 1298, 1297]
        with pytest.raises(InputError, match="no column speed is kept: known are event_id, ts, x, y, text"):
            engine.query(columns=["speed"])
        with pytest.raises(InputError, match="limit 0"):
            engine.query(limit=0)
        with pytest.raises(InputError, match="swap them"):
            engine.query(since=EPOCH + timedelta(1), until=EPOCH)
        asked: list[dict[str, Any]] = [{"limit": 2.5}, {"until": "1 hour"}, {"rectangle": (1, 2, 3)}]
        for given, said in zip(asked, ("no whole number", "no datetime", "not four sides"), strict=True):
            with pytest.raises(InputError, match=said):
                engine.query(**given)


def test_without_text_words_cannot_be_asked_for(tmp_path: Path) -> None:
    window = WindowSettings(keep="1 day", columns=())
    run(tmp_path, [batch(9, 0)], gs.Tuning(window=window))
    with pytest.raises(InputError, match="keywords need the column text"):
        Past(str(tmp_path)).query(keywords="flood")


def test_a_column_with_the_name_of_the_batch_of_kept_events_is_refused(tmp_path: Path) -> None:
    events = batch(9, 0, 5).append_column("kept_batch", pa.array([-1] * 5))
    run(tmp_path, [events], gs.Tuning())
    with pytest.raises(SchemaError, match=r"events have a column kept_batch, .*: rename it"):
        run(tmp_path, [events], gs.Tuning(window=WindowSettings(keep="1 day")))


def test_nothing_is_kept_unless_asked_for(tmp_path: Path) -> None:
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.start(events=[batch(9, 0)], sink=gs.sinks.Noop(), available_now=True).wait()
        with pytest.raises(SettingsError, match=r"keeps no events: set \[window\] keep"):
            engine.query()


@pytest.mark.parametrize("text", ["an hour", "1 fortnight", "0 s", "-1 hour", "1", "hour"])
def test_an_amount_that_cannot_be_read_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match='write "1 hour", "5000000 events" or "2 GB"'):
        WindowSettings(keep=text)


def test_runs_folder_is_not_there_without_a_window(tmp_path: Path) -> None:
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.start(events=[batch(9, 0)], sink=gs.sinks.Noop(), available_now=True).wait()
    assert not Storage(str(tmp_path)).names(RUNS_FOLDER)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_query_with_a_limit_reads_the_newest_files_only_and_gives_the_same(tmp_path: Path, seed: int) -> None:
    kept = gs.Tuning(window=WindowSettings(keep="1 day"))
    with gs.LocalEngine(WORLD, kept, checkpoint=str(tmp_path)) as engine:
        events = [batch(seed, number, 60) for number in range(30)]
        engine.start(events=events, sink=gs.sinks.Noop(), available_now=True).wait()
        past = Past(str(tmp_path))
        for region in (None, (-60.0, -60.0, 60.0, 60.0)):
            every = past.query(region)
            files = sum(run.parts for run in every.touched)
            for limit in (1, 7, 100, 10_000):
                some = past.query(region, limit=limit)
                assert some.events.equals(every.events.slice(0, limit)), (region, limit)
                assert sum(run.parts for run in some.touched) <= files
            few = past.query(region, limit=1)
            assert sum(run.parts for run in few.touched) < files
