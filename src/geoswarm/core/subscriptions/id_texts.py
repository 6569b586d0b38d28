"""Ids of subscriptions that are texts: the number that stands for a text inside, and the text itself, as an attribute.

    "fence 7" ──hash──► 63 bits: segments, bitmaps, state and joins go by them, as by ids that are integers
        └──────────────► kept with the subscription, and shown in its place wherever rows go out

A number is a cryptographic hash, so nobody finds an id that shuts out another's. Should two ids share one all the same,
`are_strange` finds it before anything is applied, and the second is refused. Decision 31 has the reasons and figures.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, SupportsIndex
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Ints, SubIds
from geoswarm.core.subscriptions.attribute_kind import Inspection
from geoswarm.core.subscriptions.kinds import TextAttribute
from geoswarm.errors import InputError

ID_TEXT = "_id_text"
"""The column of operations with ids as they were given, beside `sub_id` with their numbers."""
ID_BYTES_MAX = 1_000
"""Most bytes of an id: each match repeats it, and every host that matches has all of them on its disk."""
_POSITIVE = (1 << 63) - 1


class IdTextAttribute(TextAttribute):
    """Null where ids are integers; then nothing is stored."""

    reasons: ClassVar[Mapping[str, str]] = {
        "id": "an id that is a text is empty, too long, or no UTF-8",
        "id-taken": "the number of the id is that of another live subscription",
    }

    def __init__(self) -> None:
        super().__init__("id_text", "", ID_BYTES_MAX)
        self.columns = ()  # `sub_id` says it

    def parse(self, inspection: Inspection) -> pa.LargeStringArray:
        if ID_TEXT not in inspection.rows.schema.names:
            return pa.nulls(len(inspection.rows), pa.large_string())
        column = inspection.rows.column(ID_TEXT)
        bytes_of = pc.binary_length(column).fill_null(1).to_numpy(zero_copy_only=False)
        refuse, puts = inspection.refusals.turn_away, inspection.puts
        refuse(puts & (bytes_of == 0), "id", "the id of a subscription is an empty text: send another")
        detail = f"the id of subscription {{sub_id}} has more than {self.bytes_max} bytes: send a shorter one"
        refuse(puts & (bytes_of > self.bytes_max), "id", detail)
        if not _is_utf8(column):
            wrong = np.array([not _is_utf8(column.slice(row, 1)) for row in range(len(column))], np.bool_)
            refuse(puts & wrong, "id", "the id of subscription {sub_id} is no UTF-8: send text")
        return column.cast(pa.large_binary()).cast(pa.large_string(), safe=False)

    def show(self, values: pa.LargeStringArray) -> dict[str, pa.Array]:
        return {}


def id_text(given: Any) -> Any:
    """The text of an id that is an integer or a UUID; anything else as it is."""
    is_integer = isinstance(given, SupportsIndex) and not isinstance(given, bool)
    try:
        return str(given.__index__() if is_integer else given) if is_integer or isinstance(given, UUID) else given
    except ValueError:  # Python writes no more digits
        raise InputError(f"an id is an integer of more than {ID_BYTES_MAX} digits: give a shorter one") from None


def numbers_of(texts: Iterable[str | bytes]) -> SubIds:
    """The numbers of some ids, 0 or more: the same on every machine and in every version."""
    return np.array([number_of(text if isinstance(text, bytes) else text.encode()) for text in texts], np.int64)


def number_of(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") & _POSITIVE


def with_numbers(operations: pa.RecordBatch) -> pa.RecordBatch:
    """Operations whose `sub_id` is a text, with its number there, and the text beside it."""
    place = operations.schema.get_field_index("sub_id")
    texts = operations.column(place)
    known = texts.drop_null().cast(pa.binary()).to_pylist()
    numbers = np.zeros(len(texts), np.int64)
    is_null = np.asarray(texts.is_null().to_numpy(zero_copy_only=False), np.bool_)
    numbers[~is_null] = numbers_of(known)
    numbered = operations.set_column(place, "sub_id", pa.array(numbers, mask=is_null))
    return numbered.append_column(ID_TEXT, texts)


def are_strange(numbers: Ints, texts: pa.Array, ids: SubIds, live: pa.Array) -> Bools:
    """Which of some rows must not have their number: another text has it. It belongs to the live subscription with it,
    as long as that is live, or else to the first row with it. `ids` are the ascending numbers of the rows, each once,
    and `live` the text of the live subscription with each, or null."""
    at = np.searchsorted(ids, numbers)
    first = np.full(len(ids), -1, np.int64)
    first[at[::-1]] = np.arange(len(at))[::-1]  # of several rows the first is written last
    given = texts.cast(pa.binary()).cast(pa.large_binary())
    owners = pc.coalesce(live.cast(pa.large_binary()), given.take(pa.array(first)))
    return np.asarray(pc.not_equal(given, owners.take(pa.array(at))).to_numpy(zero_copy_only=False), np.bool_)


def _is_utf8(column: pa.Array) -> bool:
    try:
        column.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
