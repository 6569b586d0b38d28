"""The loops that look words in places up in the grid-inverted index of one segment. Arrays only; `text.py` builds it.

One event at a time, at all levels, so that its words are looked up once:

    12 words ──dictionary──► 6 terms ──cells of 5 levels──► 7 lists ──box, signature──► 11 entries ──exact──► hits

What an event meets is scattered over memory, so steps that reject most of what they see have no branches: the next
look-ups are under way before the last is decided. Only the exact tests at the end decide (rectangle, terms, liveness);
what comes before may let too much through. PS2Stream §IV-D.
"""

from typing import Any, NamedTuple

import numpy as np

from geoswarm.flow.match.kernels import Hits, Points, Progress, Records, gallop, is_live
from geoswarm.flow.match.text_tables import LOW, is_taken, rank, scattered, signed, term_place
from geoswarm.jit import Bools, Bytes, Ints, Ordinals, ZCodes, kernel
from geoswarm.text.buffers import Rows
from geoswarm.text.expression import Terms
from geoswarm.text.kernels import Hashes
from geoswarm.text.tokens import Tokens

PLAIN = 1 << 31
"""Mark of an entry whose posting term is all that there is to satisfy."""
CONJUNCTIONS_MAX = 1 << 19
"""Of one subscription: what an entry's last word has room for, beside the mark and two bits of a signature."""


class TextIndex(NamedTuple):
    """A dictionary of terms by their hash, and for each cell a table of lists by scattered term (`text_tables.py`)."""

    term_bits: Hashes  # (words + 1, 2)
    terms: Hashes  # (n, 4), by hash: hash; term and its levels; first 8 bytes; how many it has
    levels: Ints  # that have entries
    level_starts: Ints  # in `keys`
    keys: ZCodes  # cells that have lists, of one level after another, ascending
    key_bits: Ordinals  # (keys, 2): first word in `list_bits`, words
    list_bits: Hashes  # (words + 1, 2)
    lists: Ordinals  # (n + 1, 2): scattered term, where its entries begin
    entries: Ordinals  # (n, 4): top left, bottom right at level 0; ordinal; signature bits, place of conjunction, mark


class Conditions(NamedTuple):
    """The expressions of a segment as arrays only."""

    conjunctions_offsets: Ints
    terms_offsets: Ints
    terms: Terms
    words: Rows


class Desk(NamedTuple):
    """What a search has at hand: the terms of one event, their lists, and where it stands at each level."""

    tokens: Ints
    terms: Ints
    scatters: Ints
    heights: Ints
    lists: Ints
    askers: Ints
    at: Ints
    cell: Ints
    first: Ints
    words: Ints


@kernel
def desk_for(tokens: Tokens, index: TextIndex) -> Desk:
    room, levels = np.int64(0), len(index.levels)
    for i in range(len(tokens.offsets) - 1):
        room = max(room, tokens.offsets[i + 1] - tokens.offsets[i])
    return Desk(
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room * levels, np.int64),
        np.empty(room * levels, np.int64),
        index.level_starts[:-1].copy(),
        np.full(levels, -1),
        np.zeros(levels, np.int64),
        np.zeros(levels, np.int64),
    )


@kernel
def signature_bit(scatter: int) -> int:
    return (scatter >> 13) & 63


@kernel
def prefix_of(word: Bytes, begin: int, end: int) -> Any:
    prefix = np.uint64(0)
    for b in range(min(end - begin, 8)):
        prefix |= np.uint64(word[begin + b]) << np.uint64(8 * b)
    return prefix


@kernel
def find_term(t: int, tokens: Tokens, index: TextIndex, words: Rows) -> int:
    """The row in the dictionary with the bytes of token t, or -1."""
    hash_, begin, end = tokens.hashes[t], tokens.starts[t], tokens.ends[t]
    prefix, length = prefix_of(tokens.folded, begin, end), end - begin
    at = rank(index.term_bits, term_place(hash_, index.term_bits))
    while at < len(index.terms) and index.terms[at, 0] < hash_:
        at += 1
    while at < len(index.terms) and index.terms[at, 0] == hash_:
        if index.terms[at, 2] == prefix and signed(index.terms[at, 3]) == length:
            b = 8
            if length > 8:
                first = words.begins[signed(index.terms[at, 1] & LOW)]
                while b < length and words.data[first + b] == tokens.folded[begin + b]:
                    b += 1
            if b >= length:
                return at
        at += 1
    return -1


@kernel
def find_terms(i: int, tokens: Tokens, index: TextIndex, words: Rows, probe: Bools, desk: Desk) -> tuple[int, int]:
    """The terms of event i that the segment knows, onto the desk: how many, and a bit per level that may have lists."""
    maybe, known, anywhere = 0, 0, 0
    for t in range(tokens.offsets[i], tokens.offsets[i + 1]):
        desk.tokens[maybe] = t
        maybe += is_taken(index.term_bits, term_place(tokens.hashes[t], index.term_bits))
    for m in range(maybe):
        t = desk.tokens[m]
        found = find_term(t, tokens, index, words)
        if found >= 0:
            term = signed(index.terms[found, 1] & LOW)
            height = signed(index.terms[found, 1] >> np.uint64(32))
            if len(probe) > 0 and not probe[t]:
                height = 0
            desk.tokens[known], desk.terms[known] = t, term
            desk.scatters[known], desk.heights[known] = scattered(term), height
            anywhere |= height
            known += 1
    return known, anywhere


@kernel
def find_cell(k: int, key: int, index: TextIndex, desk: Desk) -> None:
    """Moves forward at the k-th level to the first cell that is not before `key`."""
    last = index.level_starts[k + 1]
    if desk.at[k] < last and index.keys[desk.at[k]] < key:
        desk.at[k] = gallop(index.keys[:last], desk.at[k], key)
    desk.cell[k], desk.words[k] = key, 0
    if desk.at[k] < last and index.keys[desk.at[k]] == key:
        desk.first[k], desk.words[k] = index.key_bits[desk.at[k], 0], index.key_bits[desk.at[k], 1]


@kernel
def find_lists(code: int, known: int, anywhere: int, index: TextIndex, desk: Desk) -> int:
    """The lists under the terms on the desk in the cells of one point, onto the desk: how many."""
    maybe = 0
    for k in range(len(index.levels)):
        level = index.levels[k]
        if not (anywhere >> level) & 1:
            continue
        if code >> (2 * level) != desk.cell[k]:
            find_cell(k, code >> (2 * level), index, desk)
        if desk.words[k] == 0:
            continue
        first, places = desk.first[k] << 6, desk.words[k] << 6
        for j in range(known):
            place = first + ((desk.scatters[j] * places) >> 32)
            desk.lists[maybe], desk.askers[maybe] = place, j
            maybe += is_taken(index.list_bits, place) & (desk.heights[j] >> level)
    found = 0
    for m in range(maybe):
        place, j = desk.lists[m], desk.askers[m]
        at, end = rank(index.list_bits, place), signed(index.list_bits[(place >> 6) + 1, 1])
        while at < end and index.lists[at, 0] < desk.scatters[j]:
            at += 1
        desk.lists[found], desk.askers[found] = at, j
        found += (at < end) & (index.lists[at, 0] == desk.scatters[j])
    return found


@kernel
def compact_bits(v: int) -> int:
    """0a0b0c0d -> abcd, for 16 bits: a row or column of a Z-order code."""
    v &= 0x55555555
    v = (v | (v >> 1)) & 0x33333333
    v = (v | (v >> 2)) & 0x0F0F0F0F
    v = (v | (v >> 4)) & 0x00FF00FF
    return (v | (v >> 8)) & 0x0000FFFF


@kernel
def is_satisfied(conjunction: int, seen: Hashes, conditions: Conditions) -> bool:
    for t in range(conditions.terms_offsets[conjunction], conditions.terms_offsets[conjunction + 1]):
        term = signed(conditions.terms[t])
        if (seen[term >> 6] >> np.uint64(term & 63)) & np.uint64(1) == np.uint64(0):
            return False
    return True


@kernel
def is_first(ordinal: int, place: int, seen: Hashes, conditions: Conditions) -> bool:
    """Is this conjunction of the subscription satisfied, and none before it?"""
    first = conditions.conjunctions_offsets[ordinal]
    if not is_satisfied(first + place, seen, conditions):
        return False
    for c in range(first, first + place):  # noqa: SIM110 - numba has no all()
        if is_satisfied(c, seen, conditions):
            return False
    return True


@kernel
def match_text(
    points: Points,
    tokens: Tokens,
    index: TextIndex,
    conditions: Conditions,
    records: Records,
    now_us: int,
    probe: Bools,
    hits: Hits,
    done: Progress,
) -> Progress:
    """Like `match_level`, for all levels: goes on from `done`, and stops at a point whose lists might not fit.

    `probe` says for each token whether lists are looked up under it; empty: under all. A subscription is reported under
    the first of its conjunctions that the event satisfies, so executors that share out the terms report it once."""
    entries, lists, rects = index.entries, index.lists, records.rects
    all_live = len(records.dead) == 0 and len(records.expires_us) == 0
    desk = desk_for(tokens, index)
    seen = np.zeros((len(conditions.words.begins) >> 6) + 1, np.uint64)
    n, i, wanted = done.hits, done.points, np.int64(0)
    while i < len(points.codes):
        known, anywhere = find_terms(i, tokens, index, conditions.words, probe, desk)
        code, x, y = signed(points.codes[i]), points.x[i], points.y[i]
        found = find_lists(code, known, anywhere, index, desk)
        candidates = np.int64(0)
        for f in range(found):
            candidates += signed(lists[desk.lists[f] + 1, 1]) - signed(lists[desk.lists[f], 1])
        if n + candidates > len(hits.subs):
            wanted = n + candidates
            break
        signature = np.uint64(0)
        for j in range(known):
            signature |= np.uint64(1) << np.uint64(signature_bit(desk.scatters[j]))
            seen[desk.terms[j] >> 6] |= np.uint64(1) << np.uint64(desk.terms[j] & 63)
        row, column, passed = compact_bits(code >> 1), compact_bits(code), n
        for f in range(found):
            for e in range(signed(lists[desk.lists[f], 1]), signed(lists[desk.lists[f] + 1, 1])):
                hits.subs[passed] = e
                high, low, signs = signed(entries[e, 0]), signed(entries[e, 1]), np.uint64(entries[e, 3])
                within = (high >> 16 <= column) & (column <= low >> 16)
                within &= (high & 0xFFFF <= row) & (row <= low & 0xFFFF)
                second, third = signs & np.uint64(63), (signs >> np.uint64(6)) & np.uint64(63)
                passed += within & (signed((signature >> second) & (signature >> third)) & 1)
        for h in range(n, passed):
            e = hits.subs[h]
            s, check = signed(entries[e, 2]), signed(entries[e, 3])
            hits.subs[n] = s
            high, low = signed(entries[e, 0]), signed(entries[e, 1])
            hit = (high >> 16 < column) & (column < low >> 16) & (high & 0xFFFF < row) & (row < low & 0xFFFF)
            if not hit:  # on the rectangle's rim, where the cells of level 0 are too coarse to say
                hit = (rects[s, 0] <= x) & (x <= rects[s, 2]) & (rects[s, 1] <= y) & (y <= rects[s, 3])
            if hit and not check & PLAIN:
                hit = is_first(s, (check >> 12) & (CONJUNCTIONS_MAX - 1), seen, conditions)
            if hit and not all_live:
                hit = is_live(s, records, now_us)
            n += hit
        for j in range(known):
            seen[desk.terms[j] >> 6] = 0
        hits.ends[i] = n
        i += 1
    for h in range(done.hits, n):
        hits.subs[h] = records.ids[hits.subs[h]]
    return Progress(i, n, int(wanted))


@kernel
def mark_wanted(points: Points, tokens: Tokens, index: TextIndex, words: Rows, marks: Bools) -> None:
    """Marks the tokens under which there is a list in their event's place."""
    desk, every = desk_for(tokens, index), np.empty(0, np.bool_)
    for i in range(len(points.codes)):
        known, anywhere = find_terms(i, tokens, index, words, every, desk)
        for f in range(find_lists(signed(points.codes[i]), known, anywhere, index, desk)):
            marks[desk.tokens[desk.askers[f]]] = True
