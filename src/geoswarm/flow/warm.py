"""Every stage of the data plane once, on two events and a rectangle, so that its kernels are compiled and loaded.

numba compiles for the exact kinds of arrays it meets: here they are what tasks meet in service, mapped files and Arrow
buffers, none of which can be written to. `spark/daemon.py` calls this before it forks workers.
"""

import numpy as np
import pyarrow as pa

from geoswarm.flow.exchange import pack, unpack
from geoswarm.flow.match.index import Level, build
from geoswarm.flow.match.kernels import Records
from geoswarm.flow.match.match import Searchable, match
from geoswarm.flow.merge import as_arrays
from geoswarm.flow.route import route
from geoswarm.jit import Array
from geoswarm.layout.uniform import uniform
from geoswarm.model import EVENT
from geoswarm.space.grid import Grid


def warm_up() -> int:
    """Returns the matches found, which is one."""
    grid = Grid(0, 0, 1, 1, columns=2, rows=2)
    rects = np.array([[0.1, 0.1, 0.4, 0.4]])
    records = Records(*(_sealed(a) for a in (rects, np.array([7]), np.array([2**62]), np.zeros(1, np.uint8))))
    levels = {k: Level(*(_sealed(array) for array in level)) for k, level in build(grid, rects).items()}
    rows = [{"event_id": 1, "ts": 0, "x": 0.2, "y": 0.2}, {"event_id": 2, "ts": 0, "x": 0.9, "y": 0.9}]
    events = pa.RecordBatch.from_pylist(rows, schema=EVENT)
    return sum(
        len(batch)
        for parcel in unpack(pack(route(events, uniform(grid, 2))), EVENT)
        for met in match(parcel.events, [Searchable(records, levels)], grid, 0, rows_max=10, pairs_max=10)
        for batch in as_arrays(met)
    )


def _sealed(array: Array) -> Array:
    array.setflags(write=False)
    return array
