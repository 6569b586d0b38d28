"""Who is where now: the last place of every object that is followed, to be asked for by region or by distance.

Transitions keep the places (`flow/keyed/transitions.py`), `store/objects.py` reads them. Like kept events, objects lie
in Z-order with the boxes of their blocks, so that a region is found in the same way (`flow/recall.py`); the nearest are
found by a tree.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.batches import xy
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.index.blocks import blocks_of
from geoswarm.core.index.sphere_tree import SphereTree, build_tree, nearest_rows
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keep import sort_by_place
from geoswarm.flow.keyed.operator import KEY
from geoswarm.flow.keyed.transitions import Transitions, all_inside
from geoswarm.flow.keyed.turn import Shelf, compact_shelves
from geoswarm.flow.recall import OpenPart
from geoswarm.model import EVENT, OBJECT


class Objects:
    def __init__(self, rows: pa.RecordBatch, grid: Grid) -> None:
        """`rows` have `object_id`, `ts`, `x` and `y`, each object once."""
        self.rows = sort_by_place(rows, grid)

    @cached_property
    def part(self) -> OpenPart | None:
        """As a part of kept events; None: there are no objects."""
        if not len(self.rows):
            return None
        corners, times_us = xy(self.rows), self.rows.column("ts").cast(pa.int64()).to_numpy()
        return OpenPart(self.rows, blocks_of(corners, corners, times_us))

    def nearest(self, lon: float, lat: float, k: int, within_m: float) -> tuple[Ints, Floats]:
        """The rows of the k nearest objects within so many metres, and their distances; of those at one distance the
        one that was seen last comes first, then the lowest `object_id`."""
        if not len(self.rows):
            return np.empty(0, np.int64), np.empty(0)
        return nearest_rows(self._tree, lon, lat, k, within_m)

    @cached_property
    def _tree(self) -> SphereTree:
        order = pc.sort_indices(self.rows, sort_keys=[("ts", "descending"), (OBJECT.name, "ascending")]).to_numpy()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return build_tree(*xy(self.rows), ranks)


def objects_of(shelves: Sequence[Shelf], key: pa.DataType, grid: Grid) -> Objects:
    """The newest place of each object in the state of transitions. One whose place is not known, because only version
    0.1 has seen it, is left out until its next event."""
    columns = (pa.field(OBJECT.name, key, nullable=False), EVENT.field("ts"), EVENT.field("x"), EVENT.field("y"))
    schema = pa.schema(columns)
    if not shelves:
        return Objects(pa.RecordBatch.from_pylist([], schema=schema), grid)
    narrow = [shelf._replace(rows=shelf.rows.select([KEY, "seen_us", "x", "y"])) for shelf in shelves]
    newest = compact_shelves(narrow, Transitions(all_inside)).rows
    names, seen_us, x, y = newest.filter(newest.column("x").is_valid()).columns
    return Objects(pa.record_batch([names, seen_us.cast(EVENT.field("ts").type), x, y], schema=schema), grid)
