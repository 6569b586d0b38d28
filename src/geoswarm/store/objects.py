"""Open the last places of objects as of the newest committed batch, in any process, while an engine may run.

They are read once for each batch that changed them, into memory, and kept for the questions after it. A batch that is
run again leaves the same, so its number names it.
"""

import pyarrow as pa

from geoswarm.core.space.grid import Grid
from geoswarm.errors import CorruptState, StateError
from geoswarm.flow.keyed.state import Commit, state_schemas
from geoswarm.flow.keyed.transitions import Transitions, all_inside
from geoswarm.flow.objects import Objects, objects_of
from geoswarm.store.keyed_state import KeyedState
from geoswarm.store.storage import Storage

TRIES = 5
"""Looks at the state, each of which may find that a file has just been replaced."""
KEY_TYPES = (
    *(pa.int64(), pa.string(), pa.large_string(), pa.int32(), pa.int16(), pa.int8()),
    *(pa.uint64(), pa.uint32(), pa.uint16(), pa.uint8()),
)
"""The types that an `object_id` may have."""


class ObjectReader:
    def __init__(self, storage: Storage, grid: Grid) -> None:
        self._state, self._grid = KeyedState(storage, Transitions.name), grid
        self._held: tuple[int, Objects] | None = None
        self._files = frozenset[str]()

    def read(self) -> Objects | None:
        """None: no batch has kept objects."""
        for attempt in range(TRIES):
            batch = self._state.newest_batch()
            if batch is None:
                return None
            held = self._held
            if held is not None and held[0] == batch:
                return held[1]
            try:
                found = self._open(self._state.after(batch))
            except CorruptState:
                if attempt == TRIES - 1 or self._state.newest_batch() == batch:
                    raise
            else:
                self._held = batch, found
                return found
        raise StateError("the places of objects changed faster than they could be read: ask again")

    def _open(self, commit: Commit) -> Objects:
        operator = Transitions(all_inside)
        for key in KEY_TYPES:
            schemas = state_schemas(operator, key)
            if commit.columns in map(str, schemas):
                names = frozenset(file.name for file in commit.files)
                self._state.forget_copies(self._files - names)
                self._files = names
                return objects_of([self._state.open(file, schemas) for file in commit.files], key, self._grid)
        if commit.files:
            raise StateError(
                f"{self._state.folder} was kept by another version of geoswarm: use that one to ask for its objects"
            )
        return objects_of([], pa.int64(), self._grid)
