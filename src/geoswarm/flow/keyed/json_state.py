"""A user's state as JSON, and a refusal of whatever would come back from JSON as something else.

Python's own `json` is more forgiving: it makes lists of tuples and texts of whole-number keys, and the state of the
next batch would no longer be the one that was kept.
"""

import json
import math
from typing import Any

from geoswarm.errors import StreamError

STATE_BYTES_MAX = 1 << 20
"""Of one key and interval. A larger one is written anew with every batch: it should be several keys."""


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
    """What cannot be kept, by its place and type; the first of several."""
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
