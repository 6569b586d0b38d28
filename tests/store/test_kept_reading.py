"""Kept events as a process elsewhere reads them: from an object store, beside the engine that merges and forgets."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import geoswarm as gs
from geoswarm.config import Contract
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keep import KeptPart, arrays_of_rows, part_of
from geoswarm.model import EVENT
from geoswarm.run.questions import read_query
from geoswarm.store import batch_state, manifest
from geoswarm.store.batch_state import KEPT_OPEN_S, StoredBatch
from geoswarm.store.kept.files import PARTS_FOLDER, KeptBatch, KeptRun, remove_runs, write, write_run
from geoswarm.store.kept.reading import KeptReader, KeptState
from geoswarm.store.storage import Storage


def test_copies_of_files_that_an_engine_elsewhere_has_forgotten_go(tmp_path: Path) -> None:
    here = Storage("mock:///state", cache=str(tmp_path / "here"))
    elsewhere = Storage("mock:///state", cache=str(tmp_path / "elsewhere"))
    elsewhere._remote = here._remote
    runs = [_run(elsewhere, number) for number in range(3)]
    reader = KeptReader(here)
    for run in reader.state().runs:
        reader.open(run.parts[0])
    assert _copies(tmp_path / "here") == {run.parts[0].name for run in runs}
    remove_runs(elsewhere, runs[:2])
    (left,) = reader.state().runs
    assert _copies(tmp_path / "here") == {left.parts[0].name} == {runs[2].parts[0].name}
    assert len(reader.open(left.parts[0]).rows) == 1


def test_a_worker_maps_kept_files_once_for_all_batches_that_give_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gs.LocalEngine(gs.Contract(), checkpoint=str(tmp_path)):
        storage = Storage(str(tmp_path))
    mapped, map_arrays, begun = list[str](), Storage.map_arrays, manifest.newest(storage)

    def noted(self: Storage, name: str) -> object:
        mapped.append(name)
        return map_arrays(self, name)

    monkeypatch.setattr(Storage, "map_arrays", noted)
    query, runs = read_query(Grid.of(Contract())), [_run(storage, number) for number in range(3)]

    def ids(batch: int, at_s: float) -> list[int]:
        """After a task that matches has read the subscriptions."""
        held = StoredBatch(storage, batch, replace(begun, now_us=int(at_s * 1e6)))
        held.segments()
        return [part.rows["event_id"][0].as_py() for part, _ in held.kept_for(query)]

    assert ids(3, 0.0) == [2, 1, 0]
    remove_runs(storage, runs[:1])
    runs.append(_run(storage, 3))
    assert ids(4, KEPT_OPEN_S) == [3, 2, 1]
    assert sorted(mapped) == sorted(f"{PARTS_FOLDER}/{run.parts[0].name}" for run in runs)
    remove_runs(storage, runs[1:2])
    _run(storage, 1, event_id=7)
    assert ids(4, KEPT_OPEN_S) == [3, 2, 7], "a document of another life of the checkpoint is read anew"
    StoredBatch(storage, 5, replace(begun, now_us=int(3e6 * KEPT_OPEN_S))).segments()
    assert batch_state._cache._kept is None, "removed files take room on the disk while they are mapped"


def test_the_newest_part_is_that_of_the_newest_event(tmp_path: Path) -> None:
    """In a merged run the last part may be of older events that had other types."""
    storage = Storage(str(tmp_path))
    old, new, none = (_run(storage, number) for number in range(3))
    merged = replace(new, parts=(*new.parts, *old.parts))
    assert KeptState([old, merged, replace(none, parts=())], 0).newest_part == new.parts[0]
    assert KeptState([replace(none, parts=())], 0).newest_part is None


def _run(storage: Storage, number: int, event_id: int | None = None) -> KeptRun:
    event = {"event_id": number if event_id is None else event_id, "ts": number, "x": 1.0, "y": 2.0}
    (rows,) = pa.Table.from_pylist([event], schema=EVENT).to_batches()
    arrays = arrays_of_rows(rows, Grid.of(Contract()))
    part: KeptPart = part_of(*write(storage, f"{number:012d}-0", arrays), 1, arrays)
    run = KeptRun((KeptBatch(number, 0, 1, 1, 0),), (part,), 0, 0)
    write_run(storage, run)
    return run


def _copies(cache: Path) -> set[str]:
    return {path.name for path in cache.rglob("*.events") if path.parent.parts[-2:] == tuple(PARTS_FOLDER.split("/"))}
