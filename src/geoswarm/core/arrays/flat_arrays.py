"""Arrays in one flat file, which can be mapped without a copy. Bytes in, bytes out; `store/storage.py` has the files.

┌────────┬─────────────┬───────────────────────────────┬─────────┬─────────┐
│ magic  │ header size │ header: names, types, offsets,│ array 0 │ array 1 │ ...   each at a multiple
│ 8 bytes│ 8 bytes     │ checksum of the arrays; sealed│         │         │       of 64 bytes
└────────┴─────────────┴───────────────────────────────┴─────────┴─────────┘
"""

import json
import math
from collections.abc import Mapping

import numpy as np
import xxhash

from geoswarm.core.arrays.jit import Array

MAGIC = b"GEOSWRM1"
ALIGNMENT_BYTES = 64


def pack_arrays(arrays: Mapping[str, Array]) -> list[bytes | memoryview]:
    digest, places, offset = xxhash.xxh3_64(), {}, 0
    chunks: list[bytes | memoryview] = []
    for key, given in arrays.items():
        array = np.ascontiguousarray(given)
        places[key] = [array.dtype.str, list(array.shape), offset]
        chunks += [_bytes(array), b"\0" * (_round_up(array.nbytes) - array.nbytes)]
        offset += _round_up(array.nbytes)
    for chunk in chunks:
        digest.update(chunk)
    header = json.dumps({"arrays": places, "size": offset, "seal": digest.hexdigest()}).encode()
    header = header.ljust(_round_up(24 + len(header)) - 24)  # no byte of the file is left unsealed
    head = len(header).to_bytes(8, "little") + header
    return [MAGIC, head, bytes.fromhex(checksum(head)), *chunks]


def unpack_arrays(data: memoryview) -> dict[str, Array]:
    """Raises ValueError if any byte differs from what was packed."""
    if bytes(data[:8]) != MAGIC:
        raise ValueError(f"starts with {bytes(data[:8])!r} instead of {MAGIC!r}: not a geoswarm file, or cut short")
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
    return {
        key: np.frombuffer(data, np.dtype(dtype), math.prod(shape), start + offset).reshape(shape)
        for key, (dtype, shape, offset) in header["arrays"].items()
    }


def checksum(data: bytes | memoryview) -> str:
    return str(xxhash.xxh3_64_hexdigest(data))


def _bytes(array: Array) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8).data)


def _round_up(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
