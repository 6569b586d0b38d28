"""An attribute that is one number, and has its default for most subscriptions: only the others are stored, by id.

So a segment whose subscriptions all have the default has no array of it, as before there was such an attribute.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Ints, Ordinals, SubIds
from geoswarm.core.arrays.merged_rows import GONE, MergedRows
from geoswarm.core.subscriptions.attribute_kind import Arrays, Attribute, Placement, find_ordinals
from geoswarm.core.text.frequencies import TermCounts


class RareNumbers(NamedTuple):
    """The subscriptions of a segment that do not have the default, by id."""

    ids: SubIds
    ordinals: Ordinals
    codes: Ints


NO_NUMBERS = RareNumbers(np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0, np.int64))


class RareNumberAttribute(Attribute[Ints, RareNumbers]):
    default: int

    def take(self, values: Ints, rows: Ints) -> Ints:
        return values[rows]

    def concatenate(self, parts: Sequence[Ints]) -> Ints:
        return np.concatenate(parts)

    def write(self, values: Ints, placement: Placement) -> Arrays:
        chosen = placement.by_id[values[placement.by_id] != self.default]
        if not len(chosen):
            return {}
        parts = RareNumbers(placement.ids[chosen], chosen.astype(np.uint32), values[chosen])
        return {f"{self.name}_{part}": array for part, array in parts._asdict().items()}

    def merge(self, parts: Sequence[RareNumbers], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        ordinals = [places[part.ordinals] for part, places in zip(parts, rows.places, strict=True)]
        kept = [place != GONE for place in ordinals]
        ids = np.concatenate([part.ids[chosen] for part, chosen in zip(parts, kept, strict=True)])
        if not len(ids):
            return []
        codes = np.concatenate([part.codes[chosen] for part, chosen in zip(parts, kept, strict=True)])
        order = np.argsort(ids)
        merged = RareNumbers(ids[order], np.concatenate(ordinals)[np.concatenate(kept)][order], codes[order])
        return [(f"{self.name}_{part}", [array]) for part, array in merged._asdict().items()]

    def open(self, records: Arrays) -> RareNumbers:
        if f"{self.name}_ids" not in records:
            return NO_NUMBERS
        return RareNumbers(*(records[f"{self.name}_{part}"] for part in RareNumbers._fields))

    def read(self, stored: RareNumbers, ordinals: Ints) -> Ints:
        place = find_ordinals(stored.ordinals, ordinals)
        return np.where(place >= 0, np.append(stored.codes, self.default)[place], self.default)
