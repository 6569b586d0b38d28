"""The index of words by place, as arrays, and the loops that find the lists for an event. `words.py` builds it.

    12 words ──dictionary──► 12 terms ──cells of 4 levels──► 13 lists        next: `flow/match/word_match.py`

The lists are scattered over memory, and waiting for memory is most of the work. So some dozens of events take each step
together, in loops whose look-ups do not depend on each other: the next one starts before the last has returned.
PS2Stream §IV-D.
"""

from typing import Any, NamedTuple

import numpy as np

from geoswarm.core.arrays.buffers import ByteRows
from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, Ordinals, Packed, SubIds, inner, kernel, read_only
from geoswarm.core.arrays.prefetch import prefetch
from geoswarm.core.index.kernels import Points
from geoswarm.core.index.word_tables import LOW, as_signed, as_unsigned, is_taken, rank, scatter_term, term_place
from geoswarm.core.text.expression import Terms
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import Tokens

ONE = np.uint64(1)
BLOCK_EVENTS, BLOCK_TOKENS = 32, 384
"""Most events that go from step to step together: their part of the workspace stays in the nearest cache."""


class TextIndex(NamedTuple):
    """A dictionary of terms by their hash, and for each cell a table of lists by scattered term (`word_tables.py`).

    Files name the arrays like these fields: an array with a new meaning needs a new name."""

    term_bits: Hashes  # (words + 1, 2)
    terms: Hashes  # (n, 4), by hash: hash; term and its levels; first 8 bytes; how many it has
    frame: Floats  # of the grid at level 0
    levels: Ints  # that have entries
    level_starts: Ints  # in `keys`
    keys: Ordinals  # (n + 1, 2): cells that have lists, of one level after another, ascending; first in `list_bits`
    list_bits: Hashes  # (words + 1, 2)
    lists: Ordinals  # (n + 2, 2): scattered term, where its entries begin
    packed: Packed  # entries: an alternative, and the box (`word_checks.py`)
    alternatives: Packed  # (n, 2): id; ordinal and check

    def with_ids(self, ids: SubIds) -> "TextIndex":
        """The same lists, which give `ids[s]` for subscription s."""
        alternatives = self.alternatives.copy()
        alternatives[:, 0] = ids[alternatives[:, 1] >> np.uint64(32)].view(np.uint64)
        return self._replace(alternatives=read_only(alternatives))


class Conditions(NamedTuple):
    """The expressions of a segment, as arrays."""

    conjunctions_offsets: Ints
    terms_offsets: Ints
    terms: Terms
    words: ByteRows


class Workspace(NamedTuple):
    """The scratch arrays of a search: the terms of a block of events, their lists, and its position at each level."""

    tokens: Ints
    rows: Ints
    terms: Ints
    scatters: Ints
    heights: Ints
    terms_ends: Ints  # by event
    anywhere: Ints  # by event: a bit per level that may have lists
    places: Ints
    begins: Ints
    ends: Ints
    ranks: Ints  # of levels
    asked: Ints
    lists_ends: Ints  # by event
    at: Ints  # by level
    first: Ints  # by level and event
    words: Ints
    folded: Hashes  # the bytes of all tokens, by eights


@kernel
def workspace_for(tokens: Tokens, index: TextIndex) -> Workspace:
    room, levels = np.int64(BLOCK_TOKENS), len(index.levels)
    for i in range(len(tokens.offsets) - 1):
        room = max(room, tokens.offsets[i + 1] - tokens.offsets[i])
    return Workspace(
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(BLOCK_EVENTS, np.int64),
        np.empty(BLOCK_EVENTS, np.int64),
        np.empty(room * levels, np.int64),
        np.empty(room * levels, np.int64),
        np.empty(room * levels, np.int64),
        np.empty(room * levels, np.int64),
        np.empty(room * levels, np.int64),
        np.empty(BLOCK_EVENTS, np.int64),
        index.level_starts[:-1].copy(),
        np.empty(levels * BLOCK_EVENTS, np.int64),
        np.empty(levels * BLOCK_EVENTS, np.int64),
        tokens.folded[: len(tokens.folded) & ~7].view(np.uint64),
    )


@inner
def block_end(begin: int, tokens: Tokens) -> int:
    """The end of the block that begins with an event: it has several events, or one with many tokens."""
    last = min(begin + BLOCK_EVENTS, len(tokens.offsets) - 1)
    end = begin + 1
    while end < last and tokens.offsets[end + 1] - tokens.offsets[begin] <= BLOCK_TOKENS:
        end += 1
    return end


@inner
def prefix_of(word: Bytes, begin: int, end: int) -> Any:
    prefix = np.uint64(0)
    for b in range(min(end - begin, 8)):
        prefix |= np.uint64(word[begin + b]) << np.uint64(8 * b)
    return prefix


@inner
def prefix_at(begin: int, end: int, tokens: Tokens, workspace: Workspace) -> Any:
    """`prefix_of` a token, from two words of eight bytes."""
    at = begin >> 3
    if at + 1 >= len(workspace.folded):
        return prefix_of(tokens.folded, begin, end)
    shift, spare = as_unsigned(8 * (begin & 7)), as_unsigned(64 - 8 * min(end - begin, 8))
    low, high = workspace.folded[as_unsigned(at)], workspace.folded[as_unsigned(at + 1)]
    prefix = low >> shift | (high << ONE) << (np.uint64(63) - shift)
    return (prefix << spare) >> spare


@inner
def find_term(t: int, row: int, tokens: Tokens, index: TextIndex, words: ByteRows, workspace: Workspace) -> int:
    """The first row of the dictionary, from `row` on, that has the bytes of token t, or -1."""
    hash_, begin, end = tokens.hashes[t], tokens.starts[t], tokens.ends[t]
    prefix, length = prefix_at(begin, end, tokens, workspace), end - begin
    at, last = as_unsigned(row), as_unsigned(len(index.terms))
    while at < last and index.terms[at, 0] < hash_:
        at += ONE
    while at < last and index.terms[at, 0] == hash_:
        if index.terms[at, 2] == prefix and as_signed(index.terms[at, 3]) == length:
            b = 8
            if length > 8:
                first = words.begins[as_signed(index.terms[at, 1] & LOW)]
                while b < length and words.data[first + b] == tokens.folded[begin + b]:
                    b += 1
            if b >= length:
                return as_signed(at)
        at += ONE
    return -1


@inner
def find_terms(
    begin: int, end: int, tokens: Tokens, index: TextIndex, words: ByteRows, probe: Bools, workspace: Workspace
) -> None:
    """Write the terms of a block that are in the dictionary into the workspace."""
    maybe, known, m = 0, 0, 0
    for t in range(tokens.offsets[begin], tokens.offsets[end]):
        place = term_place(tokens.hashes[t], index.term_bits)
        workspace.tokens[maybe], workspace.rows[maybe] = t, rank(index.term_bits, place)
        prefetch(index.terms, (workspace.rows[maybe], 0))
        maybe += is_taken(index.term_bits, place)
    for i in range(begin, end):
        anywhere = 0
        while m < maybe and workspace.tokens[m] < tokens.offsets[i + 1]:
            t = workspace.tokens[m]
            found = find_term(t, workspace.rows[m], tokens, index, words, workspace)
            m += 1
            if found >= 0:
                term = as_signed(index.terms[found, 1] & LOW)
                height = as_signed(index.terms[found, 1] >> np.uint64(32))
                if len(probe) > 0 and not probe[t]:
                    height = 0
                workspace.tokens[known], workspace.terms[known] = t, term
                workspace.scatters[known], workspace.heights[known] = scatter_term(term), height
                anywhere |= height
                known += 1
        workspace.terms_ends[i - begin], workspace.anywhere[i - begin] = known, anywhere


@inner
def find_cell(keys: Ordinals, at: int, end: int, wanted: int) -> int:
    """The first row from `at` on whose key is not below `wanted`."""
    step = 1
    while at + step < end and keys[at + step, 0] < wanted:
        step *= 2
    low, high = at + step // 2, min(at + step, end)
    while low < high:
        middle = (low + high) // 2
        if keys[middle, 0] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def find_cells(begin: int, end: int, points: Points, index: TextIndex, workspace: Workspace) -> None:
    """For each event of a block and each level: where the bits of its cell begin, and how many words of bits it has."""
    for k in range(len(index.levels)):
        shift, at, last, cell = 2 * index.levels[k], workspace.at[k], index.level_starts[k + 1], as_signed(-1)
        first, words = as_signed(0), as_signed(0)
        for i in range(begin, end):
            code = as_signed(points.codes[i]) >> shift
            if code != cell:
                if at < last and index.keys[at, 0] < code:
                    at = find_cell(index.keys, at, last, code)
                cell, words = code, as_signed(0)
                if at < last and index.keys[at, 0] == code:
                    first = as_signed(index.keys[at, 1])
                    words = as_signed(index.keys[at + 1, 1]) - first
            workspace.first[k * BLOCK_EVENTS + i - begin], workspace.words[k * BLOCK_EVENTS + i - begin] = first, words
        workspace.at[k] = at


@inner
def find_lists(begin: int, end: int, points: Points, index: TextIndex, workspace: Workspace) -> None:
    """Write the lists for the terms in the workspace, in the cells of each event of a block, into the workspace."""
    find_cells(begin, end, points, index, workspace)
    maybe, term = as_unsigned(0), 0
    for i in range(end - begin):
        for k in range(len(index.levels)):
            level, words = index.levels[k], workspace.words[k * BLOCK_EVENTS + i]
            if words == 0 or not (workspace.anywhere[i] >> level) & 1:
                continue
            first, places = workspace.first[k * BLOCK_EVENTS + i] << 6, words << 6
            for j in range(as_unsigned(term), as_unsigned(workspace.terms_ends[i])):
                place = first + ((workspace.scatters[j] * places) >> 32)
                workspace.places[maybe], workspace.asked[maybe], workspace.ranks[maybe] = place, j, k
                maybe += as_unsigned(is_taken(index.list_bits, place) & (workspace.heights[j] >> level))
        term, workspace.lists_ends[i] = workspace.terms_ends[i], maybe
    for n in range(maybe):
        place = as_unsigned(workspace.places[n])
        workspace.begins[n] = rank(index.list_bits, place)
        workspace.ends[n] = index.list_bits[(place >> np.uint64(6)) + ONE, 1]
        prefetch(index.lists, (workspace.begins[n], 0))
    found, m = as_unsigned(0), 0
    for i in range(end - begin):
        for n in range(as_unsigned(m), as_unsigned(workspace.lists_ends[i])):
            at, last = as_unsigned(workspace.begins[n]), as_unsigned(workspace.ends[n])
            j = as_unsigned(workspace.asked[n])
            scatter = as_unsigned(workspace.scatters[j])
            while at < last and index.lists[at, 0] < scatter:
                at += ONE
            workspace.begins[found], workspace.ends[found] = index.lists[at, 1], index.lists[at + ONE, 1]
            prefetch(index.packed, workspace.begins[found])
            workspace.asked[found], workspace.ranks[found] = j, workspace.ranks[n]
            found += as_unsigned((at < last) & (index.lists[at, 0] == scatter))
        m, workspace.lists_ends[i] = workspace.lists_ends[i], found


@kernel
def mark_wanted(points: Points, tokens: Tokens, index: TextIndex, words: ByteRows, marks: Bools) -> None:
    """Mark the tokens for which there is a list in a cell of their event."""
    workspace, every, begin = workspace_for(tokens, index), np.empty(0, np.bool_), int(np.int64(0))
    while begin < len(points.codes):
        end = block_end(begin, tokens)
        find_terms(begin, end, tokens, index, words, every, workspace)
        find_lists(begin, end, points, index, workspace)
        for f in range(workspace.lists_ends[end - begin - 1]):
            marks[workspace.tokens[workspace.asked[f]]] = True
        begin = end
