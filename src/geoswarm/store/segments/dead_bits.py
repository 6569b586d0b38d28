"""Which subscriptions of a segment are cancelled: a bitmap by ordinal, which belongs to a version of the store."""

import numpy as np

from geoswarm.core.arrays.jit import Bytes, Ints, kernel


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
