"""Polygons as GEOS has them, prepared for many tests, and kept from one call to the next.

To convert a polygon and to have GEOS index it takes longer than a few tests of it. A worker tests the regions of a
segment again and again: for each parcel, each executor that it serves, and each batch. What is kept belongs to one
`Shapes` and goes with it.

GEOS completes the index of a prepared polygon when it is first asked, without a lock. So what is kept is for the thread
that asked first, while it lives; another one, such as that of a second question to an engine, gets polygons of its own.
"""

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import shapely

from geoswarm.core.arrays.jit import Ints

if TYPE_CHECKING:
    from geoswarm.core.shapes.shapes import Geometries

KEPT_VERTICES_MAX = 5_000_000
"""Vertices of all polygons that a process keeps: about 150 bytes each with the index that GEOS makes, so less than a
gigabyte."""


class PreparedPolygons:
    """What is kept of a `Shapes` with so many vertices in each row."""

    _every: ClassVar["weakref.WeakSet[PreparedPolygons]"] = weakref.WeakSet()
    """All of this process, which share what may be kept."""
    _every_lock: ClassVar = threading.Lock()

    def __init__(self, vertex_counts: Ints) -> None:
        self._counts = vertex_counts
        self._thread, self._lock = threading.current_thread(), threading.Lock()
        self._kept: Geometries = np.full(len(vertex_counts), None, object)
        self._last_used = np.zeros(len(vertex_counts), np.int64)
        """The number of the call."""
        self._calls = self._vertices = 0
        with self._every_lock:
            self._every.add(self)

    def take(self, rows: Ints, make: "Callable[[Ints], Geometries]") -> "Geometries":
        """The polygons of these different rows; `make` makes those that are not kept."""
        if not self._is_for_this_thread():
            return _prepared(make(rows))
        found: Geometries = self._kept[rows]
        self._calls += 1
        self._last_used[rows] = self._calls
        missing = np.flatnonzero(shapely.is_missing(found))
        if len(missing):
            found[missing] = made = _prepared(make(rows[missing]))
            self._kept[rows[missing]] = made
            self._vertices += int(self._counts[rows[missing]].sum())
            with self._every_lock:
                others = sum(each._vertices for each in self._every) - self._vertices
            if self._vertices + others > KEPT_VERTICES_MAX:
                self._forget(KEPT_VERTICES_MAX // 2 - others)
        return found

    def _is_for_this_thread(self) -> bool:
        here = threading.current_thread()
        with self._lock:
            if not self._thread.is_alive():
                self._thread = here
            return self._thread is here

    def _forget(self, most: int) -> None:
        """Keep those that were used last, with so many vertices at most."""
        rows = np.flatnonzero(~shapely.is_missing(self._kept))
        rows = rows[np.argsort(-self._last_used[rows], kind="stable")]
        vertices = np.cumsum(self._counts[rows])
        stays = int(np.searchsorted(vertices, most, "right"))
        self._kept[rows[stays:]] = None
        self._vertices = int(vertices[stays - 1]) if stays else 0


def _prepared(polygons: "Geometries") -> "Geometries":
    shapely.prepare(polygons)
    return polygons
