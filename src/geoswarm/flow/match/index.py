"""Which subscriptions to test in which cell: the flat index of one segment.

Built once from rectangles, never changed. It is a pyramid of three tiers over the Z-order codes:

    tier   side (cells)   holds a subscription where                        a point found there
    cell        1         the rectangle's border runs, or blocks don't fit  is tested exactly
    block       8         the block lies wholly inside the rectangle        is inside: no test
    region     64         the region lies wholly inside the rectangle       is inside: no test

so a rectangle the size of a country costs thousands of entries, not millions. Each tier is three arrays:

    keys      sorted codes that have entries        [ 3 | 9 | 12 ]
    starts    where a key's entries begin           [ 0 | 2 | 3 | 7 ]
    entries   ordinals of subscriptions             [ a b | a | c d e f ]

PS2Stream §IV-D keeps a cell index per worker in the same spirit; the keyword lists will join it here.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from geoswarm.jit import Floats, Ints, Ordinals, ZCodes, kernel
from geoswarm.radix import sorted_order
from geoswarm.space.grid import CellBox, Grid, zcode

BLOCK_BITS = 3
"""A block is 8 × 8 cells, a region 8 × 8 blocks."""


class Tier(NamedTuple):
    keys: ZCodes
    starts: Ordinals
    entries: Ordinals


@dataclass(frozen=True)
class CellIndex:
    cell: Tier
    block: Tier
    region: Tier


def build(grid: Grid, rects: Floats) -> CellIndex:
    """`rects` is (n, 4): xmin, ymin, xmax, ymax, within the grid's bounds."""
    xmin, ymin, xmax, ymax = (np.ascontiguousarray(rects[:, i]) for i in range(4))
    outer = np.stack(grid.cover(xmin, ymin, xmax, ymax), axis=1)
    inner = _wholly_inside(grid, rects, CellBox(*outer.T))
    size = np.array([grid.rows, grid.columns], np.int64)
    counts = _count(outer, inner, size)
    keys = [np.empty(n, np.uint32) for n in counts]
    ordinals = [np.empty(n, np.uint32) for n in counts]
    _fill(outer, inner, size, tuple(keys), tuple(ordinals))
    key_max = int(zcode(grid.rows - 1, grid.columns - 1)) if len(rects) else 0
    # the code of the last row and column bounds every other: its bits are a superset of theirs rounded up
    key_max = (1 << key_max.bit_length()) - 1
    return CellIndex(*(_tier(k, o, key_max) for k, o in zip(keys, ordinals, strict=True)))


def _wholly_inside(grid: Grid, rects: Floats, box: CellBox) -> Ints:
    """The cells of which no point can be outside: all but the border's own, unless that is the world's edge."""
    row0 = np.where(rects[:, 3] >= grid.ymax, box.row0, box.row0 + 1)
    col0 = np.where(rects[:, 0] <= grid.xmin, box.col0, box.col0 + 1)
    row1 = np.where(rects[:, 1] <= grid.ymin, box.row1, box.row1 - 1)
    col1 = np.where(rects[:, 2] >= grid.xmax, box.col1, box.col1 - 1)
    return np.stack([row0, col0, row1, col1], axis=1)


def _tier(keys: ZCodes, ordinals: Ordinals, key_max: int) -> Tier:
    order = sorted_order(keys, key_max)
    ascending = keys[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = ascending[1:] != ascending[:-1]
    starts = np.append(np.flatnonzero(first), len(keys)).astype(np.uint32)
    return Tier(ascending[first], starts, ordinals[order])


@kernel
def _inside(row: int, col: int, side: int, inner: Ints, size: Ints) -> bool:
    """Whether the square of cells at (row, col), cut at the world's edge, lies within `inner`."""
    last_row, last_col = min(row + side, size[0]) - 1, min(col + side, size[1]) - 1
    return inner[0] <= row and last_row <= inner[2] and inner[1] <= col and last_col <= inner[3]  # type: ignore[no-any-return]


@kernel
def _walk(ordinal: int, outer: Ints, inner: Ints, size: Ints, keys, ordinals, at) -> None:  # type: ignore[no-untyped-def]
    """Visit the pyramid under one rectangle; write its entries at `at`, or only count them if `keys` are empty."""
    block = 1 << BLOCK_BITS
    region = block * block
    writing = len(keys[0]) + len(keys[1]) + len(keys[2]) > 0
    for r2 in range(outer[0] & -region, outer[2] + 1, region):
        for c2 in range(outer[1] & -region, outer[3] + 1, region):
            if _inside(r2, c2, region, inner, size):
                if writing:
                    keys[2][at[2]] = zcode(r2, c2) >> (4 * BLOCK_BITS)
                    ordinals[2][at[2]] = ordinal
                at[2] += 1
                continue
            for r1 in range(max(r2, outer[0] & -block), min(r2 + region, outer[2] + 1), block):
                for c1 in range(max(c2, outer[1] & -block), min(c2 + region, outer[3] + 1), block):
                    if _inside(r1, c1, block, inner, size):
                        if writing:
                            keys[1][at[1]] = zcode(r1, c1) >> (2 * BLOCK_BITS)
                            ordinals[1][at[1]] = ordinal
                        at[1] += 1
                        continue
                    for r0 in range(max(r1, outer[0]), min(r1 + block, outer[2] + 1)):
                        for c0 in range(max(c1, outer[1]), min(c1 + block, outer[3] + 1)):
                            if writing:
                                keys[0][at[0]] = zcode(r0, c0)
                                ordinals[0][at[0]] = ordinal
                            at[0] += 1


@kernel
def _count(outer: Ints, inner: Ints, size: Ints) -> Ints:
    none = np.empty(0, np.uint32)
    at = np.zeros(3, np.int64)
    for i in range(len(outer)):
        _walk(i, outer[i], inner[i], size, (none, none, none), (none, none, none), at)
    return at


@kernel
def _fill(outer: Ints, inner: Ints, size: Ints, keys, ordinals) -> None:  # type: ignore[no-untyped-def]
    at = np.zeros(3, np.int64)
    for i in range(len(outer)):
        _walk(i, outer[i], inner[i], size, keys, ordinals, at)


def entries_of(grid: Grid, rects: Floats) -> Ints:
    """How many entries each rectangle would take: the price of admitting it, found without building anything."""
    box = grid.cover(*(np.ascontiguousarray(rects[:, i]) for i in range(4)))
    outer = np.stack(box, axis=1)
    return _entries(outer, _wholly_inside(grid, rects, box), np.array([grid.rows, grid.columns], np.int64))


@kernel
def _entries(outer: Ints, inner: Ints, size: Ints) -> Ints:
    none = np.empty(0, np.uint32)
    prices = np.empty(len(outer), np.int64)
    for i in range(len(outer)):
        at = np.zeros(3, np.int64)
        _walk(i, outer[i], inner[i], size, (none, none, none), (none, none, none), at)
        prices[i] = at.sum()
    return prices
