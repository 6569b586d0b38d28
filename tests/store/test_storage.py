"""Flat files of arrays, as processes hold them."""

import resource
from pathlib import Path

import numpy as np
import pytest

from geoswarm.errors import CorruptState, MachineError
from geoswarm.store.storage import READ_BYTES_MAX, Storage

OPEN, MAPPED = Path("/proc/self/fd"), Path("/proc/self/maps")


@pytest.mark.parametrize("size", [10, READ_BYTES_MAX])
def test_arrays_come_back_as_they_were_and_cannot_be_changed(tmp_path: Path, size: int) -> None:
    storage, kept = Storage(str(tmp_path)), {"a": np.arange(size), "b": np.ones(3)}
    storage.write_arrays("file", kept)
    found = storage.map_arrays("file")
    assert all(np.array_equal(found[name], array) for name, array in kept.items())
    with pytest.raises(ValueError, match="read-only"):
        found["a"][0] = 7


@pytest.mark.parametrize("size", [10, READ_BYTES_MAX])
def test_thousands_of_files_hold_no_descriptor(tmp_path: Path, size: int) -> None:
    """A process may often have no more than 1024, and Spark's callbacks from Java hang beyond."""
    storage = Storage(str(tmp_path))
    storage.write_arrays("file", {"a": np.arange(size)})
    before = len(list(OPEN.iterdir()))
    held = [storage.map_arrays("file") for _ in range(2000)]
    assert len(list(OPEN.iterdir())) < before + 10
    assert len(held) == 2000
    assert MAPPED.read_text().count(f"{tmp_path}/file") == (2000 if size > 10 else 0)
    held.clear()
    assert str(tmp_path) not in MAPPED.read_text()


def test_a_process_that_has_too_many_files_open_is_told_what_to_raise(tmp_path: Path) -> None:
    storage, limits = Storage(str(tmp_path)), resource.getrlimit(resource.RLIMIT_NOFILE)
    storage.write_arrays("file", {"a": np.arange(10)})
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(
            MachineError, match=r"file of .* cannot be opened .* open, or mapped, as it may; raise `ulimit"
        ):
            storage.map_arrays("file")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_process_that_has_too_many_mappings_is_told_what_to_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(str(tmp_path))
    storage.write_arrays("file", {"a": np.arange(READ_BYTES_MAX)})

    def refuse(path: str) -> None:
        raise OSError("Memory mapping file failed: Cannot allocate memory")

    monkeypatch.setattr("geoswarm.store.storage.pa.memory_map", refuse)
    with pytest.raises(MachineError, match=r"no room for another mapping.*vm.max_map_count"):
        storage.map_arrays("file")


def test_an_empty_file_is_no_file_of_arrays(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CorruptState, match="file is empty: restore it"):
        Storage(str(tmp_path)).map_arrays("file")
