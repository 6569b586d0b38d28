"""UUIDs of 16 bytes, as Parquet and Arrow have them, as their texts: 8-4-4-4-12 lower-case hexadecimal digits."""

import numpy as np
import pyarrow as pa

TEXT_BYTES = 36
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES = (8, 13, 18, 23)
_PLACES = np.array([at for at in range(TEXT_BYTES) if at not in _DASHES])


def is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType)


def uuid_texts(column: pa.Array) -> pa.Array:
    """The texts of a column of type uuid; null stays null."""
    held = column.storage
    valid = held.is_valid().to_numpy(zero_copy_only=False)
    joined = b"".join(held.drop_null().to_pylist()) if held.null_count else held.buffers()[1]
    first = 0 if held.null_count else 16 * held.offset
    count = int(valid.sum())
    raw = np.frombuffer(joined or b"", np.uint8)[first : first + 16 * count].reshape(count, 16)
    texts = np.full((count, TEXT_BYTES), ord("-"), np.uint8)
    texts[:, _PLACES[0::2]], texts[:, _PLACES[1::2]] = _DIGITS[raw >> 4], _DIGITS[raw & 15]
    offsets = np.append(0, TEXT_BYTES * np.cumsum(valid)).astype(np.int32)
    bits = np.packbits(valid, bitorder="little")
    buffers = [pa.py_buffer(bits), pa.py_buffer(offsets), pa.py_buffer(texts.tobytes())]
    return pa.StringArray.from_buffers(len(held), buffers[1], buffers[2], buffers[0])
