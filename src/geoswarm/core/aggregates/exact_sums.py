"""Sums that are exact, so that they depend neither on the order of the values nor on how tasks share them.

A sum is one integer of 2,176 bits, in units of the smallest float64: every float64 and every integer of 64 bits is a
whole number of these. A task adds in such an integer; what it hands on has only the 32-bit limbs between the first and
the last that are not zero, which are some 20 bytes for values of like size. Equal sums are equal bytes.

    units of 2^-1074       ... │ limb 34 │ limb 33 │ limb 32 │ ...      mantissa << place: at most three limbs
    bytes of a sum         flags │ first limb │ limbs from there on, 4 bytes each

NaN is no value and is skipped. Infinities are flags: a sum of both is NaN. Radford Neal, "Fast exact summation using
small and large superaccumulators" (2015), has the idea.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, Packed, kernel, read_only

Word = np.uint64

LIMBS = 68
"""2^1024 in units of 2^-1074, times 2^63 values, and a carry."""
ADDS_MAX = 1 << 29
"""Values or sums that one group may have at once: a limb has room for so many before its carry is handed on."""
NEGATIVE, INFINITE, MINUS_INFINITE = 1, 2, 4
"""Flags of a sum."""
WHOLE_BITS = 1074
"""The bit of the number 1."""
_LIMB = 0xFFFF_FFFF


class Sums(NamedTuple):
    """One sum for each group, as bytes: sum i is `data[offsets[i]:offsets[i + 1]]`."""

    offsets: Ints
    data: Bytes

    def array(self) -> pa.Array:
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(self.offsets) - 1, [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        ).cast(pa.binary())


def add_floats(values: Floats, starts: Ints) -> Sums:
    """The sum of each group: group i is `values[starts[i]:starts[i + 1]]`, and may be empty."""
    return Sums(*_add_floats(read_only(values), read_only(starts)))


def add_integers(values: pa.Array, starts: Ints) -> Sums:
    """The same for integers of any size, without nulls."""
    if values.type == pa.uint64():
        sizes = np.asarray(values)
        return Sums(*_add_integers(read_only(sizes), read_only(np.zeros(len(sizes), np.bool_)), read_only(starts)))
    whole = np.asarray(values.cast(pa.int64()))
    sizes = np.where(whole < 0, -whole.view(np.uint64), whole.view(np.uint64))
    return Sums(*_add_integers(read_only(sizes), read_only(whole < 0), read_only(starts)))


def add_sums(sums: pa.Array, starts: Ints) -> Sums:
    """The sum of each group of sums."""
    return Sums(*_add_sums(*_parts(sums), read_only(starts)))


def round_sums(sums: pa.Array) -> Floats:
    """The float64 that is nearest to each sum, of two the even one; beyond the largest it is infinite."""
    return _round_sums(*_parts(sums))


def are_finite(sums: pa.Array) -> Bools:
    """Whether each is a sum of finite values."""
    places, data = _parts(sums)
    found: Bools = data[places[:-1]] & (INFINITE | MINUS_INFINITE) == 0
    return found


def exact_sums(sums: pa.Array) -> Iterator[tuple[int, int]]:
    """Each finite sum as a fraction, for which float64 has no room."""
    for written in sums.to_pylist():
        units = int.from_bytes(written[2:], "little") << (32 * written[1])
        yield (-units if written[0] & NEGATIVE else units), 1 << WHOLE_BITS


def _parts(sums: pa.Array) -> tuple[Ints, Bytes]:
    sums = pa.concat_arrays([sums.cast(pa.large_binary())])  # without an offset
    _, offsets, data = sums.buffers()
    places = np.frombuffer(offsets, np.int64)[: len(sums) + 1] if len(sums) else np.zeros(1, np.int64)
    return read_only(places), read_only(np.frombuffer(data or b"", np.uint8))


@kernel
def _add_floats(values: Floats, starts: Ints) -> tuple[Ints, Bytes]:
    bits = values.view(np.uint64)
    offsets, data = np.zeros(len(starts), np.int64), np.empty(32 * len(starts), np.uint8)
    limbs = np.zeros(LIMBS, np.int64)
    for group in range(len(starts) - 1):
        flags, low, high = 0, LIMBS, 0
        for at in range(starts[group], starts[group + 1]):
            power = int(np.int64(bits[at] >> Word(52))) & 0x7FF
            mantissa = bits[at] & Word(0xF_FFFF_FFFF_FFFF)
            is_negative = values[at] < 0
            if power == 0x7FF:
                if mantissa == 0:
                    flags |= MINUS_INFINITE if is_negative else INFINITE
                continue
            if power > 0:
                mantissa |= Word(1 << 52)
                power -= 1
            first = _add(limbs, mantissa, power, is_negative)
            low, high = min(low, first), max(high, first + 3)
        data = _write(limbs, low, high, flags, data, offsets, group)
    return offsets, data[: offsets[-1]]


@kernel
def _add_integers(sizes: Packed, are_negative: Bools, starts: Ints) -> tuple[Ints, Bytes]:
    offsets, data = np.zeros(len(starts), np.int64), np.empty(32 * len(starts), np.uint8)
    limbs = np.zeros(LIMBS, np.int64)
    for group in range(len(starts) - 1):
        low, high = LIMBS, 0
        for at in range(starts[group], starts[group + 1]):
            first = _add(limbs, sizes[at], WHOLE_BITS, are_negative[at])
            low, high = min(low, first), max(high, first + 3)
        data = _write(limbs, low, high, 0, data, offsets, group)
    return offsets, data[: offsets[-1]]


@kernel
def _add_sums(places: Ints, sums: Bytes, starts: Ints) -> tuple[Ints, Bytes]:
    offsets, data = np.zeros(len(starts), np.int64), np.empty(32 * len(starts), np.uint8)
    limbs = np.zeros(LIMBS, np.int64)
    for group in range(len(starts) - 1):
        flags, low, high = 0, LIMBS, 0
        for at in range(starts[group], starts[group + 1]):
            begin, first = places[at], int(np.int64(sums[places[at] + 1]))
            sign = -1 if sums[begin] & NEGATIVE else 1
            flags |= sums[begin] & (INFINITE | MINUS_INFINITE)
            count = (places[at + 1] - begin - 2) // 4
            for limb in range(count):
                limbs[first + limb] += sign * _limb(sums, begin + 2 + 4 * limb)
            if count:
                low, high = min(low, first), max(high, first + count)
        data = _write(limbs, low, high, flags, data, offsets, group)
    return offsets, data[: offsets[-1]]


@kernel
def _add(limbs: Ints, mantissa: Word, place: int, is_negative: bool) -> int:
    """Add `mantissa << place`; returns the first limb that it touches."""
    first, shift = place >> 5, Word(place & 31)
    low = (Word(mantissa) & Word(0xFFFF_FFFF)) << shift
    high = (Word(mantissa) >> Word(32)) << shift
    sign = -1 if is_negative else 1
    limbs[first] += sign * (np.int64(low) & _LIMB)
    limbs[first + 1] += sign * (np.int64(low >> Word(32)) + (np.int64(high) & _LIMB))
    limbs[first + 2] += sign * np.int64(high >> Word(32))
    return first


@kernel
def _write(limbs: Ints, low: int, high: int, flags: int, data: Bytes, offsets: Ints, group: int) -> Bytes:
    """Write the sum in `limbs[low:high]` as that of a group, and clear it. Returns `data`, which may have grown."""
    begin = offsets[group]
    if begin + 2 + 4 * LIMBS > len(data):
        grown = np.empty(2 * len(data) + 2 + 4 * LIMBS, np.uint8)
        grown[:begin] = data[:begin]
        data = grown
    high = _carry(limbs, low, high)
    if high > low and limbs[high - 1] < 0:
        flags |= NEGATIVE
        for limb in range(low, high):
            limbs[limb] = -limbs[limb]
        high = _carry(limbs, low, high)
    while high > low and limbs[high - 1] == 0:
        high -= 1
    first = low
    while first < high and limbs[first] == 0:
        first += 1
    is_finite = flags & (INFINITE | MINUS_INFINITE) == 0
    if not is_finite or first == high:
        data[begin], data[begin + 1] = flags & (INFINITE | MINUS_INFINITE), 0
        offsets[group + 1] = begin + 2
    else:
        data[begin], data[begin + 1] = flags, first
        at = begin + 2
        for limb in range(first, high):
            for byte in range(4):
                data[at + byte] = limbs[limb] >> (8 * byte) & 0xFF
            at += 4
        offsets[group + 1] = at
    limbs[low:high] = 0
    return data


@kernel
def _carry(limbs: Ints, low: int, high: int) -> int:
    """Bring all limbs but the last into 0 to 2^32 - 1; returns where they end. The last one has the sign."""
    limb, carry = low, np.int64(0)
    while limb < high or (carry != 0 and carry != -1):
        whole = limbs[limb] + carry
        limbs[limb], carry = whole & _LIMB, whole >> 32
        limb += 1
    if carry == -1:
        limbs[limb] = -1
        limb += 1
    return limb


@kernel
def _limb(sums: Bytes, at: int) -> int:
    limb = np.int64(0)
    for byte in range(4):
        limb |= np.int64(sums[at + byte]) << 8 * byte
    return int(limb)


@kernel
def _round_sums(places: Ints, sums: Bytes) -> Floats:
    bits = np.zeros(len(places) - 1, np.uint64)
    limbs = np.zeros(LIMBS + 3, np.uint64)
    for row in range(len(bits)):
        begin, end, flags, first = places[row], places[row + 1], sums[places[row]], int(np.int64(sums[places[row] + 1]))
        if flags & (INFINITE | MINUS_INFINITE):
            both = flags & INFINITE and flags & MINUS_INFINITE
            bits[row] = Word(0x7FF) << Word(52)
            if both:
                bits[row] |= Word(1) << Word(51)
        else:
            last = first
            for at in range(begin + 2, end, 4):
                limbs[last] = Word(_limb(sums, at))
                last += 1
            bits[row] = _rounded(limbs, first, last)
            limbs[first:last] = 0
        if flags & NEGATIVE or flags & (INFINITE | MINUS_INFINITE) == MINUS_INFINITE:
            bits[row] |= Word(1) << Word(63)
    return bits.view(np.float64)


@kernel
def _rounded(limbs: Packed, first: int, last: int) -> Word:
    """The bits of the float64 nearest to a sum of limbs that are not zero at both ends. Its exponent is where its
    mantissa is cut off: a carry of the mantissa into the exponent is the next power of two, as it should be."""
    if first == last:
        return Word(0)
    length = 32 * (last - 1)
    top = limbs[last - 1]
    while top:
        length += 1
        top >>= Word(1)
    cut = max(length - 53, 0)
    mantissa = _bits_from(limbs, cut)
    if cut:
        half = limbs[(cut - 1) >> 5] >> Word((cut - 1) & 31) & Word(1)
        if half and (mantissa & Word(1) or _has_bits_below(limbs, first, cut - 1)):
            mantissa += Word(1)
    found, infinite = (Word(cut) << Word(52)) + mantissa, Word(0x7FF) << Word(52)
    return found if found < infinite else infinite


@kernel
def _bits_from(limbs: Packed, bit: int) -> Word:
    """All bits from one on; at most 53 are set there."""
    limb, shift = bit >> 5, Word(bit & 31)
    found: Word = limbs[limb] >> shift | limbs[limb + 1] << Word(32) >> shift
    if shift:
        found |= limbs[limb + 2] << Word(64) - shift
    return found


@kernel
def _has_bits_below(limbs: Packed, first: int, bit: int) -> bool:
    for limb in range(first, bit >> 5):
        if limbs[limb]:
            return True
    return bool(limbs[bit >> 5] & ((Word(1) << Word(bit & 31)) - Word(1)))
