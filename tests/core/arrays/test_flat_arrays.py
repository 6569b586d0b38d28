"""Arrays in one file come back as they were, or not at all."""

import json

import numpy as np
import pytest

from geoswarm.core.arrays.flat_arrays import MAGIC_BEFORE, checksum, pack_pieces, unpack_arrays
from geoswarm.core.arrays.jit import Array

ARRAYS: dict[str, Array] = {
    "ids": np.arange(5),
    "rects": np.arange(12.0).reshape(3, 4),
    "none": np.empty((0, 4), np.uint32),
    "bytes": np.arange(100, dtype=np.uint8),
}


def packed() -> bytes:
    pieces = ((name, [array[:2], array[2:]]) for name, array in ARRAYS.items())
    return b"".join(bytes(chunk) for chunk in pack_pieces(pieces))


def same(found: dict[str, Array]) -> bool:
    return list(found) == list(ARRAYS) and all(
        (found[name] == array).all() and (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        for name, array in ARRAYS.items()
    )


def test_arrays_that_were_written_in_pieces_are_read_whole() -> None:
    assert same(unpack_arrays(memoryview(packed())))


def test_a_file_that_differs_in_any_bit_or_is_cut_short_is_refused() -> None:
    data = packed()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        for wrong in (bytes(changed), data[:place]):
            with pytest.raises(ValueError, match=r"checksum|not a geoswarm file"):
                unpack_arrays(memoryview(wrong))


def test_a_file_of_an_earlier_version_is_read() -> None:
    places, chunks, offset = {}, b"", 0
    for name, array in ARRAYS.items():
        places[name] = [array.dtype.str, list(array.shape), offset]
        chunks += array.tobytes() + b"\0" * (-array.nbytes % 64)
        offset = len(chunks)
    header = json.dumps({"arrays": places, "size": offset, "seal": checksum(chunks)}).encode()
    header = header.ljust(-(-(24 + len(header)) // 64) * 64 - 24)
    head = len(header).to_bytes(8, "little") + header
    before = MAGIC_BEFORE + head + bytes.fromhex(checksum(head)) + chunks
    assert same(unpack_arrays(memoryview(before)))
    with pytest.raises(ValueError, match="arrays do not match"):
        unpack_arrays(memoryview(before[:-1] + b"\1"))
