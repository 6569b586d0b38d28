"""Simple kinds of attributes: a moment, a name that many subscriptions share, and a text of each subscription.

`TextAttribute` is for text that only travels with a subscription: its length is checked, it is stored, merged and
shown, and never interpreted. Attributes that decide about matches have files of their own (`region.py`, `keywords.py`,
`trigger.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Bytes, Ints, Ordinals
from geoswarm.core.arrays.merged_rows import MergedRows
from geoswarm.core.subscriptions.attribute_kind import Arrays, Attribute, Column, Inspection, Placement
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.errors import InputError
from geoswarm.model import NEVER_US, TIMESTAMP

LONG_AGO_US = -(1 << 62)
"""The birth of a subscription whose birth was not recorded. Births are recorded for Guard only."""
ATTRIBUTE_BYTES_MAX = 10_000
"""Most bytes of one value of a `TextAttribute`: every worker maps segments, so they must be small."""


class ExpiryAttribute(Attribute[Ints, Ints]):
    """Until when a subscription is in force, in microseconds since 1970. Stored as an empty array if none expires."""

    name = "expires_us"
    columns = (Column("expires", TIMESTAMP, "when it ends by itself; null: never"),)
    reasons: ClassVar[Mapping[str, str]] = {"expired": "the subscription expires before it could match"}

    def parse(self, inspection: Inspection) -> Ints:
        column = pc.cast(inspection.rows.column("expires"), pa.int64())
        values = np.asarray(column.fill_null(NEVER_US), np.int64)
        late = inspection.puts & (values <= inspection.now_us)
        detail = "subscription {sub_id} expired {expires}: send a later time"
        inspection.refusals.turn_away(late, "expired", detail)
        return values

    def take(self, values: Ints, rows: Ints) -> Ints:
        return values[rows]

    def concatenate(self, parts: Sequence[Ints]) -> Ints:
        return np.concatenate(parts)

    def write(self, values: Ints, placement: Placement) -> Arrays:
        return {self.name: values if (values != NEVER_US).any() else np.empty(0, np.int64)}

    def merge(self, parts: Sequence[Ints], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        if not any(len(part) for part in parts):
            return [(self.name, [np.empty(0, np.int64)])]
        lengths = [len(part) for part in rows.places]
        whole = [part if len(part) else np.broadcast_to(NEVER_US, n) for part, n in zip(parts, lengths, strict=True)]
        return [(self.name, rows.gather(whole))]

    def open(self, records: Arrays) -> Ints:
        stored: Ints = records[self.name]
        return stored

    def read(self, stored: Ints, ordinals: Ints) -> Ints:
        return stored[ordinals] if len(stored) else np.full(len(ordinals), NEVER_US, np.int64)

    def show(self, values: Ints) -> dict[str, pa.Array]:
        return {"expires": pa.array(values, mask=values == NEVER_US).cast(TIMESTAMP)}


class BirthAttribute(Attribute[Ints, Ints]):
    """When a subscription was registered or replaced, in microseconds since 1970. The store sets it. Stored as one
    number if all are of the same moment."""

    name = "born_us"

    def parse(self, inspection: Inspection) -> Ints:
        return np.full(len(inspection.rows), LONG_AGO_US, np.int64)

    def take(self, values: Ints, rows: Ints) -> Ints:
        return values[rows]

    def concatenate(self, parts: Sequence[Ints]) -> Ints:
        return np.concatenate(parts)

    def write(self, values: Ints, placement: Placement) -> Arrays:
        return {self.name: values[:1] if (values == values[0]).all() else values}

    def merge(self, parts: Sequence[Ints], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        if all(len(part) == 1 and part[0] == parts[0][0] for part in parts):
            return [(self.name, [parts[0]])]
        lengths = [len(places) for places in rows.places]
        whole = [np.broadcast_to(part, n) if len(part) == 1 else part for part, n in zip(parts, lengths, strict=True)]
        return [(self.name, rows.gather(whole))]

    def open(self, records: Arrays) -> Ints:
        stored: Ints = records.get(self.name, np.full(1, LONG_AGO_US))
        return stored

    def read(self, stored: Ints, ordinals: Ints) -> Ints:
        return np.full(len(ordinals), stored[0], np.int64) if len(stored) == 1 else stored[ordinals]

    def show(self, values: Ints) -> dict[str, pa.Array]:
        return {}


class StoredNames(NamedTuple):
    codes: Ordinals
    """Positions in `names`, by ordinal."""
    names: pa.StringArray


class SharedTextAttribute(Attribute[pa.DictionaryArray, StoredNames]):
    """A text that many subscriptions share. The empty text is none."""

    def take(self, values: pa.Array, rows: Ints) -> pa.DictionaryArray:
        taken = values.take(pa.array(rows))
        return taken if pa.types.is_dictionary(taken.type) else taken.fill_null("").dictionary_encode()

    def concatenate(self, parts: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
        texts = pa.chunked_array([part.cast(pa.string()) for part in parts], pa.string())
        return texts.combine_chunks().dictionary_encode()

    def write(self, values: pa.DictionaryArray, placement: Placement) -> Arrays:
        plain = values.cast(pa.string()).fill_null("").dictionary_encode()  # only names that are still used
        names, codes = plain.dictionary, np.asarray(plain.indices).astype(np.uint32)
        return {f"{self.name}_codes": codes} | text_arrays(self.name, names)

    def merge(self, parts: Sequence[StoredNames], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        every = pa.concat_arrays([part.names for part in parts]).dictionary_encode()
        codes = np.split(np.asarray(every.indices), np.cumsum([len(part.names) for part in parts])[:-1])
        used = np.zeros(len(every.dictionary), np.bool_)
        for piece in rows.pieces():
            for number, _, taken in piece.parts:
                used[codes[number][parts[number].codes[taken]]] = True
        names = every.dictionary.take(pa.array(np.flatnonzero(used)))
        renamed = (np.cumsum(used) - 1).astype(np.uint32)
        table = [renamed[code] for code in codes]

        def merged() -> Iterator[Ordinals]:
            for piece in rows.pieces():
                gathered = np.empty(piece.rows, np.uint32)
                for number, positions, taken in piece.parts:
                    gathered[positions] = table[number][parts[number].codes[taken]]
                yield gathered

        texts = text_arrays(self.name, names)
        return [(f"{self.name}_codes", merged()), *((name, [array]) for name, array in texts.items())]

    def open(self, records: Arrays) -> StoredNames:
        return StoredNames(records[f"{self.name}_codes"], text_of(self.name, records))

    def read(self, stored: StoredNames, ordinals: Ints) -> pa.DictionaryArray:
        codes = pa.array(stored.codes[ordinals].astype(np.int32))
        return pa.DictionaryArray.from_arrays(codes, stored.names)


class UserAttribute(SharedTextAttribute):
    """The user who owns a subscription. The empty name is no user."""

    name = "user"
    columns = (Column("user", pa.string(), "whose it is; null or empty: no user"),)

    def parse(self, inspection: Inspection) -> pa.DictionaryArray:
        return inspection.rows.column("user")  # rows that are taken from it are encoded: by far fewer, often

    def show(self, values: pa.DictionaryArray) -> dict[str, pa.Array]:
        return {"user": values.cast(pa.string())}


class TextAttribute(Attribute[pa.LargeStringArray, pa.LargeStringArray | None]):
    """A text that travels with a subscription and can be read back. Nothing is stored where no subscription of a
    segment has one; the empty text is null. A segment may have more than 2 GB of texts, so they are large strings."""

    reasons: ClassVar[Mapping[str, str]] = {"too-long": "a text is longer than may be kept"}

    def __init__(self, name: str, meaning: str, bytes_max: int = ATTRIBUTE_BYTES_MAX) -> None:
        self.name, self.bytes_max = name, bytes_max
        self.columns = (Column(name, pa.string(), meaning),)

    def parse(self, inspection: Inspection) -> pa.LargeStringArray:
        column = inspection.rows.column(self.name)
        lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        detail = f"{self.name} of subscription {{sub_id}} has more than {self.bytes_max} bytes: send a shorter one"
        inspection.refusals.turn_away(inspection.puts & (lengths > self.bytes_max), "too-long", detail)
        return column.cast(pa.large_string())

    def take(self, values: pa.LargeStringArray, rows: Ints) -> pa.LargeStringArray:
        return values.take(pa.array(rows))

    def concatenate(self, parts: Sequence[pa.LargeStringArray]) -> pa.LargeStringArray:
        return pa.concat_arrays(parts)

    def write(self, values: pa.LargeStringArray, placement: Placement) -> Arrays:
        if values.null_count == len(values):
            return {}
        plain = pa.concat_arrays([values.fill_null("")])
        return text_arrays(self.name, plain) if pc.sum(pc.binary_length(plain)).as_py() else {}

    def merge(
        self, parts: Sequence[pa.LargeStringArray | None], rows: MergedRows, counts: TermCounts | None
    ) -> ArrayPieces:
        if all(part is None for part in parts):
            return []
        return [
            (f"{self.name}_offsets", _merged_offsets(parts, rows)),
            (f"{self.name}_bytes", (_bytes_of(texts) for texts in _merged_texts(parts, rows))),
        ]

    def open(self, records: Arrays) -> pa.LargeStringArray | None:
        return text_of(self.name, records) if f"{self.name}_offsets" in records else None

    def read(self, stored: pa.LargeStringArray | None, ordinals: Ints) -> pa.LargeStringArray:
        if stored is None:
            return pa.nulls(len(ordinals), pa.large_string())
        taken = stored.take(pa.array(ordinals))
        return pc.if_else(pc.greater(pc.binary_length(taken), 0), taken, pa.scalar(None, pa.large_string()))

    def show(self, values: pa.LargeStringArray) -> dict[str, pa.Array]:
        try:
            return {self.name: values.cast(pa.string())}
        except pa.ArrowInvalid as why:
            raise InputError(
                f"the {self.name} of {len(values):,} subscriptions has more than 2 GB ({why}): ask for fewer at once"
            ) from None


def _merged_texts(parts: Sequence[pa.LargeStringArray | None], rows: MergedRows) -> Iterator[pa.LargeStringArray]:
    for piece in rows.pieces():
        source, taken = np.empty(piece.rows, np.int64), list[pa.LargeStringArray]()
        for number, positions, theirs in piece.parts:
            source[positions] = np.arange(len(positions)) + sum(map(len, taken))
            part = parts[number]
            empty = pa.repeat(pa.scalar("", pa.large_string()), len(theirs))
            taken.append(empty if part is None else part.take(pa.array(theirs)))
        yield pa.concat_arrays(taken).take(pa.array(source))


def _merged_offsets(parts: Sequence[pa.LargeStringArray | None], rows: MergedRows) -> Iterator[Ints]:
    end = np.zeros(1, np.int64)
    yield end
    for texts in _merged_texts(parts, rows):
        ends: Ints = end + np.cumsum(pc.binary_length(texts).to_numpy())
        end = ends[-1:]
        yield ends


def text_arrays(name: str, texts: pa.StringArray | pa.LargeStringArray) -> dict[str, Any]:
    """The arrays of texts in a segment; `texts` begins at its first byte, and has no nulls."""
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    offsets = np.frombuffer(texts.buffers()[1], kind, len(texts) + 1)
    return {f"{name}_offsets": offsets, f"{name}_bytes": _bytes_of(texts)}


def _bytes_of(texts: pa.StringArray | pa.LargeStringArray) -> Bytes:
    return np.frombuffer(texts.buffers()[2] or b"", np.uint8)


def text_of(name: str, records: Arrays) -> pa.StringArray | pa.LargeStringArray:
    offsets, text = records[f"{name}_offsets"], records[f"{name}_bytes"]
    kind = pa.LargeStringArray if offsets.dtype == np.int64 else pa.StringArray
    return kind.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))
