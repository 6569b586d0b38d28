"""Merge the indexes of rectangles of several segments into that of one: nothing is placed or sorted anew.

A cell of a level has the same code in every segment, so the merged cell has the entries of all of them. The result is
what `cells.build` makes of the merged rectangles, at a fraction of the time, and in pieces.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Array, Ints, Ordinals, Packed, ZCodes, kernel
from geoswarm.core.arrays.merged_rows import GONE
from geoswarm.core.index.cells import BLOCK_LOG2, CODE_MAX, GROUP, NO_BLOCK, CellIndex, tables_of

PIECE_ENTRIES = 4 << 20
"""About as many entries are merged at once, at some 40 bytes each. A cell is not divided."""
SAMPLE_EVERY = 1 << 14
"""Of so many entries one is looked at, to cut all of them into pieces."""


class _Cells(NamedTuple):
    """The cells of one level of a segment."""

    keys: ZCodes
    starts: Ordinals
    """Where the entries of each begin, and where those of the last end."""
    entries: Packed
    """Of all levels."""
    places: Ordinals
    """The new ordinal of each subscription, or GONE."""


class _Merged(NamedTuple):
    """Some cells of the result."""

    keys: ZCodes
    firsts: Ints
    """Where the entries of each begin."""
    entries: Packed


def merge_cells(
    parts: Sequence[CellIndex], places: Sequence[Ordinals]
) -> Iterator[tuple[str, Iterator[Array] | list[Array]]]:
    """`places` has for each part the new ordinal of each of its subscriptions, or GONE. Yields fields of `CellIndex`,
    each array in pieces, which are to be used up before the next field is asked for."""
    levels, level_ends = list[int](), [0]
    keys, starts = [np.empty(0, np.uint32)], list[Ordinals]()
    count = cells = 0

    def entries() -> Iterator[Packed]:
        nonlocal count, cells
        for level in np.unique(np.concatenate([part.levels for part in parts])).tolist():
            for found in _merge_level([_cells_at(part, level, of) for part, of in zip(parts, places, strict=True)]):
                keys.append(found.keys)
                starts.append((found.firsts + count).astype(np.uint32))
                count, cells = count + len(found.entries), cells + len(found.keys)
                yield found.entries
            if cells > level_ends[-1]:
                levels.append(level)
                level_ends.append(cells)

    yield "entries", entries()
    level_starts, tops, blocks, bits, _ = tables_of(np.concatenate(keys), np.array(level_ends))
    yield "frame", [parts[0].frame]
    yield "levels", [np.array(levels, np.int64)]
    yield "level_starts", [level_starts]
    yield "tops", [tops]
    yield "blocks", [blocks]
    yield "bits", [bits]
    yield "starts", [*starts, np.array([count], np.uint32)]


def _cells_at(part: CellIndex, level: int, places: Ordinals) -> _Cells:
    here = np.flatnonzero(part.levels == level)
    if not len(here):
        return _Cells(np.empty(0, np.uint32), np.zeros(1, np.uint32), part.entries, places)
    first, end = part.level_starts[here[0]] * GROUP, part.level_starts[here[0] + 1] * GROUP
    keys, first_cell = _keys_of(part.blocks[first:end], part.bits[first:end]), int(part.bits[first, 1])
    return _Cells(keys, part.starts[first_cell : first_cell + len(keys) + 1], part.entries, places)


@kernel
def _keys_of(blocks: Ordinals, bits: Packed) -> ZCodes:
    """The codes of the cells of some blocks."""
    count = 0
    for b in range(len(blocks)):
        left = bits[b, 0]
        while left:
            left &= left - np.uint64(1)
            count += 1
    keys, at = np.empty(count, np.uint32), 0
    for b in range(len(blocks)):
        if blocks[b] == NO_BLOCK:
            continue
        for bit in range(1 << BLOCK_LOG2):
            if bits[b, 0] >> np.uint64(bit) & np.uint64(1):
                keys[at] = (np.int64(blocks[b]) << BLOCK_LOG2) | bit
                at += 1
    return keys


def _merge_level(held: Sequence[_Cells]) -> Iterator[_Merged]:
    """The cells of one level, in pieces."""
    borders = np.unique(np.sort(np.concatenate([_sample(each) for each in held]))[:: PIECE_ENTRIES // SAMPLE_EVERY])
    cuts = [np.append(np.searchsorted(each.keys, borders), len(each.keys)) for each in held]
    for c in range(len(borders)):
        some = [_kept(each, int(cut[c]), int(cut[c + 1])) for each, cut in zip(held, cuts, strict=True)]
        codes, entries = (np.concatenate(arrays) for arrays in zip(*some, strict=True))
        order = np.argsort(codes << np.uint64(32) | entries >> np.uint64(32))  # by cell, and by subscription within it
        codes = codes[order].astype(np.uint32)
        if len(codes):
            firsts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
            yield _Merged(codes[firsts], firsts, entries[order])


def _sample(cells: _Cells) -> ZCodes:
    """The code of one in so many entries, the first of all among them."""
    wanted = np.arange(int(cells.starts[0]), int(cells.starts[-1]), SAMPLE_EVERY)
    return cells.keys[np.searchsorted(cells.starts, wanted, "right") - 1]


def _kept(cells: _Cells, begin: int, end: int) -> tuple[Packed, Packed]:
    """The entries of some cells that are kept, and the code of the cell of each."""
    starts = cells.starts[begin : end + 1].astype(np.int64)
    entries = cells.entries[starts[0] : starts[-1]]
    place = cells.places[(entries >> np.uint64(32)).astype(np.int64)]
    codes = np.repeat(cells.keys[begin:end].astype(np.uint64), np.diff(starts))
    is_kept = place != GONE
    boxes = entries[is_kept] & np.uint64(CODE_MAX)
    return codes[is_kept], place[is_kept].astype(np.uint64) << np.uint64(32) | boxes
