"""Kept events and the new subscriptions that ask for their past: all of these at once, in one pass over the files.

`recall.py` finds the events of one query; what a region and words mean is the same. `newest_matches.py` says which of
the matches there is room for, and `stages/past.py` gives them.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Floats, Ints, SubIds, kernel, read_only
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.space.grid import Grid
from geoswarm.errors import StreamError
from geoswarm.flow.keep import sort_by_place
from geoswarm.flow.match.match import MatchRun, match
from geoswarm.flow.recall import RUN_ROWS_MAX, OpenPart, PastQuery, candidates
from geoswarm.model import GEOMETRY, NEVER_US, TEXT


class AskedPasts(NamedTuple):
    """The new subscriptions of a batch that ask for the past, at least one."""

    asked: Searchable
    ids: SubIds
    """Ascending."""
    since_us: Ints
    """By id: from when on it wants its past."""

    @property
    def query(self) -> PastQuery:
        """One that finds whatever any of them would."""
        rects = self.asked.records.rects
        (xmin, ymin), (xmax, ymax) = rects[:, :2].min(axis=0).tolist(), rects[:, 2:].max(axis=0).tolist()
        return PastQuery(self.asked, (xmin, ymin, xmax, ymax), int(self.since_us.min()), NEVER_US)


def matched(
    parts: Iterable[tuple[OpenPart, int]], asked: AskedPasts, grid: Grid, columns: pa.Schema
) -> Iterator[MatchRun]:
    """The matches of kept events with those who ask, in no order; parts come with the first batch that counts. Some
    are before the time that their subscription asks for. The events have these columns."""
    for gathered in _gather(_conform(table, columns) for table in _candidates(parts, asked)):
        for batch in gathered.combine_chunks().to_batches(max_chunksize=RUN_ROWS_MAX):
            events = sort_by_place(batch, grid)
            yield from match(events, [asked.asked], grid, 0, rows_max=RUN_ROWS_MAX, pairs_max=2 * RUN_ROWS_MAX)


def _candidates(parts: Iterable[tuple[OpenPart, int]], asked: AskedPasts) -> Iterator[pa.Table]:
    query, records = asked.query, asked.asked.records
    since_us = read_only(asked.since_us[np.searchsorted(asked.ids, records.ids)])
    for part, first_kept in parts:
        touched = _touched_by_any(part.blocks.boxes, part.blocks.times_us, records.rects, since_us)
        if touched.any():
            yield candidates(part, touched, query, first_kept)


def _gather(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Small tables together: each search takes a while to begin."""
    held, rows = list[pa.Table](), 0
    for table in tables:
        held.append(table)
        rows += len(table)
        if rows >= RUN_ROWS_MAX:
            yield pa.concat_tables(held)
            held, rows = [], 0
    if rows:
        yield pa.concat_tables(held)


def _conform(events: pa.Table, columns: pa.Schema) -> pa.Table:
    """The columns of the stream as it is now. One that was not kept, or did not exist then, is null; so is one whose
    values its type of now does not have, unless it decides about matches: a user's question must not end the stream."""
    conformed = list[pa.ChunkedArray]()
    for field in columns:
        if field.name not in events.schema.names:
            conformed.append(pa.chunked_array([pa.nulls(len(events), field.type)]))
            continue
        held = events.column(field.name)
        try:
            conformed.append(held if held.type == field.type else held.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if field.name not in ("event_id", TEXT.name, GEOMETRY.name):
                conformed.append(pa.chunked_array([pa.nulls(len(events), field.type)]))
                continue
            raise StreamError(
                f"column {field.name} was kept as {held.type} and is {field.type} now, so the past cannot be given: "
                "give the stream its old type until the window has passed"
            ) from None
    return pa.table(conformed, schema=columns)


@kernel
def _touched_by_any(boxes: Floats, times_us: Ints, rects: Floats, since_us: Ints) -> Bools:
    """The blocks that may have events of some rectangle, from its time on."""
    touched = np.zeros(len(boxes), np.bool_)
    for block in range(len(boxes)):
        for i in range(len(rects)):
            near_x = boxes[block, 0] <= rects[i, 2] and boxes[block, 2] >= rects[i, 0]
            near_y = boxes[block, 1] <= rects[i, 3] and boxes[block, 3] >= rects[i, 1]
            if near_x and near_y and times_us[block, 1] >= since_us[i]:
                touched[block] = True
                break
    return touched
