"""Guard's memory as bytes and back: a head in JSON, flat arrays, and the users' names.

The engine stores the bytes and checks that they are complete.
"""

import io
import json
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Array
from geoswarm.errors import CorruptState

MEMORY_VERSION = 1
ArraysByPart = dict[str, dict[str, Array]]


def pack_memory(head: dict[str, Any], parts: ArraysByPart, names: pa.StringArray) -> bytes:
    flat = {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("name", pa.string())])) as writer:
        writer.write_batch(pa.record_batch([names], names=["name"]))
    flat["head"] = np.frombuffer(json.dumps({"version": MEMORY_VERSION, **head}).encode(), np.uint8)
    flat["names"] = np.frombuffer(sink.getvalue(), np.uint8)
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **flat)
    return out.getvalue()


def unpack_memory(data: bytes) -> tuple[dict[str, Any], ArraysByPart, pa.StringArray]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            flat = {name: found[name] for name in found.files}
        head = json.loads(flat.pop("head").tobytes())
        names = pa.ipc.open_stream(flat.pop("names").tobytes()).read_all().column(0).combine_chunks()
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, pa.ArrowInvalid) as error:
        raise CorruptState(
            f"{len(data)} bytes of Guard's memory cannot be read ({error}): start without them; "
            "blocks made by operators have to be made again"
        ) from error
    if head["version"] != MEMORY_VERSION:
        raise CorruptState(
            f"Guard's memory has version {head['version']}, this engine reads {MEMORY_VERSION}: start without it"
        )
    parts: ArraysByPart = {}
    for key, array in flat.items():
        part, name = key.split(".", 1)
        parts.setdefault(part, {})[name] = array
    return head, parts, names
