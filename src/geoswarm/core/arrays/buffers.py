"""Arrow strings in the form that kernels read: one buffer of UTF-8, and where each row begins and ends in it.

Nothing is copied, and nothing is taken for granted: the bytes may be invalid UTF-8 (Spark does not check), and a null
may have some.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bytes, Ints, read_only
from geoswarm.errors import InputError, SchemaError

STRINGS_BYTES_MAX = 2**31 - 1
"""The largest array of Arrow strings, whose offsets have 32 bits."""


class ByteRows(NamedTuple):
    """Row i is data[begins[i]:ends[i]]."""

    data: Bytes
    begins: Ints
    ends: Ints

    def text(self, row: int) -> str:
        """Bytes that are not UTF-8 are replaced by U+FFFD, which separates words."""
        return self.data[self.begins[row] : self.ends[row]].tobytes().decode("utf-8", "replace")


def rows_of(strings: pa.StringArray) -> ByteRows:
    if strings.type not in (pa.string(), pa.large_string()):
        raise SchemaError(f"texts are of type {strings.type}, not string: cast them first")
    offset_type = np.int32 if strings.type == pa.string() else np.int64
    _, offsets_buffer, data_buffer = strings.buffers()
    n = len(strings)
    if offsets_buffer is None or n == 0:
        return ByteRows(read_only(np.empty(0, np.uint8)), np.zeros(n, np.int64), np.zeros(n, np.int64))
    offsets = np.frombuffer(offsets_buffer, offset_type)[strings.offset : strings.offset + n + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    begins, ends = offsets[:-1], offsets[1:]
    if strings.null_count:
        ends = np.where(strings.is_valid().to_numpy(zero_copy_only=False), ends, begins)
    return ByteRows(read_only(data), begins, np.ascontiguousarray(ends))


def strings_of(offsets: Ints, data: Bytes) -> pa.StringArray:
    """The inverse of `rows_of`, for rows that lie one behind the other. Copies the offsets only."""
    if offsets[-1] > STRINGS_BYTES_MAX:
        raise InputError(f"{offsets[-1]} bytes of text at once, limit {STRINGS_BYTES_MAX}: take fewer rows at a time")
    return pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))
    )
