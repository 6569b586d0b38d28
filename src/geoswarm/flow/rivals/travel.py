"""Numbers events that may be in several parcels, and cuts them into pieces that can be packed.

`replicated_index.py` and `route_areas.py` decide which parcels an event is in.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX, cuts, xy
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.cells import CODE_MAX, codes_of, frame_of
from geoswarm.core.space.grid import Grid
from geoswarm.flow.route_terms import travel_schema


def number_in_order(events: pa.RecordBatch, first_event: int, grid: Grid) -> pa.RecordBatch:
    """The events in Z-order, each with its number in arrival order, and no copies yet."""
    order = sort_order(codes_of(*xy(events), frame_of(grid)), CODE_MAX)
    copies = pa.array(np.zeros(len(events), np.int32))
    columns = [*events.take(pa.array(order)).columns, pa.array(first_event + order), copies]
    return pa.record_batch(columns, schema=travel_schema(events.schema))


def pieces(sizes: Ints, bytes_max: int = GATHERED_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """Pieces (first, end) of rows of these sizes that fit into one column: at least one, which may be empty."""
    yield from cuts(sizes, bytes_max) if len(sizes) else [(0, 0)]
