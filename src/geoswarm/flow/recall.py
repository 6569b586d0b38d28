"""Find kept events: those that a subscription would have matched, within a time, and of which a condition is true.

A query is a subscription that is not kept, so that both mean the same by a region, by words and by an area: the blocks
of a part that may have events are found by their boxes, and their rows are matched like events that just came.
`keep.py` made the parts.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.batches import gather
from geoswarm.core.arrays.jit import Array, Bools
from geoswarm.core.index.blocks import Blocks, runs_of
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.space.grid import Grid
from geoswarm.core.where.clause import Clause
from geoswarm.core.where.evaluate import chosen
from geoswarm.core.where.types import check_where
from geoswarm.errors import InputError
from geoswarm.flow.keep import BATCH, BOXES, ROWS, TIMES, KeptPart, sort_by_place
from geoswarm.flow.match.match import match

_EVENT_ID = "event_id"
RUN_ROWS_MAX = 262_144
"""Events matched at once, or some more."""


class PastQuery(NamedTuple):
    """What is asked of the kept events."""

    asked: Searchable
    """One subscription, whose matches are wanted."""
    box: tuple[float, float, float, float]
    """The rectangle round its region."""
    since_us: int
    until_us: int
    """The first time that is too late."""
    where: Clause | None = None
    """What must be true of their columns."""


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


def join_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Kept events of several batches, at least of one. What a batch does not have is null there, and a column that was
    kept with two types gets one that has the values of both; ids that were integers become texts beside texts."""
    tables = _ids_alike(tables)
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as why:
        raise InputError(
            f"events were kept with columns of types that do not fit together ({why}): ask for a time, by since and "
            "until, in which they did not change"
        ) from None
    everywhere = set.intersection(*(set(table.schema.names) for table in tables))
    fields = [field if field.name in everywhere else field.with_nullable(True) for field in whole.schema]
    return pa.Table.from_arrays(whole.columns, schema=pa.schema(fields))


def _ids_alike(tables: Sequence[pa.Table]) -> Sequence[pa.Table]:
    held = [table.schema.get_field_index(_EVENT_ID) for table in tables]
    found = {table.schema.field(at).type for table, at in zip(tables, held, strict=True) if at >= 0}
    if len(found) < 2 or pa.string() not in found:
        return tables
    pairs = zip(tables, held, strict=True)
    return [t if at < 0 else t.set_column(at, _EVENT_ID, t.column(at).cast(pa.string())) for t, at in pairs]


def matched_events(tables: Sequence[pa.Table], query: PastQuery, grid: Grid) -> pa.Table | None:
    """Those of the candidates that match, in no order; None if no part was touched."""
    if not tables:
        return None
    events = join_tables(tables)
    if query.where is not None:
        check_where(query.where, events.schema)
    if not query.asked.records.ids.size:
        return events.slice(0, 0)
    found = []
    for held in gather(iter(events.to_batches(max_chunksize=RUN_ROWS_MAX)), RUN_ROWS_MAX):
        batch = held if query.where is None else chosen(query.where, held)
        runs = match(
            sort_by_place(batch, grid), [query.asked], grid, 0, rows_max=RUN_ROWS_MAX, pairs_max=2 * RUN_ROWS_MAX
        )
        found += [run.events.filter(pa.array(np.diff(run.offsets) > 0)) for run in runs]
    return pa.Table.from_batches(found, events.schema)


def newest_events(found: Sequence[pa.Table], limit: int | None) -> pa.Table | None:
    """As many as are wanted, the newest first, of one time the lowest id first."""
    if not found:
        return None
    events = found[0] if len(found) == 1 else join_tables(found)
    try:
        order = pc.sort_indices(events, [("ts", "descending"), ("event_id", "ascending")])
        return events.take(order.slice(0, limit))
    except pa.ArrowInvalid as why:
        raise InputError(
            f"an answer of {len(events):,} events has more text than one table may hold ({why}): ask with a limit, or "
            "for fewer columns, a smaller region or a shorter time; on Spark, query_frame has no such limit"
        ) from None


def has_enough(events: pa.Table | None, limit: int | None, part: KeptPart) -> bool:
    """Whether so many events are found that are newer than all of a part."""
    if events is None or limit is None or len(events) < limit:
        return False
    return bool(events["ts"][limit - 1].cast(pa.int64()).as_py() > part.times_us[1])
