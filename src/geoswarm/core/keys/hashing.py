"""h(k): the executor of a key that is in no table.

The table is in `plan.py`. The paper asks for consistent hashing (Mixed §II-A, [14]): here a key falls into one of a
fixed number of slots, and each slot belongs to the executor that draws the highest number for it (rendezvous). A
look-up is one array access; an executor that joins takes its share of slots from all others and touches no other
slot, one that leaves hands its slots to all others. A ring with virtual nodes moves as few keys, but its arcs differ in
length: 65536 slots are even to 1.5 % at 15 executors.

The numbers below are part of every checkpoint: with others, keys would look for their state elsewhere.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from geoswarm.core.arrays.jit import Bytes, Ints, kernel
from geoswarm.errors import SchemaError

KeyOwners = npt.NDArray[np.int32]  # executors, or -1
Word = np.uint64

SLOT_BITS = 16
SLOTS = 1 << SLOT_BITS
_SLOT_SHIFT = np.uint64(64 - SLOT_BITS)
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S56 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(56)
_BYTE = np.uint64(8)


@kernel
def scramble(key: int) -> Word:
    """64 well-mixed bits of a key (SplitMix64). Kept apart from `lab/workload/draw.py`, which may change."""
    return stir(np.uint64(key), _GAMMA)


@kernel
def stir(bits: Word, more: Word) -> Word:
    z = (bits ^ (bits >> _S31)) + more
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


@kernel
def slot_of_key(bits: Word) -> int:
    return np.int64(bits >> _SLOT_SHIFT)  # type: ignore[return-value]


@kernel
def slots_of_keys(keys: Ints) -> Ints:
    slots = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        slots[i] = slot_of_key(scramble(keys[i]))
    return slots


@lru_cache(maxsize=16)
def slot_owners(executors: tuple[int, ...]) -> KeyOwners:
    """The executor of each slot."""
    owners = _owners(np.array(executors, np.int64))
    owners.flags.writeable = False
    return owners


@kernel
def _owners(executors: Ints) -> KeyOwners:
    owners = np.empty(SLOTS, np.int32)
    marks = np.empty(len(executors), np.uint64)
    for i in range(len(executors)):
        marks[i] = scramble(~executors[i])
    for slot in range(SLOTS):
        highest = np.uint64(0)
        owners[slot] = executors[0]
        for i in range(len(executors)):
            drawn = stir(marks[i], scramble(slot))
            if drawn > highest:
                highest, owners[slot] = drawn, executors[i]
    return owners


def key_ids(keys: Any) -> Ints:
    """64-bit ids of Arrow keys: an integer is its own id, text is hashed. Texts that share an id share an executor, and
    nothing else: state is kept by the key itself."""
    column = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if column.null_count:
        raise SchemaError(f"{column.null_count} of {len(column)} keys are null: drop them, or give them a key")
    if pa.types.is_integer(column.type):
        if column.type == pa.uint64():
            return np.asarray(column).view(np.int64)
        return np.asarray(column).astype(np.int64)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_string())
        _, offsets, data = column.buffers()
        places = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
        text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        return text_ids(places, text)
    raise SchemaError(f"keys of type {column.type} cannot be routed: use integers or strings")


@kernel
def text_ids(places: Ints, text: Bytes) -> Ints:
    """Mixes eight bytes at a time into the hash; the length tells apart texts that differ only in zero bytes."""
    ids = np.empty(len(places) - 1, np.int64)
    for i in range(len(ids)):
        state = scramble(places[i + 1] - places[i])
        word, filled = np.uint64(0), 0
        for at in range(places[i], places[i + 1]):
            word = (word << _BYTE) | np.uint64(text[at])
            filled += 1
            if filled == 8:
                state = stir(state, word)
                word, filled = np.uint64(0), 0
        ids[i] = np.int64(stir(state, word))
    return ids
