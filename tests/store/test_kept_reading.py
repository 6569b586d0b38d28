"""Kept events as a process elsewhere reads them: from an object store, beside the engine that merges and forgets."""

from pathlib import Path

import pyarrow as pa

from geoswarm.config import Contract
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keep import KeptPart, arrays_of_rows, part_of
from geoswarm.model import EVENT
from geoswarm.store.kept.files import PARTS_FOLDER, KeptBatch, KeptRun, remove_runs, write, write_run
from geoswarm.store.kept.reading import KeptReader
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


def _run(storage: Storage, number: int) -> KeptRun:
    event = {"event_id": number, "ts": number, "x": 1.0, "y": 2.0}
    (rows,) = pa.Table.from_pylist([event], schema=EVENT).to_batches()
    arrays = arrays_of_rows(rows, Grid.of(Contract()))
    part: KeptPart = part_of(*write(storage, f"{number:012d}-0", arrays), 1, arrays)
    run = KeptRun((KeptBatch(number, 0, 1, 1, 0),), (part,), 0, 0)
    write_run(storage, run)
    return run


def _copies(cache: Path) -> set[str]:
    return {path.name for path in cache.rglob("*.events") if path.parent.parts[-2:] == tuple(PARTS_FOLDER.split("/"))}
