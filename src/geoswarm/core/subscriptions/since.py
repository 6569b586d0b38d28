"""From when on a subscription is given kept events, as an attribute: the past first, then the stream.

It belongs to the operation, not to the subscription: the past is given once, in the batch in which the subscription
takes effect. So no segment stores it, and a version shows it as null. `store/subscriptions/pasts.py` remembers who
waits for the past, `flow/stages/past.py` gives it.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import numpy as np
import pyarrow as pa

from geoswarm.config import KEPT_SECONDS, amount_of
from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.arrays.merged_rows import MergedRows
from geoswarm.core.subscriptions.attribute_kind import Arrays, Attribute, Column, Inspection, Placement
from geoswarm.core.subscriptions.trigger import is_on_inside
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.model import NEVER_US, TEXT

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AGO_S_MAX = 5e10
"""Longer ago than any event, and still after the first year that Python's calendar has."""


def moment_us(text: str, now_us: int) -> int | None:
    """A time such as 2026-01-31T12:00, in UTC unless it names a zone, or how long before now, such as "15 min", in
    microseconds since 1970; None if it is neither."""
    try:
        when = datetime.fromisoformat(text.strip())
        return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
    except ValueError:
        pass
    try:
        number, unit = amount_of(text)
        return now_us - int(min(number * KEPT_SECONDS[unit], AGO_S_MAX) * 1e6)
    except (ValueError, KeyError):
        return None


class SinceAttribute(Attribute[Ints, None]):
    """Microseconds since 1970; NEVER_US: no past is asked for."""

    name = "since_us"
    columns = (Column("since", pa.string(), 'kept events first, from a time or "1 hour" ago on; null: none'),)
    reasons: ClassVar[Mapping[str, str]] = {"since": "the past cannot be given, or its beginning cannot be read"}

    def parse(self, inspection: Inspection) -> Ints:
        column, count = inspection.rows.column("since"), len(inspection.rows)
        values = np.full(count, NEVER_US, np.int64)
        if column.null_count == count:
            return values
        # As bytes: text that is not UTF-8 must not stop the stream.
        coded = column.cast(pa.binary()).dictionary_encode()
        read = [moment_us(text.decode(errors="replace"), inspection.now_us) for text in coded.dictionary.to_pylist()]
        asks = ~inspection.is_null("since")
        codes = coded.indices.fill_null(0).to_numpy()
        moments = np.array([NEVER_US if moment is None else moment for moment in read], np.int64)
        values[asks] = moments[codes[asks]]
        wrong = asks & np.array([moment is None for moment in read])[codes]
        detail = "subscription {sub_id} asks for kept events since {since!r}: send a time such as 2026-01-31T12:00, or "
        self._refuse(inspection, wrong, detail + 'how long ago, such as "15 min"')
        self._refuse_what_is_not_kept(inspection, asks)
        return values

    def _refuse_what_is_not_kept(self, inspection: Inspection, asks: Bools) -> None:
        window, who = inspection.window, "subscription {sub_id} asks for kept events "
        if window is None or not window.marks_past:
            detail = who + "since {since}, which are not given here: set [window] keep and marks_past = true"
            self._refuse(inspection, asks, detail)
            return
        detail = who + "and is on {on}: a transition has no past, so send on = inside, or leave since out"
        self._refuse(inspection, asks & ~is_on_inside(inspection), detail)
        if window.columns is not None and TEXT.name not in window.columns:
            detail = who + "with keywords, and their text is not kept: name text in the columns of [window]"
            self._refuse(inspection, asks & ~inspection.is_null("keywords"), detail)

    def _refuse(self, inspection: Inspection, chosen: Bools, detail: str) -> None:
        inspection.refusals.turn_away(inspection.puts & chosen, "since", detail)

    def take(self, values: Ints, rows: Ints) -> Ints:
        return values[rows]

    def concatenate(self, parts: Sequence[Ints]) -> Ints:
        return np.concatenate(parts)

    def write(self, values: Ints, placement: Placement) -> Arrays:
        return {}

    def merge(self, parts: Sequence[None], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        return []

    def open(self, records: Arrays) -> None:
        return None

    def read(self, stored: None, ordinals: Ints) -> Ints:
        return np.full(len(ordinals), NEVER_US, np.int64)

    def show(self, values: Ints) -> dict[str, pa.Array]:
        return {"since": pa.nulls(len(values), pa.string())}
