"""The objects whose events count, as an attribute of subscriptions: `["van-7", "van-12"]`.

An id is compared as text, so 7 and "7" name the same object, whether the column `object_id` has integers or strings.
The values are lists of ids, held as expressions are: each id is an alternative of one term (`core/text/expression.py`).
Events find such subscriptions by their object (`core/index/lists.py`). A group of objects that many subscriptions share
is better a column of the events: `where = "fleet = 'north'"`.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.arrays.merged_rows import MergedRows
from geoswarm.core.subscriptions.attribute_kind import Arrays, Attribute, Column, Inspection, Placement
from geoswarm.core.text.expression import Expressions, concatenate_expressions, no_conditions
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.errors import InputError
from geoswarm.model import OBJECT

OBJECTS_MAX = 1000
"""Objects of one subscription, each of which has an entry in every cell of the region: more are a group."""
OBJECT_BYTES_MAX = 256
"""Bytes of the name of an object: a UUID has 36, an address on the web some hundred."""
OBJECTS_ARRAYS = "objects_"
"""The prefix of its array names in a segment."""
_EXAMPLE = 'send a list such as ["van-7", "van-12"] or [7, 12]'


class ObjectsAttribute(Attribute[Expressions, Expressions | None]):
    """Stored as None, without arrays, if no subscription of the segment names objects."""

    name = "objects"
    columns = (Column("objects", pa.string(), 'whose events count, such as ["van-7", 12]; null: those of any'),)
    reasons: ClassVar[Mapping[str, str]] = {"objects": "the list of objects cannot be read, or is too long"}

    def parse(self, inspection: Inspection) -> Expressions:
        column, count = inspection.rows.column(self.name), len(inspection.rows)
        if column.null_count == count:
            return no_conditions(count)
        # As bytes: text that is not UTF-8 must not stop the stream.
        coded = column.cast(pa.binary()).dictionary_encode()
        lists, whys = list[list[str]](), list[str]()
        for text in coded.dictionary.to_pylist():
            try:
                ids, why = read_objects(text), ""
            except InputError as error:
                ids, why = [], str(error)
            lists.append(ids)
            whys.append(why)
        given, codes = ~inspection.is_null(self.name), coded.indices.fill_null(0).to_numpy()
        self._refuse(inspection, given & np.array([bool(why) for why in whys])[codes], [whys[c] for c in codes])
        self._refuse_unkept(inspection, given)
        return lists_of([*lists, []]).take(np.where(given, codes, len(lists)))

    def _refuse(self, inspection: Inspection, chosen: Bools, whys: Sequence[str]) -> None:
        rows = np.flatnonzero(inspection.puts & chosen)
        detail = "objects of subscription {sub_id}: {why}"
        inspection.refusals.turn_away_each(rows, "objects", detail, [whys[row] for row in rows.tolist()])

    def _refuse_unkept(self, inspection: Inspection, given: Bools) -> None:
        window = inspection.window
        if window is None or window.columns is None or OBJECT.name in window.columns:
            return
        detail = "subscription {sub_id} asks for kept events of some objects, and object_id is not kept: name it in "
        chosen = inspection.puts & given & ~inspection.is_null("since")
        inspection.refusals.turn_away(chosen, "objects", detail + "the columns of [window], or leave since out")

    def take(self, values: Expressions, rows: Ints) -> Expressions:
        return values.take(rows)

    def concatenate(self, parts: Sequence[Expressions]) -> Expressions:
        return concatenate_expressions(parts)

    def write(self, values: Expressions, placement: Placement) -> Arrays:
        if not len(values.terms):
            return {}
        return {f"{OBJECTS_ARRAYS}{part}": array for part, array in values.to_arrays().items()}

    def merge(self, parts: Sequence[Expressions | None], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        return super().merge(parts, rows, counts) if any(part is not None for part in parts) else []

    def open(self, records: Arrays) -> Expressions | None:
        names = [name for name in records if name.startswith(OBJECTS_ARRAYS)]
        parts = {name.removeprefix(OBJECTS_ARRAYS): records[name] for name in names}
        return Expressions.from_arrays(parts) if parts else None

    def read(self, stored: Expressions | None, ordinals: Ints) -> Expressions:
        return no_conditions(len(ordinals)) if stored is None else stored.take(ordinals)

    def show(self, values: Expressions) -> dict[str, pa.Array]:
        names = values.vocabulary.take(pa.array(values.terms)).to_pylist()
        spans = pairwise(values.conjunctions_offsets.tolist())
        return {self.name: pa.array([objects_text(None, names[a:b]) if b > a else None for a, b in spans], pa.string())}


def objects_text(sub_id: Any, objects: Any) -> str:
    """The column's value for a list of ids; a text is one already."""
    if isinstance(objects, str):
        return objects
    try:
        if isinstance(objects, Mapping):
            raise TypeError
        return json.dumps(list(objects), ensure_ascii=False, default=str)  # str: a UUID
    except TypeError:
        raise InputError(f"objects of subscription {sub_id} are {objects!r}: {_EXAMPLE}") from None


def lists_of(lists: Sequence[Sequence[str]]) -> Expressions:
    """Each id is an alternative; those of a row ascend."""
    lengths = [len(ids) for ids in lists]
    words = pa.array([name for ids in lists for name in ids], pa.string()).dictionary_encode()
    terms: Any = words.indices.to_numpy()
    firsts = np.concatenate([np.zeros(1, np.int64), np.asarray(lengths, np.int64)]).cumsum()
    return Expressions(firsts, np.arange(len(terms) + 1), terms, words.dictionary)


def read_objects(text: bytes) -> list[str]:
    """The distinct ids of a list, in order; raises InputError, which names the character or the place in the list."""
    try:
        given = json.loads(text.decode())
    except json.JSONDecodeError as why:
        raise InputError(f"at character {why.pos + 1}: {why.msg}: {_EXAMPLE}") from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise InputError(f"this is no text of JSON: {_EXAMPLE}") from None
    if not isinstance(given, list):
        raise InputError(f"{shown(given)} is no list: {_EXAMPLE}")
    if not given:
        raise InputError("an empty list: name an object, or leave objects out for those of any")
    names = sorted({_name(place, one) for place, one in enumerate(given, 1)})
    if len(names) > OBJECTS_MAX:
        raise InputError(
            f"{len(names)} objects, limit {OBJECTS_MAX}: give events a column of groups, and ask by where = "
            "\"fleet = 'north'\""
        )
    return names


def _name(place: int, one: Any) -> str:
    if isinstance(one, bool) or not isinstance(one, int | str):
        raise InputError(f"number {place} of the list, {shown(one)}, is no id: ids are integers or texts")
    try:
        name = str(one)
        size = len(name.encode())
    except ValueError:  # half of a surrogate pair, or an integer of thousands of digits
        raise InputError(f"number {place} of the list is no id: ids are integers or texts") from None
    if not 0 < size <= OBJECT_BYTES_MAX:
        raise InputError(f"number {place} of the list has {size} bytes: an id has 1 to {OBJECT_BYTES_MAX}")
    return name


def shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."
