"""Large files of kept events: a merged run names them as they are, unless the stream has time to cut them by place."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoswarm as gs
from geoswarm.config import WindowSettings
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keep import KeptPart, arrays_of_rows, part_of, sort_by_place
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.local.loop import LocalRun
from geoswarm.run.past import Past
from geoswarm.store.kept import files, merge
from geoswarm.store.kept.keeper import Keeper
from geoswarm.store.kept.summary import summarise
from geoswarm.store.manifest import EMPTY, Manifest
from geoswarm.store.storage import Storage

CONTRACT = gs.Contract(executors=4)
GRID = Grid.of(CONTRACT)
BATCHES, MINUTES, MINUTE_US = 24, 20, 60_000_000
WINDOW = WindowSettings(keep=f"{MINUTES} min")
"""Of 24 batches, a minute apart, 20 are kept; up to three become one run."""
LARGE, SMALL = 40, 7
"""Events in the files of a batch: one is large here, two are not."""
EACH = LARGE + 2 * SMALL


class AtOnce:
    """An executor without a thread: a merge is ready when the next batch is sealed."""

    def __init__(self, *_: Any) -> None: ...

    def submit(self, do: Callable[..., Any], *args: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(do(*args))
        return done

    def shutdown(self, **_: Any) -> None: ...


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(merge, "LARGE_ROWS", LARGE)


def checkpoint(folder: Path) -> Storage:
    with gs.LocalEngine(CONTRACT, gs.Tuning(window=WINDOW), checkpoint=str(folder)):
        return Storage(str(folder))


def put(storage: Storage, batch: int, events: pa.RecordBatch) -> KeptPart:
    arrays = arrays_of_rows(sort_by_place(events, GRID), GRID)
    return part_of(*files.write(storage, f"{batch:012d}", arrays), len(events), arrays)


def seal_all(
    storage: Storage, minutes: Sequence[float] = range(BATCHES), has_time: Callable[[int], bool] = lambda batch: False
) -> None:
    """Keep a batch at each of these times."""
    keeper = Keeper(storage, GRID, WINDOW)
    for batch, minute in enumerate(minutes):
        parts, begin = list[KeptPart](), batch * EACH
        for rows in (SMALL, LARGE, SMALL):
            parts.append(put(storage, batch, Tweets(seed=1).events(begin, rows)))
            begin += rows
        keeper.seal(replace(EMPTY, now_us=int(minute * MINUTE_US)), batch, parts, EACH, has_time=has_time(batch))
    keeper.close()


def kept_ids(storage: Storage) -> list[int]:
    return sorted(Past(storage).query().events["event_id"].to_pylist())


def runs_of(storage: Storage) -> list[files.KeptRun]:
    return [files.read_run(storage, name) for name in files.run_names(storage)]


@pytest.mark.parametrize("period", [None, 1, 5])
def test_what_is_kept_is_the_same_whether_large_files_are_written_anew_or_not(
    tmp_path: Path, period: int | None
) -> None:
    """Never, always, and now and then; the oldest run is part of the window and part of it is not."""
    storage = checkpoint(tmp_path / "state")
    seal_all(storage, has_time=lambda batch: period is not None and batch % period == 0)
    assert kept_ids(storage) == list(range((BATCHES - MINUTES) * EACH, BATCHES * EACH))
    runs = runs_of(storage)
    assert runs[0].first < runs[-1].first_kept
    stand = [part for run in runs for part in run.parts if part.batch is not None]
    assert bool(stand) == (period != 1)
    assert all(part.rows == LARGE for part in stand)
    assert any(part.rows == 3 * EACH for run in runs for part in run.parts) == (period is not None)
    assert len(runs) < MINUTES / 2
    assert set(storage.names(files.PARTS_FOLDER)) == {part.name for run in runs for part in run.parts}


def test_a_large_file_stays_on_disk_as_it_was_written(tmp_path: Path) -> None:
    storage = checkpoint(tmp_path / "state")
    seal_all(storage)
    for run in runs_of(storage):
        large = [part for part in run.parts if part.rows == LARGE]
        assert [int(part.name.split("-")[0]) for part in large] == [batch.number for batch in run.batches]
    kept = summarise(storage)
    assert kept is not None
    assert kept.merged_batches == 0


def test_a_merge_that_comes_too_late_removes_no_file_that_still_counts(tmp_path: Path) -> None:
    """Batches 0 to 2 are merged while 0 and 1 are forgotten."""
    storage = checkpoint(tmp_path / "state")
    seal_all(storage, minutes=[0, 1, 2, 3, 4, 21.5])
    assert kept_ids(storage) == list(range(2 * EACH, 6 * EACH))
    assert set(storage.names(files.PARTS_FOLDER)) == {part.name for run in runs_of(storage) for part in run.parts}


def test_a_column_of_the_newest_events_is_known_where_older_ones_share_their_run(tmp_path: Path) -> None:
    storage = checkpoint(tmp_path / "state")
    keeper = Keeper(storage, GRID, WINDOW)
    for batch in range(6):
        events = Tweets(seed=1).events(batch * LARGE, LARGE)
        if batch == 2:
            events = events.append_column("speed", pa.array([1.0] * LARGE))
        parts = [put(storage, batch, events)] if batch <= 2 else []
        keeper.seal(replace(EMPTY, now_us=batch * MINUTE_US), batch, parts, len(parts) * LARGE)
    keeper.close()
    assert [len(run.parts) for run in runs_of(storage)] == [3, 0, 0, 0]
    nowhere = Past(storage).query((-180.0, -90.0, -179.9, -89.9), columns=["event_id", "speed"])
    assert (nowhere.events.schema.names, len(nowhere.events), nowhere.touched) == (["event_id", "speed"], 0, [])


def test_a_stream_has_time_when_its_batches_take_less_than_half_of_the_time_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    had = list[bool]()
    seal = Keeper.seal

    def noted(self: Keeper, manifest: Manifest, batch: int, parts: Any, events: int, has_time: bool) -> None:
        had.append(has_time)
        seal(self, manifest, batch, parts, events, has_time)

    monkeypatch.setattr(Keeper, "seal", noted)
    monkeypatch.setattr(LocalRun, "_rest", lambda *_: None)
    with gs.LocalEngine(CONTRACT, gs.Tuning(window=WINDOW), checkpoint=str(tmp_path / "state")) as engine:
        for many, every_s in enumerate((3600.0, 3600.0, 1e-6, 0.0), 1):
            events = [pa.table(Tweets(seed=1).events(first, 10)) for first in range(0, many * 10, 10)]
            engine.start(events=events, sink=gs.sinks.Noop(), every_s=every_s, available_now=True).wait()
    assert had == [False, True, False, False], "the first batch does not know what one takes"
