"""Counts matches of subscriptions that have an aggregate, and leaves those of the others.

    matches ──► who counts? ──┬─► counts nothing: reported as ever
                              └─► its window, and whether it is late ──► one row for a span ──► `send_counted`

A task has one `EventCounter`. Few distinct specs are shared by many subscriptions, so all pairs of one kind are counted
at once (`combine.py`). The rules are those of docs/aggregates.md; the state of windows is kept elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.aggregates.columns import groups_of, values_of
from geoswarm.core.aggregates.spec import COUNTED, SESSION, AggregateSpec
from geoswarm.core.arrays.batches import cuts, row_bytes
from geoswarm.core.arrays.jit import Bools, Ints, SubIds
from geoswarm.core.subscriptions.aggregate import NO_SPEC, AggregateValues
from geoswarm.flow.aggregates.combine import CountedRows, Spans, count_events, counted_batch, join_counted, sort_on
from geoswarm.flow.match.match import MatchRun
from geoswarm.model import TIMESTAMP

ROWS_HELD = 1_000_000
"""Rows of runs that are held apart: with twice as many as were left the last time, they are combined again."""
CHUNK_BYTES_MAX, JOINED_BYTES_MAX = 64 << 20, 256 << 20
"""Bytes of values that are counted at once, and of sketches that are joined at once: an Arrow column may hold 2 GB."""
TIME_US_MAX = 1 << 61
"""Events further from 1970 count as if they came then, 73,000 years from it, where times can still be added."""

LookUp = Callable[[SubIds], AggregateValues]
"""`BatchState.aggregates`."""


class _Kind(NamedTuple):
    function: str
    column: str | None
    group_by: str | None
    window: str

    @classmethod
    def of(cls, spec: AggregateSpec) -> "_Kind":
        return cls(spec.aggregate.function, spec.aggregate.column, spec.group_by, spec.window.kind)


class _Pairs(NamedTuple):
    """Events and the subscriptions that count them, by subscription."""

    subs: SubIds
    began: Ints
    codes: Ints
    rows: Ints
    """Where each event is among those of the run."""
    ts_us: Ints

    def filter(self, chosen: Bools) -> "_Pairs":
        return self if chosen.all() else _Pairs(*(column[chosen] for column in self))


class EventCounter:
    def __init__(self, look_up: LookUp, watermark_us: int | None) -> None:
        """`watermark_us` is that of the batch; None: there was no event before it."""
        self._look_up, self._watermark_us = look_up, watermark_us
        self._counted: dict[_Kind, list[CountedRows]] = {}
        self._rows = self._rows_left = 0
        self.late = 0
        """(event, subscription, window) that came when the window was closed."""

    def take(self, met: MatchRun) -> MatchRun:
        """Count some matches. Returns those that are to be reported; events stay, also those that are left with
        none."""
        if not len(met.subs):
            return met
        order = sort_on(np.arange(len(met.subs)), met.subs)
        subs = met.subs[order]
        first = np.flatnonzero(np.append(True, subs[1:] != subs[:-1]))
        found = self._look_up(subs[first])
        if not found.counts_any():
            return met
        lengths = np.diff(np.append(first, len(subs)))
        codes = np.repeat(found.codes, lengths)
        counts = codes != NO_SPEC
        rows = np.repeat(np.arange(len(met.events)), np.diff(met.offsets))[order]
        pairs = _Pairs(subs, np.repeat(found.began, lengths), codes, rows, _times(met.events)[rows]).filter(counts)
        self._count_all(pairs, found, met.events)
        left = np.ones(len(subs), np.bool_)
        left[order[counts]] = False
        return MatchRun(met.events, np.append(0, np.cumsum(left))[met.offsets], met.subs[left])

    def counted(self) -> Iterator[pa.RecordBatch]:
        """All that was counted, in the columns of `counted.py`."""
        self._combine()
        for kind, parts in self._counted.items():
            for rows in parts:
                yield counted_batch(kind.function, rows)

    def _count_all(self, pairs: _Pairs, found: AggregateValues, events: pa.RecordBatch) -> None:
        used = np.flatnonzero(np.bincount(pairs.codes)).tolist()
        kinds: dict[_Kind, dict[int, AggregateSpec]] = {}
        for code, spec in ((code, found.spec(code)) for code in used):
            kinds.setdefault(_Kind.of(spec), {})[code] = spec
        for kind, specs in kinds.items():
            of_kind = np.zeros(len(found.texts), np.bool_)
            of_kind[list(specs)] = True
            for rows in self._count(pairs.filter(of_kind[pairs.codes]), specs, events):
                self._counted.setdefault(kind, []).append(rows)
                self._rows += len(rows.spans.subs)
        if self._rows > max(ROWS_HELD, 2 * self._rows_left):
            self._combine()

    def _combine(self) -> None:
        for kind, parts in self._counted.items():
            sizes = np.array([part.bytes for part in parts])
            parts[:] = [join_counted(kind.function, parts[i:j]) for i, j in cuts(sizes, JOINED_BYTES_MAX)]
        self._rows = self._rows_left = sum(len(part.spans.subs) for parts in self._counted.values() for part in parts)

    def _count(
        self, pairs: _Pairs, specs: Mapping[int, AggregateSpec], events: pa.RecordBatch
    ) -> Iterator[CountedRows]:
        """Count pairs of one kind."""
        spec = next(iter(specs.values()))
        windows = _Windows(specs, self._watermark_us)
        pairs, first_us = self._drop_late(pairs, windows, spec.window.kind)
        names = [name for name in events.schema.names if name in (spec.aggregate.column, spec.group_by)]
        asked = events.select(names)
        sizes = row_bytes(asked)[pairs.rows] if names else np.ones(len(pairs.rows), np.int64)
        for start, end in cuts(sizes, CHUNK_BYTES_MAX):
            part, first = _Pairs(*(column[start:end] for column in pairs)), first_us[start:end]
            taken = asked.take(pa.array(part.rows)) if names else _no_columns(end - start)
            spans = Spans(
                part.subs,
                part.began,
                groups_of(spec, taken) if spec.group_by in names else None,
                first,
                first,
                windows.lengths_us[part.codes] if spec.window.kind == SESSION else None,
                *(_event_ids(events, part.rows) if spec.window.kind == COUNTED else (None, None)),
            )
            yield count_events(spec.aggregate.function, spans, values_of(spec, taken))

    def _drop_late(self, pairs: _Pairs, windows: "_Windows", kind: str) -> tuple[_Pairs, Ints]:
        """The pairs that some open window counts, and the `first_us` of each."""
        first_us = pairs.ts_us
        if kind == COUNTED:
            return pairs, first_us
        slides_us = None if kind == SESSION else windows.slides_us[pairs.codes]
        if slides_us is not None:
            first_us = first_us - first_us % slides_us
        if windows.closed_us is None:
            return pairs, first_us
        # A window is closed if it starts here or before, as is a session of an event that came then.
        closed_us = windows.closed_us[pairs.codes]
        if slides_us is None:
            is_open = first_us > closed_us
            self.late += int(np.count_nonzero(~is_open))
        else:
            lengths_us = windows.lengths_us[pairs.codes]
            oldest_us = first_us - (lengths_us - slides_us)
            late = np.flatnonzero(oldest_us <= closed_us)
            closed = (closed_us[late] - oldest_us[late]) // slides_us[late] + 1
            self.late += int(np.minimum(closed, lengths_us[late] // slides_us[late]).sum())
            is_open = first_us > closed_us
        return pairs.filter(is_open), first_us if is_open.all() else first_us[is_open]


class _Windows:
    """The windows of some specs, by code."""

    def __init__(self, specs: Mapping[int, AggregateSpec], watermark_us: int | None) -> None:
        size = max(specs) + 1
        self.lengths_us, self.slides_us = np.zeros(size, np.int64), np.ones(size, np.int64)
        self.closed_us = None if watermark_us is None else np.zeros(size, np.int64)
        for code, spec in specs.items():
            self.lengths_us[code], self.slides_us[code] = spec.window.length_us, spec.window.slide_us
            if self.closed_us is not None and watermark_us is not None:
                closed_us = watermark_us - spec.window.length_us
                self.closed_us[code] = min(max(closed_us, -TIME_US_MAX), TIME_US_MAX)


def _times(events: pa.RecordBatch) -> Ints:
    ts_us: Ints = events.column("ts").cast(TIMESTAMP).cast(pa.int64()).to_numpy()
    return np.clip(ts_us, -TIME_US_MAX, TIME_US_MAX)


def _event_ids(events: pa.RecordBatch, rows: Ints) -> tuple[Ints, pa.StringArray | None]:
    """Numbers, and texts where the ids are texts."""
    ids = events.column("event_id")
    if pa.types.is_string(ids.type):
        return np.ones(len(rows), np.int64), ids.take(pa.array(rows))
    return ids.to_numpy()[rows], None


def _no_columns(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(rows)], ["none"])
