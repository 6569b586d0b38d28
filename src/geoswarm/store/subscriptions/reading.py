"""Open the newest version of the subscriptions, in any process, while an engine may replace and remove its files.

What is mapped stays mapped: segments never change, and their names are never used again.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from geoswarm.errors import CorruptState, StateError
from geoswarm.store import manifest
from geoswarm.store.manifest import Manifest
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, Segment
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions.view import View

TRIES = 5
"""Looks at the versions, each of which may find that a file has just been removed."""


class OpenVersion(NamedTuple):
    manifest: Manifest
    view: View


class VersionReader:
    def __init__(self, storage: Storage, known: Callable[[], Mapping[str, Segment]] | None = None) -> None:
        """`known` are the segments that this process has open anyway, by name. Without it, those of the last question
        stay open for the next one."""
        self._storage, self._known = storage, known
        self._held: OpenVersion | None = None

    def read(self) -> OpenVersion:
        """The newest committed version. Its new segments are verified on the way, all bytes of them."""
        for attempt in range(TRIES):
            numbers = manifest.versions(self._storage)
            try:
                return self._open(manifest.newest(self._storage))
            except CorruptState:
                if attempt == TRIES - 1 or manifest.versions(self._storage)[-1:] == numbers[-1:]:
                    raise
        raise StateError("subscriptions changed faster than they could be read: ask again")

    def _open(self, newest: Manifest) -> OpenVersion:
        if self._known is not None:  # and nothing is kept open that the process itself gives up
            return OpenVersion(newest, View.open(self._storage, newest, View(dict(self._known()), {})))
        held = self._held
        if held is None or (held.manifest.version, held.manifest.token) != (newest.version, newest.token):
            view = View.open(self._storage, newest, held.view if held is not None else None)
            for name in _files(held.manifest) - _files(newest) if held is not None else ():
                self._storage.forget(f"{SEGMENTS_FOLDER}/{name}")  # a copy of what an engine elsewhere has replaced
            self._held = held = OpenVersion(newest, view)
        return held


def _files(version: Manifest) -> set[str]:
    segments = {f"{entry.name}.{part}" for entry in version.segments for part in ("records", "index")}
    return segments | {name for name in (version.tombstones, version.pasts) if name is not None}
