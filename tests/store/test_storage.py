"""Flat files of arrays, as processes hold them."""

from pathlib import Path

import numpy as np
import pytest

from geoswarm.store.storage import READ_BYTES_MAX, Storage

OPEN = Path("/proc/self/fd")


@pytest.mark.parametrize("size", [10, READ_BYTES_MAX])
def test_arrays_come_back_as_they_were_and_cannot_be_changed(tmp_path: Path, size: int) -> None:
    storage, kept = Storage(str(tmp_path)), {"a": np.arange(size), "b": np.ones(3)}
    storage.write_arrays("file", kept)
    found = storage.map_arrays("file")
    assert all(np.array_equal(found[name], array) for name, array in kept.items())
    with pytest.raises(ValueError, match="read-only"):
        found["a"][0] = 7


def test_thousands_of_small_files_hold_no_descriptor(tmp_path: Path) -> None:
    """A process may often have no more than 1024, and Spark's callbacks from Java hang beyond."""
    storage = Storage(str(tmp_path))
    storage.write_arrays("file", {"a": np.arange(10)})
    before = len(list(OPEN.iterdir()))
    held = [storage.map_arrays("file") for _ in range(2000)]
    assert len(list(OPEN.iterdir())) < before + 10
    assert len(held) == 2000
