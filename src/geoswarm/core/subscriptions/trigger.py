"""When a subscription reports, as an attribute: for every event inside, or when an object enters, leaves or stays.

The value is one number, INSIDE, ENTER or EXIT of `model.py`, or the microseconds of a dwell. Transitions are found in
`flow/keyed/transitions.py`.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Ints, Ordinals, SubIds
from geoswarm.core.arrays.merged_rows import GONE, MergedRows
from geoswarm.core.subscriptions.attribute_kind import Arrays, Attribute, Column, Inspection, Placement
from geoswarm.model import ENTER, EXIT, INSIDE

ON_ARRAYS = "on_"
"""The prefix of its array names in a segment."""
DWELL_S_MAX = 1e9
"""About thirty years: longer than any use, and in microseconds far from the largest integer."""
_WORDS = {"inside": INSIDE, "enter": ENTER, "exit": EXIT}
_CODES = np.array(list(_WORDS.values()), np.int64)
_NUMBER = r"(?:[0-9]{1,10}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?"
_PATTERN = rf"^\s*(?:(?P<word>{'|'.join(_WORDS)})|dwell\(\s*(?P<seconds>{_NUMBER})\s*\))\s*$"


class StoredTransitions(NamedTuple):
    """The subscriptions of a segment that are not on `inside`, by id: most are on `inside`, and cost nothing here."""

    ids: SubIds
    ordinals: Ordinals
    codes: Ints


NO_TRANSITIONS = StoredTransitions(np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0, np.int64))


class OnAttribute(Attribute[Ints, StoredTransitions]):
    name = "on"
    columns = (Column("on", pa.string(), "inside, enter, exit or dwell(SECONDS); null: inside"),)
    reasons: ClassVar[Mapping[str, str]] = {
        "on": "what the subscription is on is none of inside, enter, exit, dwell(SECONDS)"
    }

    def parse(self, inspection: Inspection) -> Ints:
        column, count = inspection.rows.column("on"), len(inspection.rows)
        codes = np.full(count, INSIDE, np.int64)
        if column.null_count == count:
            return codes
        given = np.flatnonzero(~inspection.is_null("on"))
        # As bytes: text that is not UTF-8 must not stop the stream.
        parts = pc.extract_regex(column.take(pa.array(given)).cast(pa.binary()), _PATTERN)
        words = pc.index_in(parts.field("word"), pa.array([word.encode() for word in _WORDS]))
        counted = pc.greater(pc.binary_length(parts.field("seconds")), 0).fill_null(False)
        seconds = pc.if_else(counted, parts.field("seconds"), b"0").cast(pa.string()).cast(pa.float64()).to_numpy()
        fine = pc.is_valid(parts).to_numpy(zero_copy_only=False) & (seconds <= DWELL_S_MAX)
        dwells = fine & words.is_null().to_numpy(zero_copy_only=False)
        codes[given] = _CODES[words.fill_null(0).to_numpy()]
        codes[given[dwells]] = np.rint(seconds[dwells] * 1e6)
        wrong = np.zeros(count, np.bool_)
        wrong[given[~fine]] = True
        detail = "subscription {sub_id} is on {on!r}: send inside, enter, exit or dwell(SECONDS), with "
        detail += f"SECONDS from 0 to {DWELL_S_MAX:.0f}"
        inspection.refusals.turn_away(inspection.puts & wrong, "on", detail)
        return codes

    def take(self, values: Ints, rows: Ints) -> Ints:
        return values[rows]

    def concatenate(self, parts: Sequence[Ints]) -> Ints:
        return np.concatenate(parts)

    def write(self, values: Ints, placement: Placement) -> Arrays:
        chosen = placement.by_id[values[placement.by_id] != INSIDE]
        if not len(chosen):
            return {}
        parts = StoredTransitions(placement.ids[chosen], chosen.astype(np.uint32), values[chosen])
        return {f"{ON_ARRAYS}{part}": array for part, array in parts._asdict().items()}

    def merge(self, parts: Sequence[StoredTransitions], rows: MergedRows) -> ArrayPieces:
        ordinals = [places[part.ordinals] for part, places in zip(parts, rows.places, strict=True)]
        kept = [place != GONE for place in ordinals]
        ids = np.concatenate([part.ids[chosen] for part, chosen in zip(parts, kept, strict=True)])
        if not len(ids):
            return []
        codes = np.concatenate([part.codes[chosen] for part, chosen in zip(parts, kept, strict=True)])
        order = np.argsort(ids)
        merged = StoredTransitions(ids[order], np.concatenate(ordinals)[np.concatenate(kept)][order], codes[order])
        return [(f"{ON_ARRAYS}{part}", [array]) for part, array in merged._asdict().items()]

    def open(self, records: Arrays) -> StoredTransitions:
        if f"{ON_ARRAYS}ids" not in records:
            return NO_TRANSITIONS
        return StoredTransitions(*(records[f"{ON_ARRAYS}{part}"] for part in StoredTransitions._fields))

    def read(self, stored: StoredTransitions, ordinals: Ints) -> Ints:
        if not len(stored.ordinals) or not len(ordinals):
            return np.full(len(ordinals), INSIDE, np.int64)
        codes = np.full(max(int(stored.ordinals.max()), int(ordinals.max())) + 1, INSIDE, np.int64)
        codes[stored.ordinals] = stored.codes
        return codes[ordinals]

    def show(self, values: Ints) -> dict[str, pa.Array]:
        words = {code: word for word, code in _WORDS.items()}
        texts = [words.get(code) or f"dwell({code / 1e6!r})" for code in values.tolist()]
        return {"on": pa.array(texts, pa.string())}
