"""Arrays in one flat file, which can be mapped without a copy. Bytes in, bytes out; `store/storage.py` has the files.

┌────────┬─────────┬─────────┬─────┬─────────────────────────────────────────────────┬─────────────┬──────────┐
│ magic  │ array 0 │ array 1 │ ... │ footer: names, types, offsets, checksum of what │ footer size │ checksum │
│64 bytes│         │         │     │ is before it                                    │ 8 bytes     │ 8 bytes  │
└────────┴─────────┴─────────┴─────┴─────────────────────────────────────────────────┴─────────────┴──────────┘

Each array is at a multiple of 64 bytes. The footer is last, so that arrays can be written in pieces while they are
made: a file may be larger than memory. Files of earlier versions begin with a header, and are read, too.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import xxhash

from geoswarm.core.arrays.jit import Array

MAGIC, MAGIC_BEFORE = b"GEOSWRM2", b"GEOSWRM1"
ALIGNMENT_BYTES = 64
TAIL_BYTES = 16
ArrayPieces = Iterable[tuple[str, Iterable[Array]]]
"""Arrays by name, each as consecutive pieces of one type: at least one, which may be empty."""


def pack_pieces(arrays: ArrayPieces) -> Iterator[bytes | memoryview]:
    """The chunks of a file, each made when it is asked for."""
    digest, places = xxhash.xxh3_64(), {}
    first = MAGIC.ljust(ALIGNMENT_BYTES, b"\0")
    digest.update(first)
    offset = len(first)
    yield first
    for name, pieces in arrays:
        begin, rows = offset, 0
        for given in pieces:
            piece = np.ascontiguousarray(given)
            digest.update(_bytes(piece))
            yield _bytes(piece)
            offset, rows, tail, dtype = offset + piece.nbytes, rows + len(piece), piece.shape[1:], piece.dtype
        places[name] = [dtype.str, [rows, *tail], begin]
        padding = b"\0" * (-offset % ALIGNMENT_BYTES)
        digest.update(padding)
        yield padding
        offset += len(padding)
    footer = json.dumps({"arrays": places, "seal": digest.hexdigest()}).encode()
    footer += len(footer).to_bytes(8, "little")
    yield footer + bytes.fromhex(checksum(footer))


def unpack_arrays(data: memoryview) -> dict[str, Array]:
    """Raises ValueError if any byte differs from what was packed."""
    if bytes(data[:8]) == MAGIC_BEFORE:
        return _unpack_before(data)
    if bytes(data[:8]) != MAGIC:
        raise ValueError(f"starts with {bytes(data[:8])!r} instead of {MAGIC!r}: not a geoswarm file, or cut short")
    size = int.from_bytes(data[-TAIL_BYTES:-8], "little")
    end = len(data) - TAIL_BYTES - size
    if end < ALIGNMENT_BYTES or data[-8:].hex() != checksum(data[end:-8]):
        raise ValueError("its footer does not match its checksum: it was cut short or changed")
    footer = json.loads(bytes(data[end:-TAIL_BYTES]))
    if checksum(data[:end]) != footer["seal"]:
        raise ValueError("its arrays do not match their checksum")
    return _views(data, footer["arrays"], 0)


def _unpack_before(data: memoryview) -> dict[str, Array]:
    """Magic, size of the header, header, its checksum, arrays."""
    size = int.from_bytes(data[8:16], "little")
    head, seal = data[8 : 16 + size], data[16 + size : 24 + size]
    if seal.hex() != checksum(head):
        raise ValueError("its header does not match its checksum")
    header = json.loads(bytes(head[8:]))
    start = 24 + size
    if len(data) != start + header["size"]:
        raise ValueError(f"has {len(data)} bytes instead of {start + header['size']}")
    if checksum(data[start:]) != header["seal"]:
        raise ValueError("its arrays do not match their checksum")
    return _views(data, header["arrays"], start)


def _views(data: memoryview, places: Mapping[str, tuple[str, list[int], int]], start: int) -> dict[str, Array]:
    return {
        name: np.frombuffer(data, np.dtype(dtype), math.prod(shape), start + offset).reshape(shape)
        for name, (dtype, shape, offset) in places.items()
    }


def checksum(data: bytes | memoryview) -> str:
    return str(xxhash.xxh3_64_hexdigest(data))


def _bytes(array: Array) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8).data)
