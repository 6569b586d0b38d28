"""Fixes that are held back, on disk: immutable files of rows by time, and a commit for each batch.

They lie beside the state of keyed operators, and are committed in the same way (`keyed_state.py`). What they are held
for is in `flow/keyed/reorder.py`. A file brings its columns: those of events may be others when it is read.

    commit.watermark_us    the newest time of all events so far
    commit.closed_us       fixes older than this have gone on
"""

from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.flow.keyed.reorder import HeldRows
from geoswarm.flow.keyed.state import StateFile
from geoswarm.store.keyed_state import KeyedState
from geoswarm.store.storage import Storage

FOLDER = "held-fixes"
"""No operator may have this name."""


class HeldFixes(KeyedState):
    """The driver prepares and commits; tasks write files and read."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, FOLDER)

    def write_fixes(self, held: HeldRows, name: str, epoch: int, executor: int) -> StateFile:
        """Write fixes, of which there are some, for an executor under a plan."""
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, held.rows.schema) as stream:
            stream.write_batch(held.rows)
        arrays: dict[str, Any] = {
            "ids": held.ids,
            "ts_us": held.ts_us,
            "payload": np.frombuffer(out.getvalue(), np.uint8),
        }
        size = self.storage.write_arrays(f"{self.folder}/files/{name}", arrays)
        return StateFile(name, 0, epoch, executor, len(held.ids), size, due_us=int(held.ts_us[0]))

    def open_fixes(self, file: StateFile) -> HeldRows:
        arrays = self.storage.map_arrays(f"{self.folder}/files/{file.name}")
        rows = pa.ipc.open_stream(pa.py_buffer(arrays["payload"])).read_next_batch()
        return HeldRows(arrays["ids"], arrays["ts_us"], rows)
