"""Run every stage of the data plane once, on two events and two subscriptions, so that its kernels are in memory.

`run/spark/daemon.py` calls this before it forks workers. numba compiles for the exact types of its arguments: here they
are those of real tasks, mapped files and Arrow buffers, all of them read-only. What is not compiled yet is compiled by
`warm.py`, in other processes.
"""

from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import shapely

from geoswarm.control.layout.uniform import uniform
from geoswarm.core.arrays.jit import Array
from geoswarm.core.arrays.kernel_cache import only_compiled
from geoswarm.core.index.cells import build
from geoswarm.core.index.kernels import Records
from geoswarm.core.index.regions import Regions, build_regions
from geoswarm.core.index.words import build_text, conditions_of
from geoswarm.core.shapes.shapes import Shapes, of_polygons
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.expression import Expressions, compile_expressions
from geoswarm.flow.exchange import pack_parcels, unpack_parcels
from geoswarm.flow.match.match import Searchable, match
from geoswarm.flow.merge import as_arrays
from geoswarm.flow.observe import count_points
from geoswarm.flow.route import route
from geoswarm.model import EVENT, TEXT

GRID = Grid(0, 0, 1, 1, columns=2, rows=2)
TRIANGLE = np.array([shapely.Polygon([(0.5, 0.0), (1.0, 0.0), (0.5, 0.5)])])
"""Contains neither event, but overlaps their cells."""


def load_kernels(*, compiles_all: bool = False) -> int:
    """Points in rectangles, then in regions, then words, as far as their kernels are on disk: an engine that has no
    words must not wait for them, unless `compiles_all`. Returns the number of matches, which is two with words."""
    rects, ids = np.array([[0.1, 0.1, 0.4, 0.4], [0.1, 0.1, 0.4, 0.4]]), np.array([7, 8])
    records = Records.of(rects, ids, np.full(2, 2**62), np.zeros(1, np.uint8))
    points = Searchable(records, build(GRID, rects[:1]))
    found = [_match(points)]
    with nullcontext() if compiles_all else only_compiled():
        shapes = Shapes.from_arrays({name: _read_only(a) for name, a in of_polygons(TRIANGLE).to_arrays().items()})
        cells = build_regions(GRID, shapes, np.ones(1, np.bool_))
        regions = points._replace(
            regions=Regions(shapes, _read_only(np.zeros(1, np.uint32)), cells, np.empty(0, np.int64))
        )
        found.append(_match(regions))
        words, _ = compile_expressions(pa.array([None, "flood river OR dam"]))
        words = Expressions.from_arrays({name: _read_only(array) for name, array in words.to_arrays().items()})
        worded = regions._replace(text=build_text(GRID, rects, ids, words), conditions=conditions_of(words))
        found.append(_match(worded))
    return found[-1]


def _match(segment: Searchable) -> int:
    rows = [
        {"event_id": 1, "ts": 0, "x": 0.2, "y": 0.2, "text": "Dam"},
        {"event_id": 2, "ts": 0, "x": 0.9, "y": 0.9, "text": "é"},
    ]
    schema = EVENT.append(TEXT)
    events = pa.RecordBatch.from_pylist(rows, schema=schema)
    plan, found = uniform(GRID, 2), 0
    for parcel in unpack_parcels(pack_parcels(route(events, plan)), schema):
        count_points(parcel.events, plan, parcel.partition)
        for met in match(parcel.events, [segment], GRID, 0, rows_max=10, pairs_max=10):
            found += sum(len(rows) for rows in as_arrays(met)) and len(met.subs)
    return found


def _read_only(array: Array) -> Array:
    array.setflags(write=False)
    return array
