"""Letters and digits of ASCII: which bytes belong to terms, and what they are folded to, one by one or by eights.

All other characters are in `unicode_tables.py`.
"""

import numpy as np

from geoswarm.core.arrays.eights import count_bits
from geoswarm.core.arrays.jit import inner

NOT_ASCII = 255
ASCII = np.array(
    [ord(chr(b).lower()) if b < 128 and chr(b).isalnum() else NOT_ASCII if b >= 128 else 0 for b in range(256)],
    np.uint8,
)
"""The folded form of each ASCII byte; 0 separates."""

_ONE, _S2, _EACH = np.uint64(1), np.uint64(2), 0x0101010101010101
HIGH_BITS, _SMALL = np.uint64(0x80 * _EACH), np.uint64(0x20 * _EACH)
_FROM_A, _BEYOND_Z = np.uint64((0x80 - ord("a")) * _EACH), np.uint64((0x7F - ord("z")) * _EACH)
_FROM_0, _BEYOND_9 = np.uint64((0x80 - ord("0")) * _EACH), np.uint64((0x7F - ord("9")) * _EACH)
"""Added to a byte that has its high bit clear, they set that bit if the byte is not below, or above."""


@inner
def fold_eight(eight: np.uint64) -> tuple[np.uint64, int]:
    """Eight ASCII bytes with letters folded, and how many letters and digits there are before anything else. Each
    byte has a bit to spare, so eight comparisons are one addition."""
    lower = eight | _SMALL
    letters = (lower + _FROM_A) & ~(lower + _BEYOND_Z) & HIGH_BITS
    digits = (eight + _FROM_0) & ~(eight + _BEYOND_9) & HIGH_BITS
    stops = ~(letters | digits) & HIGH_BITS
    return eight | (letters >> _S2), count_bits((stops & -stops) - _ONE) >> 3
