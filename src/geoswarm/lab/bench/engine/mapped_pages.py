"""Pages of segment files: which of them this process has mapped, and how they leave its memory and the page cache.

Measures nothing by itself: `subscriptions.py` asks. Linux only: mapped pages are counted in /proc/self/smaps.
"""

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from geoswarm.store.segments.segment import SEGMENTS_FOLDER
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import View


def unmap_pages(view: View) -> None:
    """Unmap the pages, so that only what is touched from now on counts. Opening touched all, to check the seals."""
    for held in view.segments.values():
        for array in (held.rects, *(held.index or ())[-1:]):  # one of each of its two files
            mapped = _mapping_of(array)
            place = ctypes.c_void_p(mapped.address), ctypes.c_size_t(mapped.size)
            if ctypes.CDLL(None, use_errno=True).madvise(*place, mmap.MADV_DONTNEED):
                raise OSError(ctypes.get_errno(), "the pages of a segment cannot be unmapped")


def _mapping_of(array: Any) -> pa.Buffer:
    while not isinstance(array, pa.Buffer):
        array = array.obj if isinstance(array, memoryview) else array.base
    return array


def mapped_bytes(storage: Storage) -> int:
    """Pages of the checkpoint's segments that are mapped into this process now."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        field = line.split(maxsplit=5)
        if not field[0].endswith(":"):
            ours = len(field) == 6 and field[5].startswith(storage.path(SEGMENTS_FOLDER))
        elif ours and field[0] == "Rss:":
            total += int(field[1]) * 1024
    return total


def evict_files(folder: Path) -> None:
    for file in (path for path in folder.rglob("*") if path.is_file()):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())  # only clean pages can be dropped
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
