"""The grid-inverted index of one segment: per cell, lists of subscriptions under the rarest term of each conjunction.

Built once, never changed, from subscriptions that have a text condition; all others are in `cells.py` only. A
subscription without a place is a rectangle round the world. `word_kernels.py` declares the arrays and searches them,
`word_checks.py` says what is in an entry.

Its grids are at every second scale, and a rectangle is entered where it meets at most 4 cells: coarser than `cells.py`,
because a list is short by its term already, and each level costs a look-up for every word of an event.

The choice of the rarest term affects speed only: an index that was built with old frequencies finds the same.
PS2Stream §IV-D (GI²); `wanted_tokens` does what H2 does in §IV-C.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.buffers import ByteRows, rows_of
from geoswarm.core.arrays.jit import Array, Bools, Floats, Ints, Ordinals, Packed, SubIds, ZCodes, kernel, read_only
from geoswarm.core.arrays.radix import argsort, sort_order
from geoswarm.core.index.cell_boxes import STEPS_LOG2, side_of, steps_x, steps_y
from geoswarm.core.index.cells import CODE_MAX, LEVELS, frame_of
from geoswarm.core.index.kernels import Points
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.index.word_checks import ENTRY_CONJUNCTIONS_MAX, posting_of
from geoswarm.core.index.word_kernels import Conditions, TextIndex, mark_wanted, prefix_of
from geoswarm.core.index.word_tables import add_up, as_signed, mark_taken, scatter_term, term_place
from geoswarm.core.space.grid import Grid, zcode
from geoswarm.core.text.expression import Expressions, Terms
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import Tokens, hash_terms
from geoswarm.errors import InputError

CELLS_PER_SUBSCRIPTION_MAX = 4
"""Most cells of one subscription, which has an entry in each for every conjunction. About 2.7 on average."""
LEVEL_STEP = 2
LIST_PLACES = 8
"""Bits of a cell's bitmap per list: one in eight of the terms without a list is looked up in vain."""
TERM_PLACES = 16


def wanted_tokens(points: Points, tokens: Tokens, segments: Sequence[Searchable]) -> Bools:
    """Whether there is a list for each token in a cell of its event. `points` are in Z-order. An event without such a
    token meets no subscription that asks for words: routers use this."""
    marks = np.zeros(len(tokens.hashes), np.bool_)
    for segment in segments:
        if segment.text is not None and segment.conditions is not None:
            mark_wanted(points, tokens, segment.text, segment.conditions.words, marks)
    return marks


def conditions_of(expressions: Expressions) -> Conditions:
    """Copies only the offsets of the words."""
    return Conditions(
        read_only(expressions.conjunctions_offsets),
        read_only(expressions.terms_offsets),
        read_only(expressions.terms),
        rows_of(expressions.vocabulary),
    )


def build_text(
    grid: Grid, rects: Floats, ids: SubIds, expressions: Expressions, frequencies: npt.NDArray[Any] | None = None
) -> TextIndex:
    """`rects` is (n, 4), within the grid's bounds; `frequencies` is how common each term of the vocabulary is in the
    stream. Without it, terms are assumed to be as common among events as among subscriptions."""
    conditions, hashes = conditions_of(expressions), hash_terms(expressions.vocabulary)
    per_subscription = np.diff(expressions.conjunctions_offsets)
    if len(per_subscription) and per_subscription.max() > ENTRY_CONJUNCTIONS_MAX:
        raise InputError(
            f"a subscription has {per_subscription.max()} conjunctions, limit {ENTRY_CONJUNCTIONS_MAX}: "
            "split it into several"
        )
    if frequencies is None:
        frequencies = np.bincount(expressions.wanted().terms, minlength=len(hashes))
    frame, rarity = frame_of(grid), read_only(np.asarray(frequencies, np.float64))
    levels, sides = choose_levels(read_only(rects), frame)
    fold_levels(levels, sides)
    count = count_entries(levels, sides, conditions.conjunctions_offsets)
    postings, entries, alternatives = _enter(levels, sides, read_only(ids), count, conditions, rarity)
    order = sort_order(postings.scatters, CODE_MAX)
    order = argsort(postings.heights, argsort(postings.codes, order, CODE_MAX), LEVELS)
    by_hash = np.argsort(hashes, kind="stable")
    terms = _terms(by_hash, hashes, _heights_of_terms(postings, len(hashes)), conditions.words)
    made = TextIndex(
        _term_bits(hashes[by_hash]),
        terms,
        frame,
        *tables_of(order, postings),
        *pack_entries(order, entries, alternatives),
    )
    return TextIndex._make(read_only(array) for array in made)


class Postings(NamedTuple):
    """The level, cell and term of each entry."""

    heights: Ordinals
    codes: ZCodes
    scatters: Ordinals
    terms: Terms


class Entries(NamedTuple):
    """Of each entry its box (`cell_boxes.py`), and the alternative that it is of."""

    boxes: Ordinals
    alternatives: Ordinals


@kernel
def choose_levels(rects: Floats, frame: Floats) -> tuple[Ints, Ints]:
    """The level of each rectangle, and its sides in steps: left, top, right, bottom."""
    levels, sides = np.empty(len(rects), np.int64), np.empty((len(rects), 4), np.int64)
    for i in range(len(rects)):
        sides[i, 0], sides[i, 1] = steps_x(rects[i, 0], frame), steps_y(rects[i, 3], frame)
        sides[i, 2], sides[i, 3] = steps_x(rects[i, 2], frame), steps_y(rects[i, 1], frame)
        level = 0
        while _count_cells(sides, i, level) > CELLS_PER_SUBSCRIPTION_MAX:
            level += LEVEL_STEP
        levels[i] = level
    return levels, sides


@kernel
def fold_levels(levels: Ints, sides: Ints) -> None:
    """Where a place has fewer rectangles at a level than at the next, they move up: each word has one look-up less, for
    some more entries to test. Rectangles of a place are neighbours if the segment is in Z-order; if it is not, the
    index still finds the same."""
    for level in range(0, LEVELS - LEVEL_STEP, LEVEL_STEP):
        above, begin, few, many = level + LEVEL_STEP, 0, 0, 0
        shift = STEPS_LOG2 + above
        for i in range(len(levels) + 1):
            last = i == len(levels)
            if last or ((sides[i, 0] ^ sides[begin, 0]) | (sides[i, 1] ^ sides[begin, 1])) >> shift:
                if 0 < few <= many:
                    for k in range(begin, i):
                        levels[k] = above if levels[k] == level else levels[k]
                begin, few, many = i, 0, 0
            if not last:
                few += levels[i] == level
                many += levels[i] == above


@kernel
def count_entries(levels: Ints, sides: Ints, conjunctions_offsets: Array) -> int:
    """The total number of entries."""
    count = 0
    for i in range(len(levels)):
        conjunctions = as_signed(conjunctions_offsets[i + 1]) - as_signed(conjunctions_offsets[i])
        count += _count_cells(sides, i, levels[i]) * conjunctions
    return count


@kernel
def _count_cells(sides: Ints, i: int, level: int) -> int:
    """How many cells of a level a rectangle meets."""
    shift = STEPS_LOG2 + level
    columns = (sides[i, 2] >> shift) - (sides[i, 0] >> shift) + 1
    rows = (sides[i, 3] >> shift) - (sides[i, 1] >> shift) + 1
    return int(columns * rows)


@kernel
def _enter(
    levels: Ints, sides: Ints, ids: SubIds, count: int, conditions: Conditions, frequencies: Floats
) -> tuple[Postings, Entries, Packed]:
    heights, codes = np.empty(count, np.uint32), np.empty(count, np.uint32)
    scatters, terms = np.empty(count, np.uint32), np.empty(count, np.int32)
    boxes, numbers, n = np.empty(count, np.uint32), np.empty(count, np.uint32), 0
    offsets, number = conditions.conjunctions_offsets, 0
    alternatives = np.empty((as_signed(offsets[-1]) - as_signed(offsets[0]), 2), np.uint64)
    for i in range(len(levels)):
        level, shift = levels[i], STEPS_LOG2 + levels[i]
        left, upper, right, lower = sides[i, 0], sides[i, 1], sides[i, 2], sides[i, 3]
        begin, end = as_signed(offsets[i]), as_signed(offsets[i + 1])
        for c in range(begin, end):
            term, check = posting_of(begin, c, conditions, frequencies)
            alternatives[number, 0], alternatives[number, 1] = ids[i], i << 32 | check
            for row in range(upper >> shift, (lower >> shift) + 1):
                below = side_of(upper, lower, row, level)
                for col in range(left >> shift, (right >> shift) + 1):
                    heights[n], codes[n], scatters[n], terms[n] = level, zcode(row, col), scatter_term(term), term
                    boxes[n], numbers[n] = side_of(left, right, col, level) << 16 | below, number
                    n += 1
            number += 1
    return Postings(heights, codes, scatters, terms), Entries(boxes, numbers), alternatives


@kernel
def _cells(order: Ints, postings: Postings) -> tuple[Ints, int]:
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
def tables_of(order: Ints, postings: Postings) -> tuple[Ints, Ints, Ordinals, Hashes, Ordinals]:
    starts, n_lists = _cells(order, postings)
    n_cells = len(starts) - 1
    levels, level_starts, height = np.empty(LEVELS, np.int64), np.empty(LEVELS + 1, np.int64), 0
    keys = np.empty((n_cells + 1, 2), np.uint32)
    bits = np.zeros((n_lists * LIST_PLACES // 64 + n_cells + 1, 2), np.uint64)
    lists = np.zeros((n_lists + 2, 2), np.uint32)
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
        words = ((at - first) * LIST_PLACES + 63) // 64
        keys[c, 0], keys[c, 1] = postings.codes[o], word
        for k in range(first, at):
            mark_taken(bits, (word << 6) + ((as_signed(lists[k, 0]) * (words << 6)) >> 32))
        word += words
    level_starts[height], keys[n_cells, 0], keys[n_cells, 1] = n_cells, 0, word
    lists[at:, 1] = len(order)
    bits = bits[: word + 1].copy()
    add_up(bits)
    return levels[:height].copy(), level_starts[: height + 1].copy(), keys, bits, lists


@kernel
def pack_entries(order: Ints, entries: Entries, alternatives: Packed) -> tuple[Packed, Packed]:
    """The entries in the order of the lists, and the alternatives in the order in which entries name them first. So
    those of a list are neighbours, too."""
    packed, ordered = np.empty(len(order), np.uint64), np.empty_like(alternatives)
    rows, count = np.full(len(alternatives), -1, np.int64), 0
    for i in range(len(order)):
        number = entries.alternatives[order[i]]
        if rows[number] < 0:
            rows[number] = count
            ordered[count, 0], ordered[count, 1] = alternatives[number, 0], alternatives[number, 1]
            count += 1
        packed[i] = rows[number] << 32 | as_signed(entries.boxes[order[i]])
    return packed, ordered


@kernel
def _heights_of_terms(postings: Postings, n: int) -> Ordinals:
    """For each term of the vocabulary, a bit for each level that has a list for it."""
    masks = np.zeros(n, np.uint32)
    for e in range(len(postings.terms)):
        masks[postings.terms[e]] |= np.uint32(1) << postings.heights[e]
    return masks


@kernel
def _terms(by_hash: Ints, hashes: Hashes, heights: Ordinals, words: ByteRows) -> Hashes:
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
        mark_taken(bits, term_place(hash_, bits))
    add_up(bits)
    return bits
