"""Find kept events: those that a subscription would have matched, within a time.

A query is a subscription that is not kept, so that both mean the same by a region, by words and by an area: the blocks
of a part that may have events are found by their boxes, and their rows are matched like events that just came.
`keep.py` made the parts.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Array, Bools
from geoswarm.core.index.blocks import Blocks, runs_of
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keep import BATCH, BOXES, ROWS, TIMES, sort_by_place
from geoswarm.flow.match.match import match

RUN_ROWS_MAX = 262_144
"""Events matched at once."""


class PastQuery(NamedTuple):
    """What is asked of the kept events."""

    asked: Searchable
    """One subscription, whose matches are wanted."""
    box: tuple[float, float, float, float]
    """The rectangle round its region."""
    since_us: int
    until_us: int
    """The first time that is too late."""


class OpenPart(NamedTuple):
    """A part that is mapped."""

    rows: pa.RecordBatch
    blocks: Blocks


def open_part(arrays: Mapping[str, Array]) -> OpenPart:
    """Without a copy."""
    rows = pa.ipc.open_file(pa.py_buffer(arrays[ROWS])).get_batch(0)
    return OpenPart(rows, Blocks(arrays[BOXES], arrays[TIMES]))


def blocks_touched(part: OpenPart, query: PastQuery) -> Bools:
    return part.blocks.meeting(query.box, query.since_us, query.until_us)


def candidates(part: OpenPart, touched: Bools, query: PastQuery, first_kept: int) -> pa.Table:
    """The rows of the blocks that were touched, within the time, and of batches from `first_kept` on."""
    runs = runs_of(touched, len(part.rows)).tolist()
    table = pa.Table.from_batches([part.rows.slice(first, end - first) for first, end in runs], part.rows.schema)
    times_us = table.column("ts").cast(pa.int64()).to_numpy()
    wanted = (times_us >= query.since_us) & (times_us < query.until_us)
    if BATCH.name in table.schema.names:
        wanted &= table.column(BATCH.name).to_numpy() >= first_kept
        table = table.drop_columns([BATCH.name])
    return table if wanted.all() else table.filter(pa.array(wanted))


def matched_events(tables: Sequence[pa.Table], query: PastQuery, grid: Grid) -> pa.Table | None:
    """Those of the candidates that match, in no order; None if there is no candidate."""
    given = [table for table in tables if len(table)]
    if not given:
        return None
    events = pa.concat_tables(given, promote_options="default").combine_chunks()
    if not query.asked.records.ids.size:
        return events.slice(0, 0)
    found = []
    for batch in events.to_batches(max_chunksize=RUN_ROWS_MAX):
        runs = match(
            sort_by_place(batch, grid), [query.asked], grid, 0, rows_max=RUN_ROWS_MAX, pairs_max=2 * RUN_ROWS_MAX
        )
        found += [run.events.filter(pa.array(np.diff(run.offsets) > 0)) for run in runs]
    return pa.Table.from_batches(found, events.schema)
