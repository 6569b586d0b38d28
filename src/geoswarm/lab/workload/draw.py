"""Random numbers by counter: the n-th draw of a key is a hash of both, so it needs none of the draws before it.

This is not a statistical library: it has what the workloads need. Only integer steps and + - * / on floats, so
every machine draws the same, and a loop gives the same rows however it is cut or vectorised.

The hash is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); the tables are Walker's aliases in Vose's form.
"""

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import Floats, Ints, kernel

Key = np.uint64
Ranks = npt.NDArray[np.int32]

GAMMA = np.uint64(0x9E3779B97F4A7C15)
DRAWS_PER_ID = np.uint64(8)
"""Each id has this many draws of its own under one key, numbered from 0."""

_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S11, _S27, _S30, _S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
_S21, _S42, _LOW21 = np.uint64(21), np.uint64(42), np.uint64((1 << 21) - 1)
_MASK64 = (1 << 64) - 1


def key_of(seed: int, purpose: str) -> Key:
    """One key per seed and purpose, so that events, rectangles and users are drawn apart."""
    text = int.from_bytes(purpose.encode()[:8].ljust(8), "little")
    return Key(int(mix(Key(seed & _MASK64))) ^ text)


@kernel
def mix(z: Key) -> Key:
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


@kernel
def bits(key: Key, row_id: int, n: int) -> Key:
    """Draw n of an id: 64 bits."""
    return mix(key + (np.uint64(row_id) * DRAWS_PER_ID + np.uint64(n) + np.uint64(1)) * GAMMA)


@kernel
def uniform(key: Key, row_id: int, n: int) -> float:
    """Draw n of an id: in [0, 1)."""
    return float(bits(key, row_id, n) >> _S11) * (1.0 / 9007199254740992.0)


@kernel
def bell(key: Key, row_id: int, n: int) -> float:
    """Draw n of an id: mean 0, standard deviation 1, within ±3. A sum of three uniforms, near to normal."""
    z = bits(key, row_id, n)
    total = (z & _LOW21) + ((z >> _S21) & _LOW21) + ((z >> _S42) & _LOW21)
    return (float(total) * (1.0 / 2097152.0) - 1.5) * 2.0


@kernel
def reflect(v: float, low: float, high: float) -> float:
    """Reflect a point that is outside back in; one that is too far out for that is put on the border."""
    if v < low:
        v = 2.0 * low - v
    elif v > high:
        v = 2.0 * high - v
    return min(max(v, low), high)


@kernel
def alias_table(weights: Floats) -> tuple[Floats, Ints]:
    """(coin, alias): slot i keeps a draw whose fraction is below coin[i], and hands others to alias[i]."""
    n = len(weights)
    coin = weights * (n / weights.sum())
    alias = np.arange(n)
    small, large = np.empty(n, np.int64), np.empty(n, np.int64)
    smalls = larges = 0
    for i in range(n):
        if coin[i] < 1.0:
            small[smalls] = i
            smalls += 1
        else:
            large[larges] = i
            larges += 1
    while smalls > 0 and larges > 0:
        smalls -= 1
        low, high = small[smalls], large[larges - 1]
        alias[low] = high
        coin[high] -= 1.0 - coin[low]
        if coin[high] < 1.0:
            larges -= 1
            small[smalls] = high
            smalls += 1
    # What rounding left over keeps its own draws.
    for i in range(smalls):
        coin[small[i]] = 1.0
    return coin, alias


def zipf_table(ranks: int, slots: int = 65536) -> Ranks:
    """Rank by equal slots: rank r (from 0) holds about 1/(r+1) of them, so one look-up draws it."""
    cumulative = np.cumsum(1.0 / np.arange(1, ranks + 1))
    at = (np.arange(slots) + 0.5) / slots * cumulative[-1]
    table: Ranks = np.minimum(np.searchsorted(cumulative, at), ranks - 1).astype(np.int32)
    return table


@kernel
def picks(ids: Ints, key: Key, n: int, table: Ranks) -> Ranks:
    """For each id, an equally likely entry of the table."""
    picked = np.empty(len(ids), np.int32)
    for i in range(len(ids)):
        picked[i] = table[int(uniform(key, ids[i], n) * len(table))]
    return picked
