"""A table that rejects most keys with one read: ascending 32-bit keys under a bitmap that counts the keys before.

    key ──► place = key × places >> 32     bits  [ 0100 0010 | 0 ] [ 0000 1000 | 2 ] …    (taken, keys before) per word
                                           keys  [ 1    6      12 … ]

A place that is not taken has no key. If it is taken, the number of bits below it is the row where the key would be, or
a few rows before it if keys share a place. It is smaller than a hash table, and most answers are no, which takes no
branch. `word_kernels.py` finds terms and lists in such tables, `words.py` builds them.
"""

from typing import Any

import numpy as np

from geoswarm.core.arrays.eights import count_bits
from geoswarm.core.arrays.jit import inner, kernel
from geoswarm.core.text.kernels import Hashes

LOW = np.uint64(0xFFFFFFFF)
_6, _32, _63, _ONE = np.uint64(6), np.uint64(32), np.uint64(63), np.uint64(1)


@inner
def as_signed(v: Any) -> int:
    """numba turns an expression of signed and unsigned integers into floats."""
    return np.int64(v)  # type: ignore[return-value]


@inner
def as_unsigned(v: Any) -> Any:
    """numba checks every signed index for being negative."""
    return np.uint64(v)


@inner
def scatter_term(term: int) -> int:
    """32 well spread bits, different for each term."""
    return (term * 2654435769) & 0xFFFFFFFF


@inner
def is_taken(bits: Hashes, place: int) -> int:
    at = as_unsigned(place)
    return as_signed((bits[at >> _6, 0] >> (at & _63)) & _ONE)


@inner
def rank(bits: Hashes, place: int) -> int:
    at = as_unsigned(place)
    below = (_ONE << (at & _63)) - _ONE
    return as_signed(bits[at >> _6, 1]) + count_bits(bits[at >> _6, 0] & below)


@inner
def mark_taken(bits: Hashes, place: int) -> None:
    """While a table is built, each word counts its own keys; `add_up` turns that into the keys before it."""
    bits[place >> 6, 0] |= np.uint64(1) << np.uint64(place & 63)
    bits[place >> 6, 1] += np.uint64(1)


@kernel
def add_up(bits: Hashes) -> None:
    before = np.uint64(0)
    for w in range(len(bits)):
        here = bits[w, 1]
        bits[w, 1] = before
        before += here


@inner
def term_place(hash_: Any, bits: Hashes) -> int:
    """A term's key is the upper half of its hash."""
    return (as_signed(hash_ >> np.uint64(32)) * ((len(bits) - 1) * 64)) >> 32
