"""Windows of so many events: one row is held for each subscription and group, that of the window that is not full.

Rows are never overwritten, so the newest of them counts; one of no events says that the window was full.

    held   ▒▒▒        the 3 events of the open window, as one row
    new       ░░░░    each event a row, in the order of time and id
    n = 5  ▒▒▒░░ ░░   one window is full and given; two events are held
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.aggregates.spec import FUNCTIONS
from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.flow.aggregates.answers import Closed
from geoswarm.flow.aggregates.counted import EVENT_ID, EVENT_TEXT
from geoswarm.flow.aggregates.held_rows import HeldRows, Sorted, join, merge, starts_of
from geoswarm.flow.aggregates.live import Rules


def number_texts(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """The rows of a batch that one executor has, with ids of events that are texts as numbers in the order of these
    texts. It is all that they are needed for: what is held of a window is the events of batches before."""
    with_texts = [rows for rows in batches if EVENT_TEXT.name in rows.schema.names]
    texts = pa.chunked_array([rows.column(EVENT_TEXT.name) for rows in with_texts], EVENT_TEXT.type)
    if texts.null_count == len(texts):
        return batches
    ranks = pc.rank(texts, sort_keys="ascending", tiebreaker="dense").cast(pa.int64())
    numbers, first = pc.if_else(texts.is_valid(), ranks, 0).combine_chunks(), 0
    numbered = [rows for rows in batches if EVENT_TEXT.name not in rows.schema.names]
    for rows in with_texts:
        own = numbers.slice(first, len(rows))
        known = pc.if_else(rows.column(EVENT_TEXT.name).is_valid(), own, rows.column(EVENT_ID.name))
        numbered.append(rows.set_column(rows.schema.get_field_index(EVENT_ID.name), EVENT_ID, known))
        first += len(rows)
    return numbered


def newest(rows: Sorted) -> Bools:
    """Which rows are the newest of their subscription and group."""
    order = np.lexsort((rows.rows.batches, rows.numbers))
    is_last = np.roll(rows.is_new, -1)
    found = np.zeros(len(order), np.bool_)
    found[order[is_last]] = True
    return found


def order_of(rows: Sorted, is_held: Bools) -> Ints:
    """Held rows first, then events by time and id, within each subscription and group."""
    held = rows.rows
    return np.lexsort((held.events, held.first, ~is_held, rows.numbers))


def fill(rows: Sorted, rules: Rules, is_held: Bools) -> tuple[Closed, HeldRows]:
    """The windows that are full, and the rows to hold. The rows are in the order of `order_of`; of each subscription
    and group at most one is held, and the others are single events."""
    held, sizes, begins = rows.rows, rules.of(rules.events), starts_of(rows.is_new)
    before = np.cumsum(held.counts) - held.counts
    place = before - np.repeat(before[begins[:-1]], np.diff(begins))
    window = place // sizes
    is_first = rows.is_new.copy()
    is_first[1:] |= window[1:] != window[:-1]
    starts = starts_of(is_first)
    heads = rules.take(starts[:-1])
    merged = merge(held, starts, FUNCTIONS, heads.of(heads.functions))
    is_full = merged.counts == heads.of(heads.events)
    full = np.flatnonzero(is_full)
    closed = Closed(merged.take(full), heads.take(full), merged.first[full], merged.last[full])
    # Where the last window is full, and something was held before, that must be overruled.
    is_new = rows.is_new[starts[:-1]]
    was_held = is_held[begins[:-1]][np.cumsum(is_new) - 1]
    ended = np.flatnonzero(is_full & np.roll(is_new, -1) & was_held)
    return closed, join([merged.where(~is_full), _emptied(merged.take(ended))])


def _emptied(rows: HeldRows) -> HeldRows:
    """Rows of no events for the same subscriptions and groups."""
    rest = rows.rest
    if rest is not None:
        others = [pa.nulls(len(rows), field.type) for field in list(rest.schema)[1:]]
        rest = pa.record_batch([rest.columns[0], *others], schema=rest.schema)
    return replace(rows, counts=np.zeros(len(rows), np.int64), rest=rest)
