"""A user's state as JSON; a value that JSON would change is refused.

Python's own `json` turns tuples into lists and integer keys into text, and the next batch would get another state than
the one that was kept.
"""

import json
import math
from typing import Any

from geoswarm.errors import StreamError

STATE_BYTES_MAX = 1 << 20
"""Bytes of the state of one key and interval. It is written again in every batch: use more keys instead."""


def pack_state(state: Any, whose: str) -> str:
    """`whose` names the operator and the key in the message of an error."""
    try:
        written = json.dumps(state, allow_nan=False, separators=(",", ":"))
        is_same = bool(json.loads(written) == state)
    except (TypeError, ValueError, RecursionError):
        written, is_same = "", False
    if not is_same:
        raise StreamError(
            f"{whose}: the state holds {_culprit(state, 'state', 0)}, which JSON does not keep as it is: "
            "use None, bool, int, finite float, str, and lists and dicts with str keys of these"
        )
    if len(written) > STATE_BYTES_MAX:
        raise StreamError(
            f"{whose}: the state has {len(written)} bytes as JSON, limit {STATE_BYTES_MAX}: "
            "keep less of it, or use finer keys"
        )
    return written


def unpack_state(written: str) -> Any:
    return json.loads(written)


_DEPTH_MAX = 100


def _culprit(value: Any, path: str, depth: int) -> str:
    """The place and type of the first value that cannot be kept."""
    if depth > _DEPTH_MAX:
        return f"itself, or more than {_DEPTH_MAX} levels, at {path[:60]}..."
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} at {path}"
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"a dict with the {type(key).__name__} key {key!r} at {path}"
        inner = (_culprit(part, f"{path}[{key!r}]", depth + 1) for key, part in value.items())
    elif isinstance(value, list):
        inner = (_culprit(part, f"{path}[{i}]", depth + 1) for i, part in enumerate(value))
    elif value is None or isinstance(value, bool | int | float | str):
        return ""
    else:
        return f"a {type(value).__name__} at {path}"
    return next((found for found in inner if found), "")
