"""Merge the indexes of rectangles of several segments into that of one: nothing is placed or sorted anew.

A cell of a level has the same code in every segment, so the merged cell has the entries of all of them. The result is
what `cells.build` makes of the merged rectangles, at a fraction of the time, and in pieces.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from geoswarm.core.arrays.jit import Array, Ints, Ordinals, ZCodes
from geoswarm.core.arrays.merged_rows import GONE
from geoswarm.core.index.cells import CellIndex, Level

PIECE_ENTRIES = 4 << 20
"""About as many entries are merged at once, at some 30 bytes each. A cell is not divided."""
SAMPLE_EVERY = 1 << 14
"""Of so many entries one is looked at, to cut all of them into pieces."""


def merge_levels(
    parts: Sequence[CellIndex], places: Sequence[Ordinals]
) -> Iterator[tuple[int, str, Iterator[Array] | list[Array]]]:
    """`places` has for each part the new ordinal of each of its subscriptions, or GONE. Yields level, field of `Level`,
    and the field's array in pieces, which are to be used up before the next is asked for."""
    for level in sorted({level for part in parts for level in part}):
        held = [(part[level], of) for part, of in zip(parts, places, strict=True) if level in part]
        keys, starts, count = list[ZCodes](), list[Ordinals](), 0

        def entries(
            held: list[tuple[Level, Ordinals]] = held, keys: list[ZCodes] = keys, starts: list[Ordinals] = starts
        ) -> Iterator[Ordinals]:
            nonlocal count
            for found, firsts, some in _merged_cells(held):
                keys.append(found)
                starts.append((firsts + count).astype(np.uint32))
                count += len(some)
                yield some

        pieces = entries()
        first = next(pieces, None)
        if first is not None:
            yield level, "entries", chain([first], pieces)
            yield level, "keys", keys
            yield level, "starts", [*starts, np.array([count], np.uint32)]


def _merged_cells(held: list[tuple[Level, Ordinals]]) -> Iterator[tuple[ZCodes, Ints, Ordinals]]:
    """The cells of one level in pieces: keys, where the entries of each begin, and entries."""
    every = np.concatenate([_sample(level) for level, _ in held])
    borders = np.unique(np.sort(every)[:: PIECE_ENTRIES // SAMPLE_EVERY])
    cuts = [np.append(np.searchsorted(level.keys, borders), len(level.keys)) for level, _ in held]
    for c in range(len(borders)):
        cells = [_cells(level, int(cut[c]), int(cut[c + 1]), of) for (level, of), cut in zip(held, cuts, strict=True)]
        both = np.concatenate(cells)  # code and entry, so that one sort orders cells, and entries within them
        both.sort()
        codes = (both >> np.uint64(32)).astype(np.uint32)
        if len(codes):
            firsts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
            yield codes[firsts], firsts, both.astype(np.uint32)


def _sample(level: Level) -> ZCodes:
    """The code of one in so many entries, the first of all among them."""
    wanted = np.arange(0, int(level.starts[-1]), SAMPLE_EVERY)
    return level.keys[np.searchsorted(level.starts, wanted, "right") - 1]


def _cells(level: Level, begin: int, end: int, places: Ordinals) -> Array:
    """The entries of some cells that are kept, each below the code of its cell."""
    starts = level.starts[begin : end + 1].astype(np.int64)
    place = places[level.entries[starts[0] : starts[-1]]]
    codes = np.repeat(level.keys[begin:end].astype(np.uint64), np.diff(starts))
    is_kept = place != GONE
    both: Array = codes[is_kept] << np.uint64(32) | place[is_kept]
    return both
