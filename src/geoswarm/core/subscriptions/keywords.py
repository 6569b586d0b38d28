"""The words that the text of an event must have, as an attribute of subscriptions.

Expressions are read in `core/text/`; the lists by which events find them are built from the stored arrays
(`core/index/words.py`).
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.arrays.merged_rows import MergedRows
from geoswarm.core.subscriptions.attribute_kind import Arrays, Attribute, Column, Inspection, Placement
from geoswarm.core.text import expression
from geoswarm.core.text.expression import Expressions, compile_expressions, no_conditions
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.core.text.tokens import hash_terms

WORDS_ARRAYS, RARITY = "words_", "rarity"
"""Array names in a segment: the prefix of those of the expressions, and that of the frequency of each term."""


class KeywordsAttribute(Attribute[Expressions, Expressions | None]):
    """Stored as None, without arrays, if no subscription of the segment asks for words."""

    name = "keywords"
    columns = (
        Column("keywords", pa.string(), "such as flood AND (river OR dam) AND NOT drill; null: any text, or none"),
    )
    reasons: ClassVar[Mapping[str, str]] = {"keywords": "a keyword expression that cannot be read, or is too large"}

    def parse(self, inspection: Inspection) -> Expressions:
        words, refused = compile_expressions(inspection.rows.column("keywords"))
        by_reason: dict[str, list[int]] = {}
        for row, why in refused:
            by_reason.setdefault(why, []).append(row)
        for why, rows in by_reason.items():
            chosen = np.zeros(len(inspection.rows), np.bool_)
            chosen[rows] = True
            detail = why.replace("{", "{{").replace("}", "}}")
            detail = f"keywords of subscription {{sub_id}}: {detail}"
            inspection.refusals.turn_away(inspection.puts & chosen, "keywords", detail)
        return words

    def take(self, values: Expressions, rows: Ints) -> Expressions:
        return values.take(rows)

    def concatenate(self, parts: Sequence[Expressions]) -> Expressions:
        return expression.concatenate_expressions(parts)

    def write(self, values: Expressions, placement: Placement) -> Arrays:
        if not len(values.terms):
            return {}
        arrays: Arrays = {f"{WORDS_ARRAYS}{part}": array for part, array in values.to_arrays().items()}
        return arrays | {RARITY: _rarity(values, placement.counts)}

    def merge(self, parts: Sequence[Expressions | None], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        return super().merge(parts, rows, counts) if any(part is not None for part in parts) else []

    def open(self, records: Arrays) -> Expressions | None:
        parts = {
            name.removeprefix(WORDS_ARRAYS): array for name, array in records.items() if name.startswith(WORDS_ARRAYS)
        }
        return Expressions.from_arrays(parts) if parts else None

    def read(self, stored: Expressions | None, ordinals: Ints) -> Expressions:
        return no_conditions(len(ordinals)) if stored is None else stored.take(ordinals)

    def show(self, values: Expressions) -> dict[str, pa.Array]:
        asked = [values.expression(row) for row in range(len(values.conjunctions_offsets) - 1)]
        return {"keywords": pa.array([None if one is None else str(one) for one in asked], pa.string())}


def alternatives(words: Expressions, rows: Ints) -> Ints:
    """The number of conjunctions of some rows; 0: the row asks for no words."""
    offsets = words.conjunctions_offsets
    return np.asarray(offsets[rows + 1] - offsets[rows], np.int64)


def asks_for_none(words: Expressions) -> Bools:
    """Whether each row asks for no words."""
    none: Bools = np.diff(words.conjunctions_offsets) == 0
    return none


def _rarity(words: Expressions, counts: TermCounts | None) -> Floats:
    """How common each term of the vocabulary was when the segment was written. It decides which term gets the list, so
    it is stored with the records: an index that is built again is the same."""
    # Terms that the stream has not shown yet are as rare there as among subscriptions.
    wanted = words.wanted().terms
    asked = np.bincount(wanted, minlength=len(words.vocabulary)) / max(1, len(wanted))
    return asked if counts is None else asked + counts.read(hash_terms(words.vocabulary))
