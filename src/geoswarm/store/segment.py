"""A segment: an immutable set of subscriptions on disk, in two flat files that any worker maps.

    NAME.records   the truth: ids, rectangles, users, expiries, births in Z-order of their top left corner; ids sorted;
                   what their texts must say, where any of them asks; shapes and their predicates, where any is but a
                   rectangle; and who asks for transitions, if anybody does
    NAME.index     derived from it: the levels of core/index/cells.py for those that ask for no words, the lists of
                   core/index/words.py for those that do; rebuilt when lost or damaged

Cancelled subscriptions stay in their segment until it is merged; the bitmap that hides them belongs to a
version of the store, not to the segment (`subscriptions.py`). This is PS2Stream's lazy deletion (§IV-D).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, Ordinals, SubIds, kernel
from geoswarm.core.arrays.radix import sorted_order
from geoswarm.core.index.cells import CODE_MAX, CellIndex, Level, build, codes_of, frame_of
from geoswarm.core.index.kernels import Records
from geoswarm.core.index.regions import WITHIN, Regions, build_regions
from geoswarm.core.index.searchable import Rest, Searchable
from geoswarm.core.index.word_kernels import TextIndex
from geoswarm.core.index.words import build_text, conditions_of
from geoswarm.core.shapes.shapes import Shapes, no_shapes
from geoswarm.core.shapes.shapes import concatenate as concatenate_shapes
from geoswarm.core.space.grid import Grid
from geoswarm.core.text import expression
from geoswarm.core.text.expression import Expressions, no_conditions
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.core.text.tokens import hash_terms
from geoswarm.errors import CorruptState
from geoswarm.model import INSIDE, NEVER_US
from geoswarm.store.storage import Storage

FOLDER = "subscriptions"
NONE_DEAD: Bytes = np.empty(0, np.uint8)
WORDS, TEXT, ON, SHAPE, REGION = "words_", "text_", "on_", "shape_", "region_"
"""What the names of such arrays begin with, in records and in an index."""
RARITY, SHAPED, ASKED, BORN = "rarity", "shaped", "predicates", "born_us"
LONG_AGO_US = -(1 << 62)
"""The birth of a subscription whose birth is not noted. Births are noted for Guard alone (`guard_files.py`)."""


class Subs(NamedTuple):
    """Subscriptions as parallel arrays."""

    ids: SubIds
    rects: Floats  # (n, 4)
    users: pa.DictionaryArray
    expires_us: Ints
    words: Expressions
    on: Ints
    """As the numbers of `model.py`."""
    born_us: Ints
    """When each was registered or replaced, microseconds since 1970."""
    shapes: Shapes | None = None
    """None: every region is its rectangle."""
    predicates: Bytes | None = None
    """By their codes in `model.PREDICATES`; None: all intersect. Those that do not have a shape."""

    def take(self, rows: Ints) -> "Subs":
        users = self.users.take(pa.array(rows))
        words, on, born_us = self.words.take(rows), self.on[rows], self.born_us[rows]
        shapes = None if self.shapes is None else self.shapes.take(rows)
        predicates = None if self.predicates is None else self.predicates[rows]
        expires_us = self.expires_us[rows]
        return Subs(self.ids[rows], self.rects[rows], users, expires_us, words, on, born_us, shapes, predicates)


@dataclass(frozen=True)
class SegmentEntry:
    """What a manifest says of a segment."""

    name: str
    subs: int
    dead: int
    bytes: int
    stale_us: int = NEVER_US
    """When so many of its subscriptions will have expired that it is worth rewriting."""
    transitions: int = 0
    """Those that are neither cancelled nor on `inside`."""


class Asking(NamedTuple):
    """Those of a segment that are not on `inside`, by id: most ask for no transitions, and cost nothing."""

    ids: SubIds
    ordinals: Ordinals
    codes: Ints


NOBODY = Asking(np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0, np.int64))


@dataclass(frozen=True)
class Segment:
    ids: SubIds
    rects: Floats
    expires_us: Ints  # empty: none expires
    user_codes: Ordinals
    user_names: pa.StringArray
    ids_sorted: SubIds
    order_by_id: Ordinals
    index: CellIndex
    words: Expressions | None  # None: nobody asks for any
    text: TextIndex | None
    asking: Asking
    born_us: Ints  # one for all, if all are of the same version
    regions: Regions | None
    rest: Rest = field(default_factory=Rest, compare=False)

    def searchable(self, dead: Bytes = NONE_DEAD) -> Searchable:
        conditions = conditions_of(self.words) if self.words is not None else None
        return Searchable(self.records(dead), self.index, self.text, conditions, self.regions, self.rest)

    def records(self, dead: Bytes = NONE_DEAD) -> Records:
        return Records(self.rects, self.ids, self.expires_us, dead)

    def keywords(self, ordinal: int) -> str | None:
        """As an expression that means the same; None: no words are asked for."""
        asked = self.words.expression(ordinal) if self.words is not None else None
        return None if asked is None else str(asked)

    def find(self, wanted: SubIds) -> Ints:
        """The ordinal of each id, or -1."""
        place = places(self.ids_sorted, wanted)
        return np.where(place >= 0, self.order_by_id[place].astype(np.int64), -1)

    def live(self, dead: Bytes, now_us: int) -> Bools:
        alive = np.ones(len(self.ids), np.bool_)
        if len(dead):
            alive = np.unpackbits(dead, count=len(self.ids), bitorder="little") == 0
        if len(self.expires_us):
            alive &= self.expires_us > now_us
        return alive

    def live_at(self, ordinals: Ints, dead: Bytes, now_us: int) -> Bools:
        """The same of some only."""
        alive = np.ones(len(ordinals), np.bool_)
        if len(dead):
            alive = dead[ordinals >> 3] >> (ordinals & 7).astype(np.uint8) & 1 == 0
        if len(self.expires_us):
            alive &= self.expires_us[ordinals] > now_us
        return alive

    def subs(self, chosen: Bools) -> Subs:
        rows = np.flatnonzero(chosen)
        codes = pa.array(self.user_codes[rows].astype(np.int32))
        expires_us = self.expires_us[rows] if len(self.expires_us) else np.full(len(rows), NEVER_US, np.int64)
        return Subs(
            self.ids[rows],
            self.rects[rows],
            pa.DictionaryArray.from_arrays(codes, self.user_names),
            expires_us,
            no_conditions(len(rows)) if self.words is None else self.words.take(rows),
            self.on(rows),
            self.births(rows),
            self._shapes(rows),
            self._predicates(rows),
        )

    def _shapes(self, ordinals: Ints) -> Shapes | None:
        if self.regions is None:
            return None
        number = np.full(len(self.ids), len(self.regions.ordinals), np.int64)  # the empty one behind all others
        number[self.regions.ordinals] = np.arange(len(self.regions.ordinals))
        return concatenate_shapes([self.regions.shapes, no_shapes(1)]).take(number[ordinals])

    def _predicates(self, ordinals: Ints) -> Bytes | None:
        if self.regions is None or not len(self.regions.predicates):
            return None
        codes = np.zeros(len(self.ids), np.uint8)
        codes[self.regions.ordinals] = self.regions.predicates
        return codes[ordinals]

    def births(self, ordinals: Ints) -> Ints:
        """In microseconds since 1970."""
        if len(self.born_us) == 1:
            return np.full(len(ordinals), self.born_us[0], np.int64)
        return self.born_us[ordinals]

    def alternatives(self, ordinals: Ints) -> Ints:
        """Of words that are asked for; 0: none are."""
        if self.words is None:
            return np.zeros(len(ordinals), np.int64)
        offsets = self.words.conjunctions_offsets
        return np.asarray(offsets[ordinals + 1] - offsets[ordinals], np.int64)

    def vertex_counts(self, ordinals: Ints) -> Ints:
        """0: the region is its rectangle."""
        counts = np.zeros(len(ordinals), np.int64)
        if self.regions is not None:
            first, shaped = self.regions.shapes.first_vertices(), self.regions.ordinals
            at = np.minimum(np.searchsorted(shaped, ordinals), len(shaped) - 1)
            known = shaped[at] == ordinals
            counts[known] = first[at[known] + 1] - first[at[known]]
        return counts

    def on(self, ordinals: Ints) -> Ints:
        codes = np.full(len(self.ids), INSIDE, np.int64)
        codes[self.asking.ordinals] = self.asking.codes
        return codes[ordinals]


def write(
    storage: Storage, grid: Grid, name: str, subs: Subs, dead_share_max: float, counts: TermCounts | None = None
) -> SegmentEntry:
    """`subs` has at least one row, each id once, every rectangle within the grid's bounds. `counts` tell which of its
    terms are rare in the stream."""
    tolerated = min(int(dead_share_max * len(subs.ids)), len(subs.ids) - 1)
    stale_us = int(np.partition(subs.expires_us, tolerated)[tolerated])
    left, top = np.ascontiguousarray(subs.rects[:, 0]), np.ascontiguousarray(subs.rects[:, 3])
    corners = codes_of(left, top, frame_of(grid))
    subs = subs.take(sorted_order(corners, CODE_MAX))
    by_id = np.argsort(subs.ids)
    names, codes = _compact_dictionary(subs.users)
    text = names.buffers()
    records: dict[str, Any] = {
        "ids": subs.ids,
        "rects": subs.rects,
        "expires_us": subs.expires_us if (subs.expires_us != NEVER_US).any() else np.empty(0, np.int64),
        BORN: subs.born_us[:1] if (subs.born_us == subs.born_us[0]).all() else subs.born_us,
        "user_codes": codes,
        "user_offsets": np.frombuffer(text[1], np.int32, len(names) + 1),
        "user_bytes": np.frombuffer(text[2] or b"", np.uint8),
        "ids_sorted": subs.ids[by_id],
        "order_by_id": by_id.astype(np.uint32),
    }
    if len(subs.words.terms):
        records |= {f"{WORDS}{part}": array for part, array in subs.words.to_arrays().items()}
        records[RARITY] = _rarity(subs.words, counts)
    asking = by_id[subs.on[by_id] != INSIDE]
    if len(asking):
        parts = Asking(subs.ids[asking], asking.astype(np.uint32), subs.on[asking])
        records |= {f"{ON}{part}": array for part, array in parts._asdict().items()}
    if subs.shapes is not None and len(subs.shapes.xy):
        shaped = np.flatnonzero(np.diff(subs.shapes.parts) > 0)
        records |= {f"{SHAPE}{part}": array for part, array in subs.shapes.take(shaped).to_arrays().items()}
        records[SHAPED] = shaped.astype(np.uint32)
        if subs.predicates is not None and subs.predicates.any():
            records[ASKED] = subs.predicates[shaped]
    size = storage.write_arrays(f"{FOLDER}/{name}.records", records)
    size += storage.write_arrays(f"{FOLDER}/{name}.index", _derived(grid, records))
    return SegmentEntry(name, len(subs.ids), 0, size, stale_us, len(asking))


def open_segment(storage: Storage, name: str) -> Segment:
    records = storage.map_arrays(f"{FOLDER}/{name}.records")
    offsets, text = records["user_offsets"], records["user_bytes"]
    names = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))
    index = storage.map_arrays(f"{FOLDER}/{name}.index")
    return Segment(
        records["ids"],
        records["rects"],
        records["expires_us"],
        records["user_codes"],
        names,
        records["ids_sorted"],
        records["order_by_id"],
        _read_levels(index),
        _words_of(records),
        _text_of(name, records, index),
        Asking(*(records[f"{ON}{part}"] for part in Asking._fields)) if f"{ON}ids" in records else NOBODY,
        records.get(BORN, np.full(1, LONG_AGO_US)),
        _regions_of(records, index),
    )


def repair_index(storage: Storage, grid: Grid, name: str) -> bool:
    """Rebuild a lost or damaged index, or one of an older kind, from its records. True if it had to be; raises if the
    records are bad."""
    records = storage.map_arrays(f"{FOLDER}/{name}.records")
    try:
        _text_of(name, records, storage.map_arrays(f"{FOLDER}/{name}.index"))
        return False
    except CorruptState:
        storage.write_arrays(f"{FOLDER}/{name}.index", _derived(grid, records))
        storage.forget(f"{FOLDER}/{name}.index")
        return True


def concatenate(parts: Sequence[Subs]) -> Subs:
    users = pa.chunked_array([part.users.cast(pa.string()) for part in parts], pa.string())
    return Subs(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.rects for part in parts]),
        users.combine_chunks().dictionary_encode(),
        np.concatenate([part.expires_us for part in parts]),
        expression.concatenate([part.words for part in parts]),
        np.concatenate([part.on for part in parts]),
        np.concatenate([part.born_us for part in parts]),
        _concatenated([part.shapes for part in parts], [len(part.ids) for part in parts]),
        _all_predicates(parts),
    )


def places(ascending: SubIds, wanted: SubIds) -> Ints:
    """Where each id is among some, at least one, that ascend, or -1. Quick when `wanted` ascends, too."""
    place = np.searchsorted(ascending, wanted)
    place[place == len(ascending)] = 0
    return np.where(ascending[place] == wanted, place, -1)


def _concatenated(parts: Sequence[Shapes | None], lengths: Sequence[int]) -> Shapes | None:
    if all(part is None for part in parts):
        return None
    whole = [no_shapes(n) if part is None else part for part, n in zip(parts, lengths, strict=True)]
    return concatenate_shapes(whole)


def _all_predicates(parts: Sequence[Subs]) -> Bytes | None:
    if all(part.predicates is None for part in parts):
        return None
    known = [np.zeros(len(p.ids), np.uint8) if p.predicates is None else p.predicates for p in parts]
    return np.concatenate(known)


@kernel
def mark(dead: Bytes, ordinals: Ints) -> int:
    """Set the bits of `ordinals`; returns how many were not set before."""
    fresh = 0
    for o in ordinals:
        bit = np.uint8(1 << (o & 7))
        if dead[o >> 3] & bit == 0:
            dead[o >> 3] |= bit
            fresh += 1
    return fresh


def _compact_dictionary(users: pa.DictionaryArray) -> tuple[pa.StringArray, Ordinals]:
    """Only the names that are still used, and the code of each row. No user at all is the empty name."""
    plain = users.cast(pa.string()).fill_null("").dictionary_encode()
    return plain.dictionary, np.asarray(plain.indices).astype(np.uint32)


def _rarity(words: Expressions, counts: TermCounts | None) -> Floats:
    """How common each term of the vocabulary was when the segment was written. It decides under which term lists are,
    so it rests with the records: an index that is made again is the same one."""
    # Terms that the stream has not shown yet are as rare there as among subscriptions.
    asked = np.bincount(words.terms, minlength=len(words.vocabulary)) / max(1, len(words.terms))
    return asked if counts is None else asked + counts.read(hash_terms(words.vocabulary))


def _derived(grid: Grid, records: dict[str, Any]) -> dict[str, Any]:
    """The index of a segment, from its records alone."""
    rects, words = records["rects"], _words_of(records)
    if words is None and SHAPED not in records:
        return _level_arrays(build(grid, rects))
    plain = np.ones(len(rects), np.bool_) if words is None else _asks_for_nothing(words)
    arrays: dict[str, Any] = {}
    if words is not None:
        text = build_text(grid, rects, words, records[RARITY])
        arrays |= {f"{TEXT}{part}": array for part, array in text._asdict().items()}
    if SHAPED in records:
        parts = {name.removeprefix(SHAPE): array for name, array in records.items() if name.startswith(SHAPE)}
        for_points = plain[records[SHAPED]]
        if ASKED in records:
            for_points &= records[ASKED] != WITHIN
        cells = build_regions(grid, Shapes.from_arrays(parts), for_points)
        arrays |= {f"{REGION}{name}": array for name, array in _level_arrays(cells).items()}
        plain[records[SHAPED]] = False
    chosen = np.flatnonzero(plain)
    levels = {
        level: found._replace(entries=chosen[found.entries].astype(np.uint32))
        for level, found in build(grid, rects[chosen]).items()
    }
    return arrays | _level_arrays(levels)


def _regions_of(records: dict[str, Any], index: dict[str, Any]) -> Regions | None:
    """None: every region is its rectangle."""
    if SHAPED not in records:
        return None
    parts = {name.removeprefix(SHAPE): array for name, array in records.items() if name.startswith(SHAPE)}
    cells = {name.removeprefix(REGION): array for name, array in index.items() if name.startswith(REGION)}
    ordinals, words = records[SHAPED], _words_of(records)
    worded = np.empty(0, np.int64) if words is None else np.flatnonzero(~_asks_for_nothing(words)[ordinals])
    worded = worded[np.argsort(records["ids"][ordinals[worded]], kind="stable")]
    predicates = records.get(ASKED, np.empty(0, np.uint8))
    return Regions(Shapes.from_arrays(parts), ordinals, _read_levels(cells), worded, predicates)


def _asks_for_nothing(words: Expressions) -> Bools:
    nothing: Bools = np.diff(words.conjunctions_offsets) == 0
    return nothing


def _text_of(name: str, records: dict[str, Any], index: dict[str, Any]) -> TextIndex | None:
    """None: nobody asks for words."""
    if RARITY not in records:
        return None
    parts = [f"{TEXT}{part}" for part in TextIndex._fields]
    if any(part not in index for part in parts):
        raise CorruptState(f"the index of segment {name} is of an older version of geoswarm: start the engine again")
    return TextIndex(*(index[part] for part in parts))


def _words_of(records: dict[str, Any]) -> Expressions | None:
    parts = {name.removeprefix(WORDS): array for name, array in records.items() if name.startswith(WORDS)}
    return Expressions.from_arrays(parts) if parts else None


def _level_arrays(index: CellIndex) -> dict[str, Any]:
    return {f"{level}_{field}": array for level, cells in index.items() for field, array in cells._asdict().items()}


def _read_levels(arrays: dict[str, Any]) -> CellIndex:
    levels = sorted({int(name.split("_")[0]) for name in arrays if not name.startswith((TEXT, REGION))})
    return {level: Level(*(arrays[f"{level}_{field}"] for field in Level._fields)) for level in levels}
