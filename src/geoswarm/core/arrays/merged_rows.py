"""The order in which the subscriptions of several segments become those of one, without any of their attributes.

Each segment is in Z-order, so merging keeps the order within each: a byte for each new row, its segment, says all.

    segment 0   a c x d          source   0 1 0 1 1 0          x is cancelled, and gone
    segment 1   b e f                     a b c e f d
    places      0 2 - 5 | 1 3 4

`core/subscriptions/attribute_kind.py` gathers attributes in this order, a piece at a time: 5 bytes for each row are in
memory, whatever it has.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import Array, Bools, Bytes, Ints, Ordinals, SubIds, ZCodes, kernel

GONE = 0xFFFF_FFFF
"""The place of a row that is not kept."""
SOURCES_MAX = 256
"""The most segments that are merged at once: a row names its own in a byte."""
PIECE_ROWS = 1 << 20
"""Rows of a piece."""
SAMPLE_EVERY = 1 << 14
"""Of so many ids one is looked at, to cut all of them into pieces."""


class MergedPiece(NamedTuple):
    """Consecutive rows: for each segment that has some of them, its number, their positions here, and its rows."""

    rows: int
    parts: list[tuple[int, Ints, Ints]]

    def gather(self, columns: Sequence[Array]) -> Array:
        """The values of these rows in a column, of which each segment has an array."""
        first = columns[self.parts[0][0]]
        gathered = np.empty((self.rows, *first.shape[1:]), first.dtype)
        for number, positions, rows in self.parts:
            gathered[positions] = columns[number][rows]
        return gathered


class MergedRows:
    def __init__(self, ids: Sequence[SubIds], kept: Sequence[Bools], codes: Sequence[ZCodes]) -> None:
        """The ids of each segment, and which of its rows are kept; `codes` are those of the kept rows, ascending."""
        starts = np.cumsum([0, *(len(part) for part in codes)])
        self.ids = ids
        self.source: Bytes = _interleave(np.concatenate(codes), starts)
        self.places: list[Ordinals] = [_places(of, self.source, number) for number, of in enumerate(kept)]

    def __len__(self) -> int:
        return len(self.source)

    def pieces(self) -> Iterator[MergedPiece]:
        """All rows in their new order."""
        read = [0] * len(self.places)
        for begin in range(0, len(self), PIECE_ROWS):
            source, parts = self.source[begin : begin + PIECE_ROWS], []
            for number, places in enumerate(self.places):
                positions = np.flatnonzero(source == number)
                if len(positions):
                    rows, read[number] = _next_kept(places, read[number], len(positions))
                    parts.append((number, positions, rows))
            yield MergedPiece(len(source), parts)

    def gather(self, columns: Sequence[Array]) -> Iterator[Array]:
        """A column of all rows, by piece."""
        return (piece.gather(columns) for piece in self.pieces())

    def kept(self, number: int) -> Ints:
        """The rows of a segment that are kept."""
        return np.flatnonzero(self.places[number] != GONE)

    def order(self) -> Ints:
        """Where each row is, if the kept rows of all segments stand one segment after the other."""
        order = np.empty(len(self), np.int64)
        order[np.argsort(self.source, kind="stable")] = np.arange(len(self))
        return order

    def by_id(self, ids: Sequence[SubIds], ordinals: Sequence[Ordinals]) -> Iterator[tuple[SubIds, Ordinals]]:
        """The ids in ascending order and their rows, by piece. `ids` are those of each segment, ascending; `ordinals`
        are their rows there."""
        samples = np.sort(np.concatenate([part[::SAMPLE_EVERY] for part in ids]))
        borders = np.unique(samples[:: PIECE_ROWS // SAMPLE_EVERY])
        cuts = [np.append(np.searchsorted(part, borders), len(part)) for part in ids]
        for c in range(len(borders)):
            found, where = list[SubIds](), list[Ordinals]()
            for part, of, places, cut in zip(ids, ordinals, self.places, cuts, strict=True):
                place = places[of[cut[c] : cut[c + 1]]]
                is_kept = place != GONE
                found.append(part[cut[c] : cut[c + 1]][is_kept])
                where.append(place[is_kept])
            piece = np.concatenate(found)
            order = np.argsort(piece)
            yield piece[order], np.concatenate(where)[order]


@kernel
def _interleave(codes: ZCodes, starts: Ints) -> npt.NDArray[np.uint8]:
    """The segment of each row, so that codes ascend; of equal codes those of the first segment come first."""
    source = np.empty(len(codes), np.uint8)
    heads = starts[:-1].copy()
    for i in range(len(codes)):
        best, least = -1, np.int64(0)
        for s in range(len(heads)):
            if heads[s] < starts[s + 1] and (best < 0 or np.int64(codes[heads[s]]) < least):
                best, least = s, np.int64(codes[heads[s]])
        source[i] = best
        heads[best] += 1
    return source


@kernel
def _places(kept: Bools, source: Bytes, number: int) -> Ordinals:
    """The new place of each row of a segment."""
    places, at = np.full(len(kept), GONE, np.uint32), 0
    for row in range(len(kept)):
        if kept[row]:
            while source[at] != number:
                at += 1
            places[row] = at
            at += 1
    return places


@kernel
def _next_kept(places: Ordinals, begin: int, count: int) -> tuple[Ints, int]:
    """The next `count` rows from `begin` on that are kept, and where to go on."""
    rows, at = np.empty(count, np.int64), begin
    for n in range(count):
        while places[at] == GONE:
            at += 1
        rows[n] = at
        at += 1
    return rows, at
