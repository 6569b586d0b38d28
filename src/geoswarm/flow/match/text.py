"""The grid-inverted index of one segment: per cell, lists of subscriptions under the rarest term of each conjunction.

Built once, never changed, from subscriptions that have a text condition; those that have none are in `index.py` alone.
A subscription without a place is a rectangle round the world. `text_kernels.py` says what the arrays are, and searches.

Its grids are at every second scale, and a rectangle is entered where it meets at most 4 cells: coarser than `index.py`,
because a list is short by its term already, and each level costs every word of an event a look-up.

Which term is the rarest is a matter of speed only: an index built under old frequencies finds the same.
PS2Stream §IV-D (GI²); `wanted` answers what H2 of §IV-C is for.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.errors import InputError
from geoswarm.flow.match.index import CODE_MAX, LEVELS, frame_of
from geoswarm.flow.match.kernels import Points
from geoswarm.flow.match.match import Searchable
from geoswarm.flow.match.text_kernels import (
    CONJUNCTIONS_MAX,
    PLAIN,
    Conditions,
    TextIndex,
    mark_wanted,
    prefix_of,
    signature_bit,
)
from geoswarm.flow.match.text_tables import add_up, scattered, signed, take, term_place
from geoswarm.jit import Array, Bools, Floats, Ints, Ordinals, ZCodes, kernel
from geoswarm.radix import argsort, sorted_order
from geoswarm.space.grid import Grid, column_of, row_of, zcode
from geoswarm.text.buffers import Rows, rows_of
from geoswarm.text.expression import Expressions, Terms
from geoswarm.text.kernels import Hashes
from geoswarm.text.tokens import Tokens, hash_terms

CELLS_MAX = 4
"""Cells of one subscription; it has an entry in each for every conjunction. About 2.7 on average."""
LEVEL_STEP = 2
LIST_PLACES = 8
"""Bits of a cell's bitmap per list: one in eight of the terms that have none is looked for in vain."""
TERM_PLACES = 16


def wanted(points: Points, tokens: Tokens, segments: Sequence[Searchable]) -> Bools:
    """What a router asks: for each token, is there a list under it in its event's place? `points` are in Z-order. An
    event without such a token meets nobody who asks for words."""
    marks = np.zeros(len(tokens.hashes), np.bool_)
    for segment in segments:
        if segment.text is not None and segment.conditions is not None:
            mark_wanted(points, tokens, segment.text, segment.conditions.words, marks)
    return marks


def conditions_of(expressions: Expressions) -> Conditions:
    """Copies where words begin, and nothing else."""
    offsets = expressions.conjunctions_offsets, expressions.terms_offsets
    return Conditions(*offsets, expressions.terms, rows_of(expressions.vocabulary))


def build_text(
    grid: Grid, rects: Floats, expressions: Expressions, frequencies: npt.NDArray[Any] | None = None
) -> TextIndex:
    """`rects` is (n, 4), within the grid's bounds; `frequencies` says how common each term of the vocabulary is in the
    stream. Without it, terms are taken to be as common among events as among subscriptions."""
    conditions, hashes = conditions_of(expressions), hash_terms(expressions.vocabulary)
    per_subscription = np.diff(expressions.conjunctions_offsets)
    if len(per_subscription) and per_subscription.max() > CONJUNCTIONS_MAX:
        raise InputError(
            f"a subscription has {per_subscription.max()} conjunctions, limit {CONJUNCTIONS_MAX}: split it into several"
        )
    if frequencies is None:
        frequencies = np.bincount(expressions.terms, minlength=len(hashes))
    levels, boxes, count = _choose(rects, conditions.conjunctions_offsets, frame_of(grid))
    rarity = np.ascontiguousarray(frequencies, np.float64)
    postings, entries = _enter(levels, boxes, count, conditions, rarity)
    order = sorted_order(postings.scatters, CODE_MAX)
    order = argsort(postings.heights, argsort(postings.codes, order, CODE_MAX), LEVELS)
    by_hash = np.argsort(hashes, kind="stable")
    terms = _terms(by_hash, hashes, _heights_of_terms(postings, len(hashes)), conditions.words)
    return TextIndex(_term_bits(hashes[by_hash]), terms, *_tables(order, postings, entries))


class _Postings(NamedTuple):
    """Of each entry: its level, cell and term."""

    heights: Ordinals
    codes: ZCodes
    scatters: Ordinals
    terms: Terms


@kernel
def _choose(rects: Floats, conjunctions_offsets: Array, frame: Floats) -> tuple[Ints, Ints, int]:
    """The level of each rectangle, the cells it meets at level 0 (row0, col0, row1, col1), and the entries in all."""
    levels, boxes = np.empty(len(rects), np.int64), np.empty((len(rects), 4), np.int64)
    count = 0
    for i in range(len(rects)):
        row0, col0 = row_of(rects[i, 3], frame), column_of(rects[i, 0], frame)
        row1, col1 = row_of(rects[i, 1], frame), column_of(rects[i, 2], frame)
        level = 0
        while ((row1 >> level) - (row0 >> level) + 1) * ((col1 >> level) - (col0 >> level) + 1) > CELLS_MAX:
            level += LEVEL_STEP
        levels[i] = level
        boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3] = row0, col0, row1, col1
        cells = ((row1 >> level) - (row0 >> level) + 1) * ((col1 >> level) - (col0 >> level) + 1)
        count += cells * (signed(conjunctions_offsets[i + 1]) - signed(conjunctions_offsets[i]))
    return levels, boxes, count


@kernel
def _enter(
    levels: Ints, boxes: Ints, count: int, conditions: Conditions, frequencies: Floats
) -> tuple[_Postings, Ordinals]:
    heights, codes = np.empty(count, np.uint32), np.empty(count, np.uint32)
    scatters, terms = np.empty(count, np.uint32), np.empty(count, np.int32)
    entries = np.empty((count, 4), np.uint32)
    n = 0
    for i in range(len(levels)):
        level = levels[i]
        row0, col0, row1, col1 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        begin, end = signed(conditions.conjunctions_offsets[i]), signed(conditions.conjunctions_offsets[i + 1])
        for c in range(begin, end):
            term, check = _posting(c, c - begin, conditions, frequencies)
            for row in range(row0 >> level, (row1 >> level) + 1):
                for col in range(col0 >> level, (col1 >> level) + 1):
                    heights[n], codes[n], scatters[n], terms[n] = level, zcode(row, col), scattered(term), term
                    entries[n, 0], entries[n, 1] = col0 << 16 | row0, col1 << 16 | row1
                    entries[n, 2], entries[n, 3] = i, check
                    n += 1
    return _Postings(heights, codes, scatters, terms), entries


@kernel
def _posting(conjunction: int, place: int, conditions: Conditions, frequencies: Floats) -> tuple[int, int]:
    """The rarest term of a conjunction, and the last word of its entries: mark, place, and signature bits of the two
    rarest of its other terms."""
    begin = signed(conditions.terms_offsets[conjunction])
    end = signed(conditions.terms_offsets[conjunction + 1])
    rarest = second = third = signed(conditions.terms[begin])
    for t in range(begin + 1, end):
        term = signed(conditions.terms[t])
        if frequencies[term] < frequencies[rarest]:
            rarest, second, third = term, rarest, second
        elif second == rarest or frequencies[term] < frequencies[second]:
            second, third = term, second
        elif third in (rarest, second) or frequencies[term] < frequencies[third]:
            third = term
    check = place << 12 | signature_bit(scattered(third)) << 6 | signature_bit(scattered(second))
    return rarest, check | (PLAIN if end - begin == 1 and place == 0 else 0)


@kernel
def _cells(order: Ints, postings: _Postings) -> tuple[Ints, int]:
    """Where the entries of each cell begin, and how many lists they make in all."""
    starts, cells, lists = np.empty(len(order) + 1, np.int64), 0, 0
    heights, codes, scatters = postings.heights, postings.codes, postings.scatters
    for i in range(len(order)):
        a, b = order[i - 1], order[i]
        fresh = i == 0 or heights[a] != heights[b] or codes[a] != codes[b]
        starts[cells] = i
        cells += fresh
        lists += fresh or scatters[a] != scatters[b]
    starts[cells] = len(order)
    return starts[: cells + 1].copy(), lists


@kernel
def _tables(
    order: Ints, postings: _Postings, entries: Ordinals
) -> tuple[Ints, Ints, ZCodes, Ordinals, Hashes, Ordinals, Ordinals]:
    starts, n_lists = _cells(order, postings)
    n_cells = len(starts) - 1
    levels, level_starts, height = np.empty(LEVELS, np.int64), np.empty(LEVELS + 1, np.int64), 0
    keys, key_bits = np.empty(n_cells, np.uint32), np.empty((n_cells, 2), np.uint32)
    bits = np.zeros((n_lists * LIST_PLACES // 64 + n_cells + 1, 2), np.uint64)
    lists, arranged = np.empty((n_lists + 1, 2), np.uint32), np.empty_like(entries)
    word = at = 0
    for c in range(n_cells):
        o = order[starts[c]]
        if height == 0 or levels[height - 1] != postings.heights[o]:
            levels[height], level_starts[height] = postings.heights[o], c
            height += 1
        first = at
        for i in range(starts[c], starts[c + 1]):
            scatter = postings.scatters[order[i]]
            if i == starts[c] or scatter != lists[at - 1, 0]:
                lists[at, 0], lists[at, 1] = scatter, i
                at += 1
            arranged[i] = entries[order[i]]
        words = ((at - first) * LIST_PLACES + 63) // 64
        keys[c], key_bits[c, 0], key_bits[c, 1] = postings.codes[o], word, words
        for k in range(first, at):
            take(bits, (word << 6) + ((signed(lists[k, 0]) * (words << 6)) >> 32))
        word += words
    level_starts[height] = n_cells
    lists[at, 0], lists[at, 1] = 0, len(order)
    bits = bits[: word + 1].copy()
    add_up(bits)
    return levels[:height].copy(), level_starts[: height + 1].copy(), keys, key_bits, bits, lists, arranged


@kernel
def _heights_of_terms(postings: _Postings, n: int) -> Ordinals:
    """Of each term of the vocabulary, a bit per level that has a list under it."""
    masks = np.zeros(n, np.uint32)
    for e in range(len(postings.terms)):
        masks[postings.terms[e]] |= np.uint32(1) << postings.heights[e]
    return masks


@kernel
def _terms(by_hash: Ints, hashes: Hashes, heights: Ordinals, words: Rows) -> Hashes:
    terms = np.empty((len(hashes), 4), np.uint64)
    for at in range(len(by_hash)):
        v = by_hash[at]
        begin, end = words.begins[v], words.ends[v]
        terms[at, 0] = hashes[v]
        terms[at, 1] = np.uint64(heights[v]) << np.uint64(32) | np.uint64(v)
        terms[at, 2] = prefix_of(words.data, begin, end)
        terms[at, 3] = np.uint64(end - begin)
    return terms


@kernel
def _term_bits(hashes: Hashes) -> Hashes:
    bits = np.zeros(((len(hashes) * TERM_PLACES + 63) // 64 + 2, 2), np.uint64)
    for hash_ in hashes:
        take(bits, term_place(hash_, bits))
    add_up(bits)
    return bits
