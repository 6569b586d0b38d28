"""The obvious answers of aggregates: every counted event in a list, every window found anew in each batch.

It is slow on purpose, and shares only the reading of texts with the engine: the rules of `docs/aggregates.md` stand
here one after the other. `oracle.py` knows who is live and who meets whom. Answers are exact, where the engine's have
the `error` that it states.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

from geoswarm.core.aggregates.spec import Aggregate, AggregateSpec, Window
from geoswarm.core.where.read import read_where
from geoswarm.run.oracle.oracle import Counting, Oracle
from geoswarm.run.oracle.outputs import Pair
from geoswarm.run.oracle.where import truth

Row = dict[str, Any]
Span = tuple[int, int]


class CountedEvent(NamedTuple):
    """Ordered as windows of `count` order them."""

    batch: int
    ts_us: int
    event_id: int
    value: Any
    """None also where the aggregate has no column, or the events have none of that name."""


@dataclass
class GroupState:
    """What one subscription has counted in one group and not given yet."""

    events: list[tuple[CountedEvent, Span | None]] = field(default_factory=list)
    """Each with a window that it counts in; None where windows follow from all of them (`count`, `session`)."""


class AggregateOracle:
    def __init__(self, oracle: Oracle, lateness_us: int, ahead_us: int) -> None:
        """`oracle` has the operations of each batch before its events are given here."""
        self._oracle, self._lateness_us, self._ahead_us = oracle, lateness_us, ahead_us
        self._state: dict[tuple[int, int], dict[str | None, GroupState]] = {}
        self._batch = -1
        self._newest_us: int | None = None
        self.late = 0
        """(event, subscription, window) that came too late, in all batches."""
        self.ahead = 0
        """Events too far ahead of the clock to move the watermark."""

    @property
    def watermark_us(self) -> int | None:
        """That of the next batch; None before any event."""
        return None if self._newest_us is None else self._newest_us - self._lateness_us

    def run(self, events: pa.Table, now_us: int, met: set[Pair] | None = None) -> list[Row]:
        """The rows that a batch gives. `met` are its matches, where they are known."""
        self._batch += 1
        counting = {sub: counts for sub, counts in self._oracle.counting.items() if self._is_live(sub, now_us)}
        kept = {(sub, counts.began) for sub, counts in counting.items()}
        self._state = {key: groups for key, groups in self._state.items() if key in kept}
        rows = [row for sub, counts in counting.items() for row in self._close(sub, counts)]
        met = self._oracle.match(events, now_us) if met is None else met
        fit = [self._oracle.is_fit(event) for event in events.to_pylist()]
        ids, times = events.column("event_id").to_pylist(), events.column("ts").cast(pa.int64()).to_pylist()
        for sub, counts in counting.items():
            values = _values(counts.spec.aggregate, events)
            groups = _names(counts.spec.group_by, events)
            for event, ts_us, value, group, is_fit in zip(ids, times, values, groups, fit, strict=True):
                if is_fit and (event, sub) in met:
                    self._count(sub, counts, group, CountedEvent(self._batch, ts_us, event, value))
            rows += self._fill(sub, counts)
        for ts_us, is_fit in zip(times, fit, strict=True):
            if is_fit and ts_us > now_us + self._ahead_us:
                self.ahead += 1
            elif is_fit:
                self._newest_us = ts_us if self._newest_us is None else max(self._newest_us, ts_us)
        return rows

    def windows_open(self) -> int:
        """The windows with an event that are not given yet."""
        specs = {(sub, counts.began): counts.spec for sub, counts in self._oracle.counting.items()}
        return sum(
            len(list(_windows(specs[key].window, state)))
            for key, groups in self._state.items()
            if key in specs
            for state in groups.values()
        )

    def _is_live(self, sub: int, now_us: int) -> bool:
        held = self._oracle.live.get(sub)  # what had expired before a batch with operations is gone
        return held is not None and (held[4] is None or held[4] > now_us)

    def _is_over(self, end_us: int) -> bool:
        return self.watermark_us is not None and end_us <= self.watermark_us

    def _count(self, sub: int, counts: Counting, group: str | None, event: CountedEvent) -> None:
        window, spans = counts.spec.window, list[Span | None]()
        if window.kind == "count":
            spans = [None]
        elif window.kind == "session":
            spans = [] if self._is_over(event.ts_us + window.length_us) else [None]
            self.late += not spans
        else:
            for span in _spans(window, event.ts_us):
                if self._is_over(span[1]):
                    self.late += 1
                else:
                    spans.append(span)
        if spans:
            groups = self._state.setdefault((sub, counts.began), {})
            groups.setdefault(group, GroupState()).events.extend((event, span) for span in spans)

    def _close(self, sub: int, counts: Counting) -> Iterator[Row]:
        """The rows of windows that are over by time."""
        if counts.spec.window.kind != "count":
            for group, state in self._state.get((sub, counts.began), {}).items():
                for span, events in list(_windows(counts.spec.window, state)):
                    if self._is_over(span[1]):
                        yield from self._give(sub, counts, group, state, span, events)

    def _fill(self, sub: int, counts: Counting) -> Iterator[Row]:
        """The rows of windows of `count` that are full."""
        if counts.spec.window.kind == "count":
            for group, state in self._state.get((sub, counts.began), {}).items():
                for span, events in list(_windows(counts.spec.window, state)):
                    if len(events) == counts.spec.window.events:
                        yield from self._give(sub, counts, group, state, span, events)

    def _give(
        self, sub: int, counts: Counting, group: str | None, state: GroupState, span: Span, events: list[CountedEvent]
    ) -> Iterator[Row]:
        by_span = counts.spec.window.kind in ("tumbling", "sliding")
        state.events = [(event, of) for event, of in state.events if not (of == span if by_span else event in events)]
        value, top = answer(counts.spec.aggregate, [event.value for event in events])
        if _is_asked_for(counts.spec, value, len(events)):
            yield {
                "sub_id": sub,
                "user": counts.user,
                "group": group,
                "window_start": span[0],
                "window_end": span[1],
                "count": len(events),
                "value": value,
                "top": top,
            }


def answer(aggregate: Aggregate, values: list[Any]) -> tuple[float | None, list[tuple[str, int]] | None]:
    """The exact value of an aggregate, or its top."""
    function, _, argument = aggregate
    given = [value for value in values if value is not None]
    numbers = [value for value in given if not (isinstance(value, float) and math.isnan(value))]
    if function == "count":
        return float(len(values)), None
    if function == "distinct":
        return float(len({"nan" if value != value else value for value in given})), None
    if function == "top":
        often = Counter(_text(value) for value in given)
        return None, sorted(often.items(), key=lambda one: (-one[1], one[0]))[: int(argument or 0)]
    if not numbers:
        return None, None
    if function in ("min", "max"):
        return float(min(numbers) if function == "min" else max(numbers)) + 0.0, None
    if function == "quantile":
        place = math.ceil((argument or 0.0) * len(numbers))
        return float(sorted(map(float, numbers))[max(place, 1) - 1]), None
    infinities = {value for value in numbers if math.isinf(value)}
    if infinities:
        return (infinities.pop() if len(infinities) == 1 else None), None
    total = sum(map(Fraction, numbers), Fraction(0))
    if function == "sum":
        return _nearest(total), None
    nearest = _nearest(total)
    return (nearest / len(numbers) if math.isfinite(nearest) else _nearest(total / len(numbers))), None


def _nearest(number: Fraction) -> float:
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _spans(window: Window, ts_us: int) -> list[Span]:
    """The tumbling or sliding windows that a time lies in."""
    newest = ts_us // window.slide_us * window.slide_us
    starts = range(newest, ts_us - window.length_us, -window.slide_us)
    return [(start, start + window.length_us) for start in starts]


def _windows(window: Window, state: GroupState) -> Iterator[tuple[Span, list[CountedEvent]]]:
    """All windows that have an event."""
    if window.kind in ("tumbling", "sliding"):
        for span in sorted({span for _, span in state.events if span is not None}):
            yield span, [event for event, of in state.events if of == span]
    elif window.kind == "count":
        events = sorted((event for event, _ in state.events), key=lambda event: event[:3])
        for first in range(0, len(events), window.events):
            part = events[first : first + window.events]
            yield (min(event.ts_us for event in part), max(event.ts_us for event in part)), part
    else:
        session = list[CountedEvent]()
        for event in sorted((event for event, _ in state.events), key=lambda event: event.ts_us):
            if session and event.ts_us - session[-1].ts_us >= window.length_us:
                yield (session[0].ts_us, session[-1].ts_us + window.length_us), session
                session = []
            session.append(event)
        if session:
            yield (session[0].ts_us, session[-1].ts_us + window.length_us), session


def _is_asked_for(spec: AggregateSpec, value: float | None, count: int) -> bool:
    if spec.when is None:
        return True
    known = None if value is not None and math.isnan(value) else value
    row = {"value": known, spec.aggregate.function: known, "count": count}
    return truth(read_where(spec.when), row) is True


def _column(name: str | None, events: pa.Table) -> list[Any]:
    found: list[Any] = [None] * len(events)
    return events.column(name).to_pylist() if name is not None and name in events.schema.names else found


def _values(aggregate: Aggregate, events: pa.Table) -> list[Any]:
    """A value that the function cannot count is none."""
    values = _column(aggregate.column, events)
    if aggregate.function in ("distinct", "top"):
        return values
    return [value if isinstance(value, int | float) and not isinstance(value, bool) else None for value in values]


def _names(group_by: str | None, events: pa.Table) -> list[str | None]:
    return [None if value is None else _text(value) for value in _column(group_by, events)]


def _text(value: Any) -> str:
    written: str = pa.scalar(value).cast(pa.string()).as_py()
    return written[:128]
