"""An engine that keeps events is killed again and again: queries find what was committed, once, and nothing else."""

import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoswarm as gs
import worlds
from geoswarm.config import WindowSettings
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keep import arrays_of_rows, part_of, sort_by_place
from geoswarm.flow.recall import OpenPart
from geoswarm.lab.crash.kept import KeptComparison, compare_kept
from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.scenario import Scenario
from geoswarm.lab.crash.victim import IN_PROCESS
from geoswarm.store import local_files
from geoswarm.store.kept import files, merge
from geoswarm.store.kept.keeper import Keeper
from geoswarm.store.kept.reading import KeptReader
from geoswarm.store.manifest import EMPTY
from geoswarm.store.storage import Storage

SCENARIO = Scenario(seed=21)
KEEP = "20 min"
"""By the scenario's clock 20 batches, of which three become one at a time."""
KILLS, FILES, RUNNING_S = 2, 26, 0.6
WORLD = gs.Contract(columns=20, rows=15, executors=3)
MINUTE_US = 60_000_000
BATCHES, MINUTES = 12, 8
"""A minute from one batch to the next, and how many are kept: two become one at a time."""


def test_an_engine_that_is_killed_at_random_moments_keeps_what_it_has_committed(tmp_path: Path) -> None:
    """Under plans that change, while old batches expire and small ones are merged."""
    rng = np.random.default_rng(3)
    SCENARIO.write(tmp_path, range(FILES))
    strategies = ("per-batch", "swarm-measured")
    with Victim(tmp_path, IN_PROCESS, "--keep", KEEP, strategies=strategies) as victim:
        victim.start()
        for _ in range(KILLS):
            begun = victim.commits()
            assert victim.until(partial(has_batch_after, victim, begun), "a batch"), "the files have run out"
            time.sleep(rng.uniform(0, RUNNING_S))
            victim.kill("driver", rng)
            compare(victim, queries=3)
            victim.start()
        victim.until_done()
        assert compare(victim, queries=10).batches == FILES
        assert victim.starts > KILLS
        storage = Storage(str(victim.checkpoint))
        assert any(first < last for first, last in map(files.span_of, files.run_names(storage))), "nothing was merged"


def has_batch_after(victim: Victim, begun: int) -> bool:
    return victim.commits() > begun


def compare(victim: Victim, queries: int) -> KeptComparison:
    verdict = compare_kept(SCENARIO, victim.checkpoint, WindowSettings(keep=KEEP), queries)
    assert (verdict.lost, verdict.wrong) == (0, 0), verdict
    assert verdict.events > 200
    assert victim.commits() <= verdict.batches <= victim.commits() + 1
    return verdict


class AtOnce:
    """An executor without a thread, so that a crash in a merge ends the process, too."""

    def __init__(self, *_: Any) -> None: ...

    def submit(self, do: Callable[..., Any], *args: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(do(*args))
        return done

    def shutdown(self, **_: Any) -> None: ...


class Crash(Exception):  # noqa: N818 - stands for a process that is gone
    pass


@pytest.mark.parametrize("large_rows", [3, merge.LARGE_ROWS])
def test_a_crash_at_any_write_or_removal_keeps_each_batch_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large_rows: int
) -> None:
    """The k-th file that is put in place or removed is the last one, for every k: where merged runs name the files of
    their batches as they are, and where these are written anew."""
    left = -1

    def last_one(do: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            done = do(*args, **kwargs)
            if left == 0:
                raise Crash
            return done

        return run

    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a process ends, not the machine
    monkeypatch.setattr(merge, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(merge, "LARGE_ROWS", large_rows)
    monkeypatch.setattr(local_files, "publish", last_one(local_files.publish))
    monkeypatch.setattr(Storage, "remove", last_one(Storage.remove))
    for crash_at in count(1):
        storage, left = Storage(str(tmp_path / str(crash_at))), crash_at
        committed = list[int]()
        with suppress(Crash):
            seal_all(storage, committed)
        is_over, left = left > 0, 0
        if committed:
            held = kept_batches(storage)
            assert held[-1] in (committed[-1], committed[-1] + 1)
            assert held == list(range(max(0, held[-1] + 1 - MINUTES), held[-1] + 1))
        seal_all(storage, committed)  # the next process
        assert kept_batches(storage) == list(range(BATCHES - MINUTES, BATCHES))
        if is_over:
            break
    assert crash_at > 3 * BATCHES
    parts = [part for name in files.run_names(storage) for part in files.read_run(storage, name).parts]
    assert {part.name for part in parts} <= set(storage.names(files.PARTS_FOLDER))
    assert any(part.batch is not None for part in parts) == (large_rows == 3)


def seal_all(storage: Storage, committed: list[int]) -> None:
    """Keep the batches that are not committed yet, three rows each, with every merge done at once."""
    grid = Grid.of(WORLD)
    keeper = Keeper(storage, grid, WindowSettings(keep=f"{MINUTES} min"))
    try:
        for number in range(len(committed), BATCHES):
            rows = sort_by_place(worlds.events(np.random.default_rng(number), 3, first_id=10 * number), grid)
            arrays = arrays_of_rows(rows, grid)
            part = part_of(*files.write(storage, f"{number:012d}", arrays), 3, arrays)
            keeper.seal(replace(EMPTY, now_us=number * MINUTE_US), number, [part], 3)
            committed.append(number)
    finally:
        keeper.close()


def kept_batches(storage: Storage) -> list[int]:
    """The batches whose events a query finds, each of which has three."""
    reader = KeptReader(storage)
    state = reader.state()
    known = [(run.first if part.batch is None else part.batch, part) for run in state.runs for part in run.parts]
    ids = [i for batch, part in known for i in _ids(reader.open(part), batch, state.first_kept)]
    assert len(ids) == len(set(ids)), "an event is found twice"
    assert len(ids) % 3 == 0
    return sorted({i // 10 for i in ids})


def _ids(part: OpenPart, batch: int, first_kept: int) -> list[int]:
    rows = part.rows.to_pylist()
    return [row["event_id"] for row in rows if row.get("kept_batch", batch) >= first_kept]
