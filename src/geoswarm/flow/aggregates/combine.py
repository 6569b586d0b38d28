"""Counted events of one kind, and how those of one subscription, group and span become one row.

A kind is what rows must have in common to be combined by the same arithmetic: the function, its column, the group's
column and the kind of window. Lengths of windows may differ within it. `count.py` makes rows, `counted.py` has their
columns. Several rows become one here with the events of a run, and again with those of all runs of a task.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.aggregates.partials import make_partials, merge_partials, partial_fields
from geoswarm.core.arrays.jit import Bools, Ints, SubIds, kernel
from geoswarm.core.arrays.radix import argsort
from geoswarm.flow.aggregates.counted import COUNTED, EVENT_TEXT

RADIX_MAX = (1 << 32) - 1
"""The greatest difference of two keys that are sorted by their digits."""


class Spans(NamedTuple):
    """Whose rows are, and which span of time each is of: all columns of `COUNTED` but those of the arithmetic."""

    subs: SubIds
    began: Ints
    groups: pa.StringArray | None
    """None: all are in the group without a name."""
    first_us: Ints
    last_us: Ints
    gaps_us: Ints | None
    """Rows of a session are one if less than this lies between them. None: rows of equal `first_us` are."""
    event_ids: Ints | None
    """None: 0. With them, each row stays alone."""
    event_texts: pa.StringArray | None = None
    """Those that are texts; then the ids are 1."""

    def take(self, order: Ints, last_us: Ints) -> "Spans":
        groups = None if self.groups is None else self.groups.take(pa.array(order))
        gaps_us = None if self.gaps_us is None else self.gaps_us[order]
        event_ids = None if self.event_ids is None else self.event_ids[order]
        texts = None if self.event_texts is None else self.event_texts.take(pa.array(order))
        return Spans(
            self.subs[order], self.began[order], groups, self.first_us[order], last_us, gaps_us, event_ids, texts
        )


class CountedRows(NamedTuple):
    spans: Spans
    partials: list[pa.Array]
    """The columns of `partial_fields`."""

    @property
    def bytes(self) -> int:
        """Those of the partial results, which may be sketches."""
        return sum(column.nbytes for column in self.partials)


def count_events(function: str, spans: Spans, values: pa.Array | None) -> CountedRows:
    """Each row of `spans` is an event, whose value is beside it."""

    def count(order: Ints, starts: Ints) -> list[pa.Array]:
        return make_partials(function, None if values is None else _take(values, order), starts)

    return _combine(spans, count)


def join_counted(function: str, parts: Sequence[CountedRows]) -> CountedRows:
    if len(parts) == 1:
        return parts[0]
    columns = [pa.concat_arrays(some) for some in zip(*(part.partials for part in parts), strict=True)]

    def merge(order: Ints, starts: Ints) -> list[pa.Array]:
        return merge_partials(function, [_take(column, order) for column in columns], starts)

    spans = _concatenate([part.spans for part in parts])
    return CountedRows(spans, columns) if spans.event_ids is not None else _combine(spans, merge)


def counted_batch(function: str, rows: CountedRows) -> pa.RecordBatch:
    """The same with the columns of `COUNTED`."""
    spans, size = rows.spans, len(rows.spans.subs)
    event_ids = np.zeros(size, np.int64) if spans.event_ids is None else spans.event_ids
    groups = pa.nulls(size, pa.string()) if spans.groups is None else spans.groups
    known = [spans.subs, spans.began, groups, spans.first_us, spans.last_us, event_ids]
    columns = dict(zip(COUNTED.names, known, strict=False))
    if spans.event_texts is not None:
        columns[EVENT_TEXT.name] = spans.event_texts
    columns |= zip((field.name for field in partial_fields(function)), rows.partials, strict=True)
    arrays = [columns.get(field.name, pa.nulls(size, field.type)) for field in COUNTED]
    return pa.record_batch([pa.array(array) if isinstance(array, np.ndarray) else array for array in arrays], COUNTED)


def sort_on(order: Ints, keys: Ints) -> Ints:
    """`order` rearranged so that `keys[order]` ascends; equal keys stay as they are."""
    if not len(keys):
        return order
    least, most = int(keys.min()), int(keys.max())
    if most == least:
        return order
    if most - least <= RADIX_MAX:
        return argsort((keys - least).astype(np.uint32), order, most - least)
    return order[np.argsort(keys[order], kind="stable")]


def _combine(spans: Spans, arithmetic: Callable[[Ints, Ints], list[pa.Array]]) -> CountedRows:
    """One row for each run of rows that belong together."""
    count = len(spans.subs)
    if spans.event_ids is not None or not count:
        return CountedRows(spans, arithmetic(np.arange(count), np.arange(count + 1)))
    order = np.arange(count)
    codes = None if spans.groups is None else _codes(spans.groups)
    if codes is not None or not _ascends(spans.subs, spans.first_us):
        order = sort_on(order, spans.first_us)
        order = sort_on(sort_on(order, codes) if codes is not None else order, spans.subs)
    subs, first_us, last_us = spans.subs[order], spans.first_us[order], spans.last_us[order]
    is_new = np.ones(count, np.bool_)
    is_new[1:] = subs[1:] != subs[:-1]
    if codes is not None:
        is_new[1:] |= codes[order[1:]] != codes[order[:-1]]
    if spans.gaps_us is None:
        is_new[1:] |= first_us[1:] != first_us[:-1]
    else:
        _divide_sessions(is_new, first_us, last_us, spans.gaps_us[order])
    starts = np.append(np.flatnonzero(is_new), count)
    return CountedRows(spans.take(order[starts[:-1]], last_us[starts[1:] - 1]), arithmetic(order, starts))


def _ascends(subs: SubIds, first_us: Ints) -> bool:
    before, after = subs[:-1], subs[1:]
    return bool(((before < after) | ((before == after) & (first_us[:-1] <= first_us[1:]))).all())


def _codes(groups: pa.StringArray) -> Ints:
    coded = groups.dictionary_encode()
    return np.asarray(coded.indices.cast(pa.int64()).fill_null(len(coded.dictionary)), np.int64)


def _take(column: pa.Array, order: Ints) -> pa.Array:
    return column.take(pa.array(order))


def _concatenate(parts: Sequence[Spans]) -> Spans:
    """All of one kind: what one of them has, all have."""

    def joined(some: Sequence[Ints | None]) -> Ints | None:
        known = [array for array in some if array is not None]
        return np.concatenate(known) if known else None

    subs, began, first_us, last_us = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("subs", "began", "first_us", "last_us")
    )
    groups = [part.groups for part in parts if part.groups is not None]
    gaps_us, event_ids = joined([part.gaps_us for part in parts]), joined([part.event_ids for part in parts])
    whole = pa.concat_arrays(groups) if groups else None
    texts = [part.event_texts for part in parts if part.event_texts is not None]
    return Spans(subs, began, whole, first_us, last_us, gaps_us, event_ids, pa.concat_arrays(texts) if texts else None)


@kernel
def _divide_sessions(is_new: Bools, first_us: Ints, last_us: Ints, gaps_us: Ints) -> None:
    """`is_new` says where another subscription or group begins; now also where a session does. `last_us` becomes the
    greatest of the session up to each row."""
    for i in range(1, len(is_new)):
        if is_new[i]:
            continue
        if first_us[i] - last_us[i - 1] >= gaps_us[i]:
            is_new[i] = True
        elif last_us[i] < last_us[i - 1]:
            last_us[i] = last_us[i - 1]
