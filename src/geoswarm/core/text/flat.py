"""Reads simple expressions with a kernel, without a parser: ASCII words all joined by AND, or all by OR, or one word.

All others are left to `grammar.py`. Both give the same words in the same order, none twice.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.buffers import ByteRows
from geoswarm.core.arrays.jit import Bytes, Ints, kernel
from geoswarm.core.text.ascii import ASCII, NOT_ASCII
from geoswarm.core.text.tokens import TERM_CHARS_MAX

FLAT_WORDS_MAX = 8
"""Most words of a row; for more, sorting by insertion is no longer the fastest."""
_WORD, _AND, _OR, _NOT = 0, 1, 2, 3
_A, _D, _N, _O, _R, _T = (ord(letter) for letter in "adnort")


class FlatExpressions(NamedTuple):
    """The rows that were read. Row rows[i] has the words word_offsets[i]:word_offsets[i + 1]."""

    rows: Ints
    any_of: Bytes  # 1: joined by OR
    word_offsets: Ints
    bounds: Ints  # word w is folded[bounds[w]:bounds[w + 1]]
    folded: Bytes


@kernel
def _kind(data: Bytes, at: int, end: int) -> int:
    a = ASCII[data[at]]
    if end - at == 2:
        return _OR if a == _O and ASCII[data[at + 1]] == _R else _WORD
    if end - at == 3:
        b, c = ASCII[data[at + 1]], ASCII[data[at + 2]]
        if a == _A and b == _N and c == _D:
            return _AND
        if a == _N and b == _O and c == _T:
            return _NOT
    return _WORD


@kernel
def _compare(data: Bytes, a: int, a_end: int, b: int, b_end: int) -> int:
    """Negative, zero or positive, as a is before, the same as, or after b once both are folded."""
    for k in range(min(a_end - a, b_end - b)):
        difference = int(np.int64(ASCII[data[a + k]]) - np.int64(ASCII[data[b + k]]))
        if difference != 0:
            return difference
    return (a_end - a) - (b_end - b)


@kernel
def _words(rows: ByteRows, row: int, size_max: int, found: Ints) -> tuple[int, int]:
    """The distinct words of a row, sorted, into `found` (begin, end); their number (0: not flat), and the operator."""
    at, end, count, words, joined, last = rows.begins[row], rows.ends[row], 0, 0, _WORD, _AND
    if end - at > size_max:
        return 0, _WORD
    while at < end:
        byte = ASCII[rows.data[at]]
        if rows.data[at] == 32:
            at += 1
            continue
        if byte == 0 or byte == NOT_ASCII:
            return 0, _WORD
        begin = at
        while at < end and ASCII[rows.data[at]] != 0 and ASCII[rows.data[at]] != NOT_ASCII:
            at += 1
        kind = _kind(rows.data, begin, at)
        operator = kind if kind != _WORD else _AND if last == _WORD else _WORD  # side by side is AND
        if operator != _WORD:
            if operator == _NOT or (kind != _WORD and last != _WORD) or (joined != _WORD and joined != operator):
                return 0, _WORD
            joined = operator
        last = kind
        if kind != _WORD:
            continue
        words += 1
        if at - begin > TERM_CHARS_MAX or words > FLAT_WORDS_MAX:
            return 0, _WORD
        place = count
        while place > 0:
            order = _compare(rows.data, found[place - 1, 0], found[place - 1, 1], begin, at)
            if order == 0:
                place = -1
            if order <= 0:
                break
            place -= 1
        if place < 0:
            continue
        for k in range(count, place, -1):
            found[k, 0], found[k, 1] = found[k - 1, 0], found[k - 1, 1]
        found[place, 0], found[place, 1] = begin, at
        count += 1
    return (0, _WORD) if last != _WORD else (count, joined)


@kernel
def read_flat(rows: ByteRows, size_max: int) -> tuple[FlatExpressions, Ints]:
    """The rows that are flat, and the numbers of those that are not, or are longer than `size_max` bytes."""
    n = len(rows.begins)
    size = (rows.ends - rows.begins).sum()
    read, left, any_of = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.uint8)
    word_offsets, bounds = np.zeros(n + 1, np.int64), np.zeros(size // 2 + n + 1, np.int64)
    folded, found = np.empty(size, np.uint8), np.empty((FLAT_WORDS_MAX, 2), np.int64)
    count, others, words, written = 0, 0, 0, 0
    for row in range(n):
        terms, joined = _words(rows, row, size_max, found)
        if terms == 0:
            left[others] = row
            others += 1
            continue
        for k in range(terms):
            for at in range(found[k, 0], found[k, 1]):
                folded[written] = ASCII[rows.data[at]]
                written += 1
            words += 1
            bounds[words] = written
        read[count], any_of[count] = row, joined == _OR
        count += 1
        word_offsets[count] = words
    return FlatExpressions(
        read[:count], any_of[:count], word_offsets[: count + 1], bounds[: words + 1], folded[:written]
    ), left[:others]
