"""The loops that cut texts into terms, and the hash of a term. Arrays only; `tokens.py` checks and packs.

A term is written to `folded` and hashed while it is read. At the end of a text its terms are sorted by hash, and
repeats are dropped.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.buffers import ByteRows
from geoswarm.core.arrays.eights import eight_at, put_eight, swap_bytes
from geoswarm.core.arrays.jit import Bytes, Ints, inner, kernel
from geoswarm.core.text.ascii import ASCII, HIGH_BITS, NOT_ASCII, fold_eight
from geoswarm.core.text.unicode_tables import FOLD, IN_TERM, MARK, SEPARATES, WHOLE_TEXT, FoldTables

Hashes = npt.NDArray[np.uint64]

RANKED_MAX = 48
"""The number of terms up to which comparing all pairs is cheaper than sorting."""
GROWTH_MAX = 4
"""Bytes of a folded text per byte of the text, at most: 7 for 2 (`FOLD_BYTES_MAX`), rounded up."""

_SEED, _GAMMA = np.uint64(0x243F6A8885A308D3), np.uint64(0x9E3779B97F4A7C15)  # digits of pi, of the golden ratio
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S8, _S27, _S30, _S31, _S56 = np.uint64(8), np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(56)
_BYTE = np.uint64(255)


class Room(NamedTuple):
    """Arrays for tokens, as in `tokens.Tokens`; `offsets` has a place for every row."""

    offsets: Ints
    hashes: Hashes
    starts: Ints
    ends: Ints
    folded: Bytes


@inner
def mix(z: np.uint64) -> np.uint64:
    """SplitMix64's finisher (Steele, Lea and Flood, OOPSLA 2014): each bit of z reaches all bits."""
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


@inner
def finish_hash(h: np.uint64, word: np.uint64, length: int) -> np.uint64:
    """The hash of a term, from the hash of its whole words of eight bytes, the remaining bytes, and its length."""
    return mix((h ^ word) + np.uint64(length) * _GAMMA)


@inner
def hash_of(data: Bytes, start: int, end: int) -> np.uint64:
    """The hash of a term, eight bytes at a time. `cut_terms` does the same while it reads."""
    h, word = _SEED, np.uint64(0)
    for i in range(start, end):
        word = (word << _S8) | np.uint64(data[i])
        if (i - start) & 7 == 7:
            h, word = mix(h ^ word), np.uint64(0)
    return finish_hash(h, word, end - start)


@kernel
def hash_rows(rows: ByteRows) -> Hashes:
    hashes = np.empty(len(rows.begins), np.uint64)
    for i in range(len(hashes)):
        hashes[i] = hash_of(rows.data, rows.begins[i], rows.ends[i])
    return hashes


@inner
def decode_utf8(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The code point that begins at a byte beyond ASCII, and its length; (-1, 1) if the bytes are not UTF-8."""
    lead = int(np.int64(data[at]))  # int() alone would stay unsigned in a kernel, and -1 a large number
    if 0xC2 <= lead < 0xE0:
        length, code, least = 2, lead & 0x1F, 0x80
    elif 0xE0 <= lead < 0xF0:
        length, code, least = 3, lead & 0x0F, 0x800
    elif 0xF0 <= lead < 0xF5:
        length, code, least = 4, lead & 0x07, 0x10000
    else:
        return -1, 1
    if at + length > end:
        return -1, 1
    for i in range(at + 1, at + length):
        if data[i] & 0xC0 != 0x80:
            return -1, 1
        code = (code << 6) | (int(np.int64(data[i])) & 0x3F)
    if code < least or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return -1, 1
    return code, length


@kernel
def beyond_ascii(rows: ByteRows) -> Ints:
    """The rows that have a byte beyond ASCII."""
    found = np.empty(len(rows.begins), np.int64)
    count = 0
    for i in range(len(rows.begins)):
        any_bits = np.uint8(0)
        for k in range(rows.begins[i], rows.ends[i]):  # without a break, so that the compiler takes 32 bytes at a time
            any_bits |= rows.data[k]
        found[count] = i
        count += int(any_bits >= 128)
    return found[:count]


@kernel
def to_fold_whole(rows: ByteRows, candidates: Ints, tables: FoldTables) -> Ints:
    """The candidates that cannot be folded code point by code point."""
    found = np.empty(len(candidates), np.int64)
    count = 0
    for i in candidates:
        at, end, last_class = rows.begins[i], rows.ends[i], 0
        while at < end:
            if rows.data[at] < 128:
                at += 1
                last_class = 0
                continue
            code, length = decode_utf8(rows.data, at, end)
            kind = WHOLE_TEXT if code < 0 else int(np.int64(tables.folding[code]))
            this_class = kind - MARK if MARK <= kind < FOLD else 0
            if kind == WHOLE_TEXT or 0 < this_class < last_class:
                found[count] = i
                count += 1
                break
            last_class = this_class
            at += length
    return found[:count]


@inner
def same(data: Bytes, a: int, a_end: int, b: int, b_end: int) -> bool:
    if a_end - a != b_end - b:
        return False
    for k in range(a_end - a):  # noqa: SIM110 - kernels have no generators
        if data[a + k] != data[b + k]:
            return False
    return True


@kernel
def _merge_sort(hashes: Hashes, order: Ints) -> None:
    """Sort `order`, stably. numpy's argsort would do, but its stable kind takes seconds to compile."""
    count, width = len(order), 1
    merged = np.empty(count, np.int64)
    while width < count:
        for low in range(0, count, 2 * width):
            a, a_end = low, min(low + width, count)
            b, b_end = a_end, min(low + 2 * width, count)
            for out in range(low, b_end):
                if b == b_end or (a < a_end and hashes[order[a]] <= hashes[order[b]]):
                    merged[out] = order[a]
                    a += 1
                else:
                    merged[out] = order[b]
                    b += 1
        order[:] = merged
        width *= 2


@inner
def _order(hashes: Hashes, count: int, order: Ints) -> None:
    """Set order[:count] so that hashes[order] ascends; equal hashes stay in arrival order.

    Each hash counts those before it. For a dozen terms that is faster than any sort: no branch depends on data.
    """
    if count > RANKED_MAX:
        _bucket_sort(hashes, order[:count])
        return
    for i in range(count):
        rank = 0
        for j in range(i):
            rank += hashes[j] <= hashes[i]
        for j in range(i + 1, count):
            rank += hashes[j] < hashes[i]
        order[rank] = i


@kernel
def _bucket_sort(hashes: Hashes, order: Ints) -> None:
    """For long texts. The first bits of a hash are chance, so a bucket for each value of them has about one term, and
    the rest is insertion. A bucket with many terms, by intent or by repetition, is merged."""
    bits = 1
    while 1 << bits < len(order):
        bits += 1
    shift = np.uint64(64 - bits)
    ends = np.zeros((1 << bits) + 1, np.int64)
    for i in range(len(order)):
        ends[(hashes[i] >> shift) + np.uint64(1)] += 1
    for b in range(1 << bits):
        ends[b + 1] += ends[b]
    for i in range(len(order)):  # ends[b], where bucket b begins, moves on to its end
        bucket = hashes[i] >> shift
        order[ends[bucket]] = i
        ends[bucket] += 1
    first = 0
    for b in range(1 << bits):
        if ends[b] - first > RANKED_MAX:
            _merge_sort(hashes, order[first : ends[b]])
        for i in range(first + 1, ends[b]):
            t, at = order[i], i
            while at > first and hashes[order[at - 1]] > hashes[t]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = t
        first = ends[b]


@inner
def _keep(found: Room, count: int, room: Room, first: int) -> int:
    """Writes the distinct terms found in a text to room[first:], in order of hash; returns where they end."""
    _order(found.hashes, count, found.offsets)
    kept = first
    for i in range(count):
        t = found.offsets[i]
        h, start, end = found.hashes[t], found.starts[t], found.ends[t]
        seen = False
        k = kept - 1
        while k >= first and room.hashes[k] == h and not seen:
            seen = same(room.folded, room.starts[k], room.ends[k], start, end)
            k -= 1
        if not seen:
            room.hashes[kept], room.starts[kept], room.ends[kept] = h, start, end
            kept += 1
    return kept


@kernel
def cut_terms(
    rows: ByteRows, folded_before: Bytes, tables: FoldTables, chars_max: int, found: Room, room: Room, row: int
) -> int:
    """Tokenize from `row` on, while there is certainly room; returns the first row that was not tokenized.

    ASCII is read by eights. All else is read byte by byte, and so are the last bytes of `rows`. `found` has a place for
    each term of the longest row.
    """
    count, last = room.offsets[row], len(rows.data) - 7
    written = room.ends[:count].max() if count > 0 else 0
    while row < len(rows.begins):
        at, end = rows.begins[row], rows.ends[row]
        if count + (end - at) // 2 + 1 > len(room.hashes) or written + GROWTH_MAX * (end - at) + 8 > len(room.folded):
            break
        kinds = tables.plain if folded_before[row] else tables.folding
        terms = 0
        while at < end:
            start, chars = written, 0
            h, word = _SEED, np.uint64(0)
            ended = False
            while at < min(end, last) and not ended:
                beyond = np.uint64(8 * max(at + 8 - end, 0))
                eight = (eight_at(rows.data, at) << beyond) >> beyond  # what is behind the text separates
                if eight & HIGH_BITS:
                    break
                folded, length = fold_eight(eight)
                put_eight(room.folded, written, folded)
                at, written, chars, ended = at + length, written + length, chars + length, length < 8
                if ended:
                    word, at = swap_bytes(folded) >> _S8 >> np.uint64(56 - 8 * length), at + 1
                else:
                    h = mix(h ^ swap_bytes(folded))
            while at < end and not ended:
                byte = ASCII[rows.data[at]]
                if byte == 0:
                    at += 1
                    break
                if byte != NOT_ASCII:
                    at += 1
                    chars += 1
                    room.folded[written] = byte
                    word = (word << _S8) | np.uint64(byte)
                    if (written - start) & 7 == 7:
                        h, word = mix(h ^ word), np.uint64(0)
                    written += 1
                    continue
                code, length = decode_utf8(rows.data, at, end)
                kind = SEPARATES if code < 0 else int(np.int64(kinds[code]))
                image = np.uint64(0)
                if kind >= FOLD:
                    image = tables.folds[kind - FOLD]
                elif kind == IN_TERM or (kind >= MARK and written > start):
                    image = np.uint64(length) << _S56
                    for k in range(length):
                        image |= np.uint64(rows.data[at + k]) << np.uint64(8 * k)
                for _ in range(int(image >> _S56)):
                    byte = np.uint8(image & _BYTE)
                    image >>= _S8
                    chars += byte & 0xC0 != 0x80
                    room.folded[written] = byte
                    word = (word << _S8) | np.uint64(byte)
                    if (written - start) & 7 == 7:
                        h, word = mix(h ^ word), np.uint64(0)
                    written += 1
                at += length
                if kind == SEPARATES:
                    break
            if chars > chars_max:
                written = start
            elif written > start:
                found.hashes[terms] = finish_hash(h, word, written - start)
                found.starts[terms], found.ends[terms] = start, written
                terms += 1
        count = _keep(found, terms, room, count)
        row += 1
        room.offsets[row] = count
    return row
