"""A condition on the columns of events, such as `speed > 80 AND status = 'free'`, as an attribute of subscriptions.

The language is that of questions (`core/where/`), with the same rules for null and types. A condition is kept as the
text that its clause prints, so that equal ones are one text. `flow/match/facts.py` applies it to events,
`core/index/lists.py` finds those that ask for a value by that value.

A condition fits some events and not others: a stream may have any columns. One that names a column that events do not
have, or compares it with what it cannot be compared with, is true of none of them.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.config import WindowSettings
from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.arrays.merged_rows import MergedRows
from geoswarm.core.subscriptions.attribute_kind import Arrays, Column, Inspection, Placement
from geoswarm.core.subscriptions.kinds import SharedTextAttribute, StoredNames
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.core.where.clause import Clause, columns_of, tests_of
from geoswarm.core.where.clause import Column as ColumnName
from geoswarm.core.where.read import WHERE_CHARS_MAX, read_where
from geoswarm.core.where.types import check_where
from geoswarm.errors import InputError
from geoswarm.model import EVENT, GEOMETRY

SUBSCRIPTION_WHERE_CHARS_MAX = 4096
"""Characters of one condition: room for a list of some hundred values. A million of them are 4 GB on every host."""
NO_WHERE = StoredNames(np.empty(0, np.uint32), pa.array([""], pa.string()))
"""Of a segment without conditions."""


def misfit(clause: Clause, schema: pa.Schema) -> str | None:
    """Why a condition is true of no event with these columns, unless a column lacks; None if it may be."""
    if not columns_of(clause) <= set(schema.names):
        return None
    try:
        check_where(clause, schema)
    except InputError as why:
        return str(why)
    return None


class WhereAttribute(SharedTextAttribute):
    """Stored as `NO_WHERE`, without arrays, if no subscription of the segment has a condition."""

    name = "where"
    columns = (Column("where", pa.string(), "a condition on columns of events, such as speed > 80; null: none"),)
    reasons: ClassVar[Mapping[str, str]] = {"where": "a condition cannot be read, or does not fit the events"}

    def parse(self, inspection: Inspection) -> pa.Array:
        column, count = inspection.rows.column(self.name), len(inspection.rows)
        if column.null_count == count:
            return pa.nulls(count, pa.string())
        # As bytes: text that is not UTF-8 must not stop the stream.
        coded = column.cast(pa.binary()).dictionary_encode()
        shown, whys, asks = list[str](), list[str](), ~inspection.is_null("since")
        kept = _kept_columns(inspection.window)
        unkept = list[str]()
        for text in coded.dictionary.to_pylist():
            clause, why = _read(text.decode(errors="replace"), inspection.stream and inspection.stream.columns)
            shown.append("" if clause is None else str(clause))
            whys.append(why)
            lost = sorted(columns_of(clause) - kept) if clause is not None and kept is not None else []
            unkept.append(f"{', '.join(lost)} is not kept: name it in the columns of [window]" if lost else "")
        codes, given = coded.indices.fill_null(0).to_numpy(), ~inspection.is_null(self.name)
        self._refuse(inspection, given, codes, whys, "where of subscription {sub_id}: {why}")
        detail = "where of subscription {sub_id}, which asks for kept events: {why}, or leave since out"
        self._refuse(inspection, given & asks, codes, unkept, detail)
        return pa.DictionaryArray.from_arrays(coded.indices, pa.array(shown, pa.string()))

    def _refuse(self, inspection: Inspection, asking: Bools, codes: Ints, whys: Sequence[str], detail: str) -> None:
        faulty = np.flatnonzero(inspection.puts & asking & np.array([bool(why) for why in whys])[codes])
        inspection.refusals.turn_away_each(faulty, "where", detail, [whys[code] for code in codes[faulty].tolist()])

    def take(self, values: pa.Array, rows: Ints) -> pa.DictionaryArray:
        taken = values.take(pa.array(rows)).cast(pa.string())
        return taken.fill_null("").dictionary_encode()

    def write(self, values: pa.DictionaryArray, placement: Placement) -> Arrays:
        return super().write(values, placement) if count_conditions(values) else {}

    def merge(self, parts: Sequence[StoredNames], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        if not any(len(part.codes) for part in parts):
            return []
        lengths = [len(places) for places in rows.places]
        whole = [
            part if len(part.codes) else StoredNames(np.broadcast_to(np.uint32(0), count), part.names)
            for part, count in zip(parts, lengths, strict=True)
        ]
        return super().merge(whole, rows, counts)

    def open(self, records: Arrays) -> StoredNames:
        return super().open(records) if f"{self.name}_codes" in records else NO_WHERE

    def read(self, stored: StoredNames, ordinals: Ints) -> pa.DictionaryArray:
        if len(stored.codes):
            return super().read(stored, ordinals)
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(ordinals), np.int32)), stored.names)

    def show(self, values: pa.DictionaryArray) -> dict[str, pa.Array]:
        texts = values.cast(pa.string()).to_pylist()
        return {self.name: pa.array([text or None for text in texts], pa.string())}


def lengths_of(values: pa.Array) -> Ints:
    """The bytes of the condition of each subscription; 0 without one."""
    lengths = pc.binary_length(values.cast(pa.string())).fill_null(0)
    return np.asarray(lengths, np.int64)


def count_conditions(values: pa.DictionaryArray) -> int:
    """How many of some subscriptions have a condition."""
    return int(np.count_nonzero(lengths_of(values)))


def _read(text: str, schema: pa.Schema | None) -> tuple[Clause | None, str]:
    """The clause, or why there is none."""
    if len(text) > SUBSCRIPTION_WHERE_CHARS_MAX:
        return None, f"a condition of {len(text)} characters, limit {SUBSCRIPTION_WHERE_CHARS_MAX}: ask for less"
    try:
        clause = read_where(text)
    except InputError as why:
        return None, str(why)
    for column in (column for test in tests_of(clause) for column in (test.column, getattr(test, "other", None))):
        if isinstance(column, ColumnName) and column.name == GEOMETRY.name:
            at = f"at character {column.position} of the condition"
            return None, f"{at}: no condition sees a geometry: ask by a region and its predicate"
    if len(str(clause)) > WHERE_CHARS_MAX:  # numbers such as 1e15 are printed with all their digits
        return None, f"written out, this condition has more than {WHERE_CHARS_MAX} characters: ask for less"
    why_not = None if schema is None else misfit(clause, schema)
    return (clause, "") if why_not is None else (None, why_not)


def _kept_columns(window: WindowSettings | None) -> set[str] | None:
    """The columns that are kept of events; None: all of them, or nothing is kept."""
    return None if window is None or window.columns is None else {*EVENT.names, *window.columns}
