"""Which subscriptions of a segment are cancelled: a bitmap by ordinal, which belongs to a version of the store."""

from typing import Any

import numpy as np

from geoswarm.core.arrays.jit import Bytes, Ints, kernel


def bits_set_since(before: Bytes, after: Bytes) -> Ints:
    """The ordinals whose bits are set in `after` and not in `before`; an empty bitmap has no bits set."""
    fresh = after & ~before if len(before) else after
    bytes_ = np.flatnonzero(fresh)  # few, of bitmaps that may have megabytes
    bits: Any = np.unpackbits(fresh[bytes_], bitorder="little").reshape(-1, 8)
    rows, columns = np.nonzero(bits)
    return np.asarray(bytes_[rows] * 8 + columns, np.int64)


@kernel
def mark(dead: Bytes, ordinals: Ints) -> int:
    """Set the bits of `ordinals`; returns how many were not set before."""
    fresh = 0
    for o in ordinals:
        bit = np.uint8(1 << (o & 7))
        if dead[o >> 3] & bit == 0:
            dead[o >> 3] |= bit
            fresh += 1
    return fresh
